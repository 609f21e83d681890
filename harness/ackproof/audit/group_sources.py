"""Files about one consumer group, and their rows by partition, as the tasks of the audit read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from ackproof.audit.outputs import FindingsWriter
from ackproof.audit.planning import GREATEST, LEAST
from ackproof.audit.units import AuditTarget
from ackproof.ledgers.directory import Rejected, RowGroup, describe_unreadable
from ackproof.ledgers.load import (
    Piece,
    UnreadablePart,
    UntrustedStatistics,
    distinct_strings,
    read_piece,
    split_by_place,
)
from ackproof.ledgers.rows import Array, Bools, Ints, Rows, concat_rows, group_starts
from ackproof.rundir import storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import rows_of, text_array, to_arrow, to_numpy
from ackproof.rundir.groups import GroupPlan, MembershipEvent
from ackproof.rundir.partition import TopicPartition

NO_OFFSET: Final = -1
EVERY_SEQ: Final = LEAST, GREATEST
RECORD: Final = {"offset": "i8", "producer": "i4", "seq": "i8"}
COPY: Final = {**RECORD, "partition": "i4"}
_TEXTS: Final = frozenset({"group", "topic", "event", "member_id", "why", "record", "error"})


@dataclass(frozen=True)
class GroupPart:
    """One file about a group: a part of its members' ledgers, of its output, or of the log of `__consumer_offsets`.
    `groups`: its row groups, each with the spans of `partition` and `seq`, and the topic, as far as the footer has
    them."""

    path: str
    groups: tuple[RowGroup, ...]


@dataclass(frozen=True)
class PlaceSet:
    """One of `count` disjoint sets into which all partitions are divided, so that several tasks share the work.
    `number`: index of this set, from 0."""

    number: int = 0
    count: int = 1

    def __contains__(self, place: TopicPartition) -> bool:
        return (crc32(place.topic.encode()) + place.partition) % self.count == self.number

    def may_have(self, group: RowGroup) -> bool:
        """Return False if the footer of a row group shows that it has no partition of this set."""
        span = group.spans.get("partition") if group.partition is None else (group.partition, group.partition)
        if group.topic is None or span is None or span[1] - span[0] >= self.count:
            return True
        return any(TopicPartition(group.topic, number) in self for number in range(span[0], span[1] + 1))


ALL_PLACES: Final = PlaceSet()


class Event(NamedTuple):
    """A row of the membership ledger: an event (`MembershipEvent`) that a group member reported, `t_ns` ns after the
    run's start. `member_id`: the coordinator's name of the member. `generation`: generation of a classic group, or
    member epoch. `place`: the partition that the event is about; its number is -1 if the event names none.

    `position`: in a `position` event the committed offset that the coordinator returned (-1: none); in a `reset` event
    the new position. `from_offset`: in a `reset` event the old position. Both are -1 in other events.
    """

    t_ns: int
    member: int
    event: str
    member_id: str
    generation: int
    place: TopicPartition
    from_offset: int
    position: int


@dataclass(frozen=True)
class GroupSources:
    """Files and facts of one group, known before its rows are read. Each unit of the group's audit reads its rows by
    them.

    `number`: position among the groups of the run, which is in file names. `counted`: classes that can be counted.
    `committed`: committed offsets after the load; None if the coordinator did not answer. `history`: node whose log of
    `__consumer_offsets` is a whole history; -1 for none. `finals`: row groups of the final read of the group's input.
    The other fields are files: parts of its members' ledgers, the log of `__consumer_offsets` (`log`), and its output.
    """

    target: AuditTarget
    plan: GroupPlan
    number: int
    counted: frozenset[str] = frozenset()
    committed: Mapping[TopicPartition, int] | None = None
    history: int = -1
    deliveries: tuple[GroupPart, ...] = ()
    commits: tuple[GroupPart, ...] = ()
    membership: tuple[GroupPart, ...] = ()
    log: tuple[GroupPart, ...] = ()
    output: tuple[GroupPart, ...] = ()
    finals: tuple[Piece, ...] = ()

    def final_rows(
        self, places: PlaceSet = ALL_PLACES, seqs: tuple[int, int] = EVERY_SEQ
    ) -> dict[TopicPartition, Rows]:
        """Return the intact input records that the final read found (at read_committed if producers use transactions),
        by partition: one row per offset, ascending (schema `RECORD`). `seqs`: least and greatest seq of the records to
        return. Raises `UnreadablePart` or `UntrustedStatistics` for a broken file, `Rejected` for invalid rows."""
        wanted = "committed" if self.plan.committed_read else "final"
        found: dict[TopicPartition, list[Rows]] = defaultdict(list)
        for piece in self.finals:
            groups = tuple(
                group for group in piece.groups if places.may_have(group) and _overlaps(group, seqs)
            )
            for stream, place, rows in read_piece(replace(piece, groups=groups), {*RECORD, "intact"}):
                if stream == wanted and place.topic in self.plan.topics and place in places:
                    kept = rows.flags("intact") & _are_within(rows, seqs)
                    found[place].append(rows.select(RECORD, None if kept.all() else kept))
        return {place: _distinct_offsets(concat_rows(pieces, RECORD)) for place, pieces in found.items()}

    def output_rows(self, seqs: tuple[int, int]) -> Rows:
        """Return the records of the group's output topic (schema `COPY`) with seqs within `seqs` (least,
        greatest). Raises `UnreadablePart` for a broken file, `Rejected` for a null in a column."""
        found: list[Rows] = []
        for part in self.output:
            kept = tuple(group for group in part.groups if _overlaps(group, seqs))
            for _, batch in _read_part(replace(part, groups=kept), list(COPY)):
                rows = Rows(_to_columns(batch, COPY), len(batch))
                found.append(rows.take(_are_within(rows, seqs)))
        return concat_rows(found, COPY)

    def rows_by_place(
        self, parts: Sequence[GroupPart], columns: Mapping[str, str], places: PlaceSet
    ) -> dict[TopicPartition, Rows]:
        """Return rows of the group from these files by partition, in the order of the files. `columns`: numpy
        type of each column to read. `places`: partitions to read. Raises `UnreadablePart` or
        `UntrustedStatistics` for a broken file, `Rejected` for a null in a column."""
        found: dict[TopicPartition, list[Rows]] = defaultdict(list)
        for batch in self.batches(parts, columns, places):
            for place, rows in split_rows(batch, columns, places):
                found[place].append(rows)
        return {place: concat_rows(pieces, columns) for place, pieces in found.items()}

    def batches(
        self, parts: Sequence[GroupPart], columns: Iterable[str], places: PlaceSet = ALL_PLACES
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of the group from these files, a batch per row group, with `columns`, topic and partition. Row
        groups that have none of the partitions `places` are skipped; rows of other partitions may remain. No batch is
        empty. Raises `UnreadablePart` or `UntrustedStatistics` for a broken file, `Rejected` for a null in a column."""
        names = list(dict.fromkeys(["group", "topic", "partition", *columns]))
        for part in parts:
            for group, batch in _read_part(part, names, places):
                span, partition = group.spans.get("partition"), to_numpy(batch["partition"])
                if (span and (partition.min() < span[0] or partition.max() > span[1])) or (
                    group.topic is not None and batch["topic"].unique().to_pylist() != [group.topic]
                ):
                    raise UntrustedStatistics(part.path)
                mine = are_text(batch["group"], self.plan.group)
                if mine.any():
                    yield pick(batch, mine)

    def read_events(self) -> list[Event]:
        """Return the group's rows of the membership ledger, by time. Raises `UnreadablePart` or `UntrustedStatistics`
        for a broken file, `Rejected` for a null in a column."""
        of_member = ("t_ns", "member", "event", "member_id", "generation")
        of_place = ("topic", "partition", "from_offset", "offset")
        found = [
            Event(t_ns, member, event, member_id, generation, TopicPartition(topic, partition), start, offset)
            for batch in self.batches(self.membership, (*of_member, *of_place))
            for t_ns, member, event, member_id, generation, topic, partition, start, offset in rows_of(
                batch, *of_member, *of_place
            )
        ]
        return sorted(found, key=lambda event: event.t_ns)


@dataclass(frozen=True)
class GroupPartition:
    """A partition of the input or output of a group under audit. `events`: membership events of this partition, and
    those that name no partition, by time."""

    sources: GroupSources
    place: TopicPartition
    events: Sequence[Event]
    findings: FindingsWriter

    @property
    def committed(self) -> int:
        """Offset that the group has committed for this partition after the load; 0 if no committed offset is known."""
        return (self.sources.committed or {}).get(self.place, 0)

    def counts(self, anomaly: Anomaly) -> bool:
        return anomaly in self.sources.counted

    def report(self, anomaly: Anomaly, rows: Rows, which: Ints, detail: list[str] | pa.Array | str) -> None:
        """Add one finding for each of the rows at the indices `which`. `detail`: a text for all, or one text per
        finding. Raises OSError if the findings cannot be written."""
        texts = text_array(detail) if isinstance(detail, list) else detail
        self.findings.add(self.place, anomaly, rows, which, detail=texts)

    def find_passed(self, offset: Ints, fork: int = GREATEST) -> Bools:
        """Return a mask: True for each offset that a position reset of a member skipped.

        A forward reset skips the offsets from the old position up to the new one. A backward reset follows a
        truncation, after which new records took the offsets from `fork` on. It skips those from `fork` up to the new
        position. `fork`: first offset at which a member got another record than the log has now; by default there is
        none.
        """
        passed = np.zeros(len(offset), np.bool_)
        for event in self.events:
            if event.event == MembershipEvent.RESET:
                first = event.from_offset if event.from_offset < event.position else fork
                passed |= (offset >= first) & (offset < event.position)
        return passed


def _read_part(
    part: GroupPart, names: Sequence[str], places: PlaceSet = ALL_PLACES
) -> Iterator[tuple[RowGroup, pa.RecordBatch]]:
    """Yield the row groups of a file that may have rows of these partitions, each with its rows as one batch. Empty row
    groups are left out. Columns of text are dictionaries.

    Raises `UnreadablePart` if the file cannot be read, `Rejected` for a null.
    """
    wanted = [group for group in part.groups if group.rows and places.may_have(group)]
    if not wanted:
        return
    texts = [name for name in names if name in _TEXTS]
    try:
        with storage.open_parquet(part.path, read_dictionary=texts, pre_buffer=False) as file:
            for group in wanted:
                table = file.read_row_group(group.number, columns=list(names), use_threads=False)
                if nulls := [name for name in table.column_names if table[name].null_count]:
                    raise Rejected(f"{part.path}: column {nulls[0]} has a null")
                (batch,) = table.unify_dictionaries().combine_chunks().to_batches()
                yield group, batch
    except (OSError, KeyError, pa.ArrowException) as error:
        raise UnreadablePart(part.path, describe_unreadable(error)) from error


def split_rows(
    batch: pa.RecordBatch, columns: Mapping[str, str], places: PlaceSet
) -> Iterator[tuple[TopicPartition, Rows]]:
    """Yield (partition, rows) for each partition of `places` in a batch. `columns`: numpy type of each column."""
    if len(batch):
        topics, topic = distinct_strings(batch["topic"])
        rows = Rows(_to_columns(batch, columns), len(batch))
        for place, own in split_by_place(rows.columns, topics, topic, to_numpy(batch["partition"])):
            if place in places:
                yield place, own if len(own) == len(batch) else own.copied()


def pick(batch: pa.RecordBatch, which: Bools) -> pa.RecordBatch:
    """Return the rows of a batch where the mask `which` is True."""
    return batch if which.all() else batch.filter(to_arrow(which))


def are_text(column: pa.Array, wanted: str) -> Bools:
    """Return a mask: True for each row of the column whose text is `wanted`."""
    words, code = distinct_strings(column)
    same: Bools = code == (words.index(wanted) if wanted in words else -1)
    return same


def find_values(ascending: Ints, wanted: Ints) -> tuple[Ints, Bools]:
    """Return for each wanted value its index in `ascending`, and a mask: True if `ascending` has the value.
    `ascending`: distinct values in ascending order. The index of a missing value has no meaning."""
    length = len(ascending)
    if not length:
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    first = int(ascending[0])
    if int(ascending[-1]) - first + 1 == length:  # no gap
        at = wanted - first
        there: Bools = (at >= 0) & (at < length)
        return np.where(there, at, 0), there
    at = np.minimum(np.searchsorted(ascending, wanted), length - 1).astype(np.int64)
    there = ascending[at] == wanted
    return at, there


def join_keys(rows: Rows, first: str, second: str) -> Ints:
    """Pack two columns into one, and return it: an int64 per row. Values of `first` must be below 2^23, values of
    `second` from -1 to 2^40 - 2."""
    return (rows.ints(first) << 40) | (rows.ints(second) & ((1 << 40) - 1))


def _to_columns(batch: pa.RecordBatch, columns: Mapping[str, str]) -> dict[str, Array]:
    return {name: to_numpy(batch[name]).astype(type_, copy=False) for name, type_ in columns.items()}


def _overlaps(group: RowGroup, seqs: tuple[int, int]) -> bool:
    least, greatest = group.spans.get("seq", EVERY_SEQ)
    return least <= seqs[1] and greatest >= seqs[0]


def _are_within(rows: Rows, seqs: tuple[int, int]) -> Bools:
    within: Bools = (rows["seq"] >= seqs[0]) & (rows["seq"] <= seqs[1])
    return within


def _distinct_offsets(rows: Rows) -> Rows:
    """Return one row per offset, ascending: a reader that starts again reads the same records twice."""
    rows = rows.sorted_by("offset")
    first = group_starts([rows["offset"]])
    return rows if len(first) == len(rows) else rows.take(first)
