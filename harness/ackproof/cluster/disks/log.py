"""A replica's log as it lies on disk: segments, record batches (format v2) and the checkpoints beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crc32c import crc32c

from ackproof.cluster.record_batches import CRC_FROM, Batch, scan
from ackproof.rundir.partition import TopicPartition

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"


@dataclass(frozen=True)
class Segment:
    """One `.log` file. Its name is its base offset."""

    path: Path

    @property
    def base(self) -> int:
        """The offset that it begins with."""
        return int(self.path.stem)

    def size(self) -> int:
        """Its length in bytes, as the file system says."""
        return self.path.stat().st_size

    def batches(self) -> Iterator[Batch]:
        """All whole batches, in order; it ends where no further one can be read. Only headers are read."""
        return iter(scan(self.path).batches)

    def intact(self, batch: Batch) -> bool:
        """Whether the batch's checksum holds now, read anew from the file."""
        with self.path.open("rb") as file:
            file.seek(batch.position)
            data = file.read(batch.size)
        return len(data) == batch.size and crc32c(data[CRC_FROM:]) == batch.crc

    def end(self) -> int:
        """The offset behind its last whole batch."""
        last = self.base - 1
        for batch in self.batches():
            last = batch.last
        return last + 1

    @property
    def companions(self) -> tuple[Path, ...]:
        """Its indexes, which Kafka makes anew where they lack."""
        return tuple(self.path.with_suffix(end) for end in (".index", ".timeindex", ".txnindex"))


def segments(replica: Path) -> list[Segment]:
    """The segments of a replica by base offset; the last one is active."""
    return sorted((Segment(path) for path in replica.glob("[0-9]*.log")), key=lambda segment: segment.base)


def log_end(replica: Path) -> int:
    """The log end offset of a replica on disk; 0 where there is no log at all."""
    found = segments(replica)
    return found[-1].end() if found else 0


def checkpoint(log_dir: Path, name: str = RECOVERY_POINT) -> dict[TopicPartition, int]:
    """An offset checkpoint of a log dir. Empty where there is none; lines that are no entry are passed over."""
    try:
        lines = (log_dir / name).read_text(encoding="utf-8").splitlines()[2:]
    except OSError:
        return {}
    found: dict[TopicPartition, int] = {}
    for line in lines:
        topic, _, rest = line.partition(" ")
        number, _, offset = rest.partition(" ")
        if number.isdigit() and offset.lstrip("-").isdigit():
            found[TopicPartition(topic, int(number))] = int(offset)
    return found


def cut(replica: Path, offset: int) -> int:
    """Cut a replica's log so that nothing at or after `offset` is left, at a batch boundary; its new log end.

    A batch that `offset` falls into goes as a whole. The broker must not run. Indexes of the segment that is cut
    and producer snapshots behind the cut go too: on its next start the broker makes them from the log, as it does
    after a power loss.
    """
    found = segments(replica)
    if not found:
        return 0
    kept = next((segment for segment in reversed(found) if segment.base <= offset), found[0])
    end = kept.base
    length = 0
    for batch in kept.batches():
        if batch.last >= offset:
            break
        end, length = batch.last + 1, batch.end
    for segment in found:
        if segment.base < kept.base:
            continue
        for path in segment.companions:
            path.unlink(missing_ok=True)
        if segment.base > kept.base:
            segment.path.unlink()
    with kept.path.open("r+b") as file:
        file.truncate(length)
    for snapshot in replica.glob("[0-9]*.snapshot"):
        if snapshot.stem.isdigit() and int(snapshot.stem) > end:
            snapshot.unlink()
    return end
