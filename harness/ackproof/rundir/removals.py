"""`removals.json` and `timestamps.json`: what may have removed acknowledged records from each partition, by settings,
faults and logs, and the timestamps that its records may have.

Both are computed before the audit (`ackproof.judge.removal`). By the first, the audit decides for each missing
acknowledged record whether it expired, was compacted, was deleted, or is lost. By the second, it counts records with
other timestamps as corrupted. Times are ns since the run's start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from ackproof.base.errors import BadInput
from ackproof.rundir.partition import TopicPartition

NEVER = -1
EVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Removal:
    """Settings and requests that may have removed records of one partition. Each `…_why` names the setting or the
    request; '' without one.

    Times are in ns since the run's start; `NEVER` (-1): it did not happen. `EVER` (the largest int64) stands for no
    limit: of time, or in `compacted_below` of offsets.
    """

    topic: str
    partition: int
    log_start: int = 0
    """Log start offset in the final read; 0 if no retention setting can have advanced it, or if the read of the
    partition is not complete."""
    committed_start: int = 0
    """Log start offset in the final read at read_committed, which starts after the other one; 0 as for `log_start`."""
    expired_until_ns: int = NEVER
    """Latest send time of a record that retention may have removed."""
    expired_why: str = ""
    compacted_until_ns: int = NEVER
    """Latest send time of a record that can have superseded an earlier record of its key."""
    compacted_below: int = EVER
    """Offset below which compaction may have removed records: the cleaner skips the active segment, and every
    replica's active segment begins at or below this offset. `EVER` if that is unknown."""
    compacted_why: str = ""
    deleted_ns: int = NEVER
    """Time of the request to delete the topic: records acknowledged by then were deleted with the topic."""
    deleted_until_ns: int = NEVER
    """Time at which the fault that deleted the topic and created it again was over: every running broker listed the
    topic again. If that failed: the time of the failure; if it never ended: the end of the run. Until then, a leader
    that did not know of the deletion could still append."""
    deleted_why: str = ""
    may_expire: bool = False
    """True if retention could delete records in this run. Each broker deletes at its own time, so the logs of a
    partition may then begin at different offsets."""

    @property
    def removes(self) -> bool:
        """True if retention has removed records, or a deletion of the topic may have. Compaction does not count."""
        return max(self.log_start, self.committed_start) > 0 or self.deleted_ns >= 0

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TimestampRule:
    """Timestamps that records of one partition may have, under each `message.timestamp.type` that was in force.

    CreateTime: `sent_ns` and `done_ns`, columns of the produced ledger, are times since the run's start. `sent_from_ns`
    is that start, in ns since the Unix epoch. If `unsure_ns` is None, the timestamp is `sent_ns`, cut to a whole
    millisecond. Otherwise the client library set it: at most `unsure_ns` before `sent_ns` and at most `unsure_ns` after
    `done_ns`. Without a delivery report there is no latest time. LogAppendTime: `appended_ms` are the first and last ms
    of the run since the Unix epoch, by any broker's clock.

    `sent_from_ns` or `appended_ms` is None if its type was never in force. If both types were, a timestamp of either is
    allowed.
    """

    topic: str
    partition: int
    sent_from_ns: int | None
    appended_ms: tuple[int, int] | None
    unsure_ns: int | None = None

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


P = TypeVar("P", Removal, TimestampRule)


def write_by_partition(path: Path, rows: Iterable[Removal | TimestampRule]) -> None:
    """Write `removals.json` (rows of class `Removal`) or `timestamps.json` (`TimestampRule`) of a run. Give at most one
    row for each partition. Raises OSError if the file cannot be written."""
    path.write_text(json.dumps({path.stem: [asdict(row) for row in rows]}, indent=1), encoding="utf-8")


def read_by_partition(path: Path, kind: type[P]) -> Mapping[TopicPartition, P] | None:
    """Return the entries of a run's `removals.json` (`kind` is `Removal`) or `timestamps.json` (`TimestampRule`), by
    partition; None if `path` does not exist. Raises `BadInput` if the file cannot be read."""
    try:
        found = [kind(**row) for row in json.loads(path.read_bytes())[path.stem]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error
    return {row.place: row for row in found}
