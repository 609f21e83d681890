"""`removals.json`: what may have removed acknowledged records from each partition, by settings, faults and logs.

It is computed before the audit (`ackproof.judge.removal`). The audit uses it to decide for each missing acknowledged
record whether it expired, was compacted, was deleted, or is lost. Times are ns since the run's start.
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
    """Settings and requests that may have removed records of one partition. Each `…_why` names the setting or the
    request; '' without one.

    Times are in ns since the run's start; `NEVER` (-1): it did not happen. `EVER`: any offset, or no limit in time.
    """

    topic: str
    partition: int
    log_start: int = 0
    """Log start offset in the final read; 0 if no retention setting can have advanced it, or if the read of the
    partition is not complete."""
    committed_start: int = 0
    """Log start offset in the final read at read_committed, which starts after the other final read."""
    expired_until_ns: int = NEVER
    """Time up to which retention may have removed the sent records."""
    expired_why: str = ""
    compacted_until_ns: int = NEVER
    """Time up to which a sent record can have superseded an earlier record of its key."""
    compacted_below: int = EVER
    """Offset below which compaction may have removed records: the cleaner skips the active segment, and every
    replica's active segment begins at or below this offset."""
    compacted_why: str = ""
    deleted_ns: int = NEVER
    """Time of the request to delete the topic: records acknowledged by then were deleted with the topic."""
    deleted_until_ns: int = NEVER
    """Time at which every broker listed the new topic. Until then, a leader that did not know of the deletion could
    still append."""
    deleted_why: str = ""
    may_expire: bool = False
    """True if retention could delete records in this run. Each broker deletes at its own time."""

    @property
    def removes(self) -> bool:
        """True if retention has removed records, or a deletion of the topic may have. Compaction does not count."""
        return max(self.log_start, self.committed_start) > 0 or self.deleted_ns >= 0

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def write_removals(run: CaseDir, removals: Iterable[Removal]) -> None:
    """Write `removals.json` of a run: which settings or requests may have removed records, by partition. Raises OSError
    if it cannot be written."""
    run.removals_json.write_text(
        json.dumps({"removals": [asdict(removal) for removal in removals]}, indent=1), encoding="utf-8"
    )


def read_removals(run: CaseDir) -> Mapping[TopicPartition, Removal] | None:
    """Return the content of `removals.json` by partition; None if the run has no such file. Raises `BadInput` if the
    file cannot be read."""
    try:
        document = json.loads(run.removals_json.read_bytes())
        found = [Removal(**removal) for removal in document["removals"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{run.removals_json}: cannot be read: {error}") from error
    return {removal.place: removal for removal in found}
