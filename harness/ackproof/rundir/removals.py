"""`removals.json`: what may have removed acknowledged records from a partition, as settings, faults and logs say.

Worked out before the audit (`ackproof.judge.removal`), which decides by it, record by record, whether an acknowledged
record that is gone expired, was compacted or was deleted, or is lost. Times are ns since the run's start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from ackproof.base.errors import BadInput
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition

NEVER = -1
EVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Removal:
    """Of one partition. Each `…_why` names the setting or the request, and is '' where nothing is removed by it."""

    topic: str
    partition: int
    log_start: int = 0
    """Where the log began in the final read; 0 where retention did not let it begin later."""
    committed_start: int = 0
    """The same of the final read at read_committed, which begins later."""
    expired_until_ns: int = NEVER
    """What was sent by then can be below the start because of retention."""
    expired_why: str = ""
    compacted_until_ns: int = NEVER
    """A record that was sent by then can have taken the place of an earlier one of its key."""
    compacted_below: int = EVER
    """The cleaner leaves the active segment alone: every replica's begins at or below this offset."""
    compacted_why: str = ""
    deleted_ns: int = NEVER
    """When the topic's deletion was asked for: what had been acknowledged by then went with it."""
    deleted_until_ns: int = NEVER
    """When every broker showed the topic anew. Until then a leader that had not heard could still append."""
    deleted_why: str = ""
    may_expire: bool = False
    """Whether retention could delete anything in this run: each broker does so in its own time."""

    @property
    def removes(self) -> bool:
        """Whether anything but compaction has removed records."""
        return max(self.log_start, self.committed_start) > 0 or self.deleted_ns >= 0

    @property
    def place(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)


def write_removals(run: CaseDir, removals: Iterable[Removal]) -> None:
    """Write the file."""
    run.removals_json.write_text(
        json.dumps({"removals": [asdict(one) for one in removals]}, indent=1), encoding="utf-8"
    )


def read_removals(run: CaseDir) -> Mapping[TopicPartition, Removal] | None:
    """By partition; None where nobody worked it out. Raises `BadInput` for a file that cannot be read."""
    try:
        document = json.loads(run.removals_json.read_bytes())
        found = [Removal(**one) for one in document["removals"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{run.removals_json}: cannot be read: {error}") from error
    return {one.place: one for one in found}
