"""Reads the replicas' logs of `__consumer_offsets` as histories: each commit, generation and member epoch in log order.

The coordinator appends what it decides, and answers afterwards. So the log has every accepted commit, unless the log
cleaner or a truncation removed it. Read it at rest: the log of a follower lags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
from crc32c import crc32c

from ackproof.base.errors import BadInput
from ackproof.cluster.disks.log import CRC_FROM, SMALLEST, Batch, Record, batch_at, parse_records, segments
from ackproof.observe.coordinator_records import COMMIT, CONSUMER_GROUP, MEMBER, CoordinatorRecords, Fields
from ackproof.observe.replica_logs import LogDir, decompress, topic_ids
from ackproof.rundir import storage
from ackproof.rundir.committed import OFFSETS_TOPIC
from ackproof.rundir.groups import (
    OFFSETS_LOG,
    CommitMetadata,
    GroupsFile,
    LogDecision,
    OffsetsHistory,
    OffsetsRecord,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import column_encodings
from ackproof.rundir.metadata import TopicCreated, read_metadata
from ackproof.rundir.payload import ABORT_MARKER, COMMIT_MARKER

_CHANGES: Final = 5
"""Maximum number of reads of a log: it is read again if the log cleaner changed it meanwhile."""
_NO_METADATA: Final = CommitMetadata(-1, -1, -1)
T = TypeVar("T")


def collect_group_offsets(
    jars: Iterable[Path], log_dirs: Sequence[LogDir], run: CaseDir
) -> tuple[OffsetsHistory, ...]:
    """Write `observed/offsets-log.parquet`: the history of each group of `observed/groups.json` in every replica's log.

    Return how complete each history is, and add this to `groups.json`. Call it after all clients have ended. `jars`:
    jars of each Kafka that the brokers ran; they have the schemas of the records. A log that cannot be read has a
    reason, and no rows. Raises `BadInput` without a `groups.json`, OSError if a file cannot be written.
    """
    file = GroupsFile.load(run.groups)
    groups = frozenset(end.group for end in file.groups)
    partitions = {end.committed.partition for end in file.groups if end.committed.partition >= 0}
    records, reason = None, ""
    try:
        records = CoordinatorRecords.load(jars)
    except (OSError, ValueError) as error:
        reason = str(error)
    topics = _topics_by_id(log_dirs, run)
    histories: list[OffsetsHistory] = []
    encodings = column_encodings(OFFSETS_LOG)
    with storage.create_parquet(run.offsets_log, OFFSETS_LOG, **encodings) as writer:
        for node, partition, folder in find_replicas(log_dirs, partitions):
            history = OffsetsHistory(node=node, partition=partition, reason=reason)
            if records is not None:
                found, reason_of_log = read_at_rest(folder, _Decoder(records, groups, topics).read)
                update: dict[str, object] = {"reason": reason_of_log}
                if found is not None:
                    walk, rows = found
                    writer.write_table(rows.table(node, partition))
                    update |= {"log_start": walk.start, "log_end": walk.end, "cleaned": walk.cleaned}
                history = history.model_copy(update=update)
            histories.append(history)
    file.model_copy(update={"histories": tuple(histories)}).save(run.groups)
    return tuple(histories)


def _topics_by_id(log_dirs: Iterable[LogDir], run: CaseDir) -> dict[str, str]:
    """Return the names of topics by their ids: of the folders on disk, and of `observed/metadata.jsonl`, which also has
    deleted topics."""
    found = topic_ids(log_dirs)
    with suppress(BadInput):  # there is no such file if the metadata log could not be decoded
        created = (one for one in read_metadata(run.metadata_log) if isinstance(one, TopicCreated))
        found |= {one.topic_id: one.topic for one in created}
    return found


# -- logs -----------------------------------------------------------------------------------------------------------


def find_replicas(log_dirs: Iterable[LogDir], partitions: Collection[int]) -> Iterator[tuple[int, int, Path]]:
    """Yield (node, partition, folder) of each replica of these partitions of `__consumer_offsets`, sorted by node and
    then partition."""
    places = ((log_dir, number) for log_dir in log_dirs for number in partitions)
    folders = [(dir_.node, number, dir_.path / f"{OFFSETS_TOPIC}-{number}") for dir_, number in places]
    yield from sorted(place for place in folders if place[2].is_dir())


def read_at_rest(folder: Path, read: Callable[[Sequence[Path]], T]) -> tuple[T | None, str]:
    """Return the result of `read` on the paths of a replica's segments in order, and ''; or None, and the reason why
    they cannot be read. An OSError, ValueError or `struct.error` of `read` becomes the reason.

    `read` is called again, up to `_CHANGES` times in all, if the set of segments changed meanwhile. That is the work of
    the log cleaner, because nothing is appended any more."""
    for _ in range(_CHANGES):
        before = segments(folder)
        found, reason = None, ""
        try:
            found = read([segment.path for segment in before])
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}"
        except (ValueError, struct.error) as error:
            reason = str(error)
        if before == segments(folder):
            return found, reason
    return None, "the log cleaner replaces its segments"


@dataclass
class LogWalk:
    """One pass over the batches of a replica's log (`paths`: its segments in order). Its fields are final after the
    pass.

    `start`, `end`: log start and log end offset (the next after the last); -1 without a segment. `cleaned`: True if
    offsets are missing between its batches or records, so that the log cleaner removed records. Markers and records of
    aborted transactions have offsets, and are no gaps.
    """

    paths: Sequence[Path]
    start: int = -1
    end: int = -1
    cleaned: bool = False

    def batches(self) -> Iterator[tuple[Batch, Iterator[Record]]]:
        """Yield each batch with its records. A torn batch at the end of the log is left out, as brokers do.

        Raises OSError, and ValueError for a damaged batch, and for bytes between segments that are no batch.
        """
        for number, path in enumerate(self.paths):
            data = path.read_bytes()
            base, at = int(path.stem), 0
            if number == 0:
                self.start = self.end = base
            self._go_on(base)
            while (batch := batch_at(data, at, len(data))) is not None:
                self._go_on(batch.first)
                body = data[at : (at := batch.end)]
                if crc32c(body[CRC_FROM:]) != batch.crc:
                    raise ValueError(f"{path}: the batch at offset {batch.first} is damaged")
                yield batch, parse_records(path, batch, decompress(body[SMALLEST:], batch.codec))
                self.cleaned |= batch.records != batch.last - batch.first + 1
                self.end = batch.last + 1
            if number + 1 < len(self.paths) and any(data[at : at + SMALLEST]):
                raise ValueError(f"{path}: a segment follows {len(data) - at} bytes that are no batch")

    def _go_on(self, offset: int) -> None:
        self.cleaned |= offset != self.end
        self.end = max(self.end, offset)


def marker_commits(record: Record) -> bool | None:
    """Return True for a transaction's commit marker, False for its abort marker; None for other control records."""
    kind = int.from_bytes((record.key or b"")[2:4], "big")
    return {COMMIT_MARKER: True, ABORT_MARKER: False}.get(kind)


# -- rows -----------------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """One record of `__consumer_offsets`, of the kind `record` (such as a commit), as a row of `OFFSETS_LOG`. A record
    about a member has a row for each of its partitions. The columns of the replica and of the transaction's decision
    are left out.

    `offset`, `epoch`: as `OffsetsRecord` defines them for each kind. `member_id`: the coordinator's id of a member.
    `member`, `generation`, `number`: of a commit by a member of the run, the number of its client, its generation and
    the commit's number, from the commit's metadata. '' and -1: the record does not have the field.
    """

    log_offset: int
    timestamp_ms: int
    producer_id: int
    group: str
    record: OffsetsRecord
    topic: str = ""
    partition: int = -1
    offset: int = -1
    epoch: int = -1
    member_id: str = ""
    member: int = -1
    generation: int = -1
    number: int = -1


class _Rows:
    """Collects the rows of one replica's log in log order. Rows of a transaction are pending until `decide` gets its
    marker; `table` then returns all rows with the decision on each."""

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self._decided: list[tuple[LogDecision, int]] = []
        """Decision on each row, and offset of the marker; -1: none."""
        self._pending: dict[int, list[int]] = {}
        """Positions of the rows of the open transaction, by producer id."""

    def add(self, rows: Iterable[_Row]) -> None:
        for row in rows:
            transactional = row.producer_id >= 0
            if transactional:
                self._pending.setdefault(row.producer_id, []).append(len(self.rows))
            self.rows.append(row)
            self._decided.append((LogDecision.PENDING if transactional else LogDecision.IN_FORCE, -1))

    def decide(self, producer_id: int, commit: bool, offset: int) -> None:
        """End the producer's transaction, whose marker is at `offset`: its rows are in force if `commit` is True, else
        aborted."""
        for position in self._pending.pop(producer_id, ()):
            self._decided[position] = LogDecision.IN_FORCE if commit else LogDecision.ABORTED, offset

    def table(self, node: int, log_partition: int) -> pa.Table:
        count = len(self.rows)
        columns = {
            "node": [node] * count,
            "log_partition": [log_partition] * count,
            **dict(zip(_Row._fields, zip(*self.rows, strict=True), strict=False)),
            **dict(zip(("decision", "decided_at"), zip(*self._decided, strict=True), strict=False)),
        }
        return pa.table({name: columns.get(name, ()) for name in OFFSETS_LOG.names}, schema=OFFSETS_LOG)


@dataclass(frozen=True)
class _Decoder:
    """Converts records of `__consumer_offsets` about these groups into rows. `topics`: names by topic id."""

    records: CoordinatorRecords
    groups: frozenset[str]
    topics: Mapping[str, str]

    def read(self, paths: Sequence[Path]) -> tuple[LogWalk, _Rows]:
        walk, rows = LogWalk(paths), _Rows()
        for batch, records in walk.batches():
            for record in records:
                if not batch.control:
                    rows.add(self._rows(record, batch.producer_id if batch.transactional else -1))
                elif (commit := marker_commits(record)) is not None:
                    rows.decide(batch.producer_id, commit, record.offset)
        return walk, rows

    def _rows(self, record: Record, producer_id: int) -> Iterator[_Row]:
        decoded = self.records.key(record.key or b"")
        if decoded is None:
            return
        kind, key = decoded
        group = key["group"] if "group" in key else key["GroupId"]
        if group not in self.groups:
            return
        value = None if record.value is None else self.records.value(kind, record.value)

        head = record.offset, record.timestamp_ms, producer_id, group
        if kind in COMMIT:
            place = key["topic"], key["partition"]
            if value is None:
                yield _Row(*head, OffsetsRecord.REMOVED, *place)
            else:
                committer = CommitMetadata.parse(value["metadata"]) or _NO_METADATA
                yield _Row(*head, OffsetsRecord.COMMIT, *place, value["offset"], -1, "", *committer)
        elif kind == MEMBER:
            epoch = -1 if value is None else value["MemberEpoch"]
            for place_and_epoch in self._assigned(value):
                yield _Row(*head, OffsetsRecord.MEMBER, *place_and_epoch, epoch, key["MemberId"])
        else:
            field = "Epoch" if kind == CONSUMER_GROUP else "generation"
            yield _Row(*head, OffsetsRecord.GROUP, epoch=-1 if value is None else value[field])

    def _assigned(self, value: Fields | None) -> list[tuple[str, int, int]]:
        """Return (topic, partition, assignment epoch) of each partition of a member; [('', -1, -1)] for none. The epoch
        is -1 if the record has none (before Kafka 4.3). A topic whose name is not known has its id."""
        found = []
        # A partition that it must give up is still its own (ConsumerGroup.createAssignmentEpochValidator).
        for name in ("AssignedPartitions", "PartitionsPendingRevocation"):
            for row in () if value is None else value[name]:
                topic_id, partitions = str(row["TopicId"]), row["Partitions"]
                since = row.get("AssignmentEpochs") or [-1] * len(partitions)
                topic = self.topics.get(topic_id, topic_id)
                found += [(topic, *pair) for pair in zip(partitions, since, strict=True)]
        return found or [("", -1, -1)]
