"""The files about one consumer group, and their rows by partition, for tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

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
from ackproof.ledgers.rows import Array, Bools, Ints, Rows, concat_rows
from ackproof.rundir import storage
from ackproof.rundir.arrow import to_numpy
from ackproof.rundir.partition import TopicPartition

NO_OFFSET = -1
EVERY_SEQ = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def overlaps(group: RowGroup, key: str, span: tuple[int, int]) -> bool:
    """Return False if the footer of a row group shows that no value of `key` is in the span, both ends included."""
    found = group.spans.get(key)
    return found is None or (found[0] <= span[1] and found[1] >= span[0])


@dataclass(frozen=True)
class GroupPart:
    """A part of a ledger of members, or another file about a group. `groups`: row groups, with spans of `partition`
    and `seq` where the footer tells; their topic is None if it does not tell."""

    path: str
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True)
class PlaceSet:
    """Partitions of one unit. One that no unit of the group knows from footers belongs to the unit with `others`."""

    own: frozenset[TopicPartition]
    known: frozenset[TopicPartition]
    others: bool

    def __contains__(self, place: TopicPartition) -> bool:
        return place in self.own or (self.others and place not in self.known)

    def may_have(self, group: RowGroup) -> bool:
        """Return False if the footer of a row group shows that it has none of these partitions."""
        span = group.spans.get("partition") if group.partition is None else (group.partition, group.partition)
        if group.topic is None or span is None or span[1] - span[0] >= WIDEST:
            return True
        return any(TopicPartition(group.topic, number) in self for number in range(span[0], span[1] + 1))


WIDEST = 10_000
"""Most partitions of a row group that are looked at one by one."""
ALL_PLACES = PlaceSet(frozenset(), frozenset(), others=True)


@dataclass(frozen=True)
class GroupSources:
    """What the audit knows of one group before it reads rows.

    `committed`: offsets at rest; None: no answer. `history`: node whose log of `__consumer_offsets` is a whole
    history; -1: none. `counted`: classes that can be counted.
    """

    target: AuditTarget
    group: str
    number: int
    """Position among the groups of the run, which names files."""
    counted: frozenset[str]
    topics: frozenset[str] = frozenset()
    committed_read: bool = False
    transactional: bool = False
    output_topic: str = ""
    stable_positions: bool = True
    """False if members may be told offsets that an ended transaction has just replaced."""
    consumer_protocol: bool = False
    assignment_epochs: bool = False
    committed: Mapping[TopicPartition, int] | None = None
    history: int = -1
    deliveries: tuple[GroupPart, ...] = ()
    commits: tuple[GroupPart, ...] = ()
    membership: tuple[GroupPart, ...] = ()
    log: tuple[GroupPart, ...] = ()
    output: tuple[GroupPart, ...] = ()
    finals: tuple[Piece, ...] = ()
    """Row groups of the final read of its input."""

    def final_rows(
        self, places: PlaceSet = ALL_PLACES, seqs: tuple[int, int] = EVERY_SEQ
    ) -> dict[TopicPartition, Rows]:
        """Return the records that are there, ascending by offset: producer, seq and offset by partition. `seqs`: least
        and greatest. Raises `UnreadablePart`, `UntrustedStatistics` and `Rejected`."""
        wanted = "committed" if self.committed_read else "final"
        found: dict[TopicPartition, list[Rows]] = defaultdict(list)
        for piece in self.finals:
            groups = tuple(
                group for group in piece.groups if places.may_have(group) and overlaps(group, "seq", seqs)
            )
            for stream, place, rows in read_piece(replace(piece, groups=groups), _NEEDED):
                if stream == wanted and place.topic in self.topics and place in places:
                    kept = rows.flags("intact")
                    if seqs != EVERY_SEQ:
                        kept = kept & (rows["seq"] >= seqs[0]) & (rows["seq"] <= seqs[1])
                    few = rows.select(_RECORD)
                    found[place].append(few if kept.all() else few.take(kept))
        return {place: _distinct_offsets(concat_rows(pieces, _RECORD)) for place, pieces in found.items()}

    def output_rows(self, columns: Mapping[str, str], seqs: tuple[int, int]) -> dict[TopicPartition, Rows]:
        """Return the output by partition. `columns`: numpy type of each. `seqs`: least and greatest. Raises as
        `final_rows` does."""
        found: dict[TopicPartition, list[Rows]] = defaultdict(list)
        for part in self.output:
            kept = tuple(group for group in part.groups if overlaps(group, "seq", seqs))
            for _, batch in read_part(replace(part, groups=kept), ["partition", *columns]):
                numbers = {name: to_numpy(batch[name]).astype(type_) for name, type_ in columns.items()}
                which = (numbers["seq"] >= seqs[0]) & (numbers["seq"] <= seqs[1])
                if not which.any():
                    continue
                numbers = {name: column[which] for name, column in numbers.items()}
                partition = to_numpy(batch["partition"])[which]
                for place, rows in split_by_place(
                    numbers, [self.output_topic], np.zeros(len(partition), np.int64), partition
                ):
                    found[place].append(rows)
        return {place: concat_rows(pieces, columns) for place, pieces in found.items()}

    def rows_by_place(
        self, parts: Sequence[GroupPart], columns: Mapping[str, str], places: PlaceSet
    ) -> dict[TopicPartition, Rows]:
        """Return rows of the group by partition, in the order of the parts. `columns`: numpy type of each. Raises
        `UnreadablePart`, `UntrustedStatistics` and `Rejected`."""
        found: dict[TopicPartition, list[Rows]] = defaultdict(list)
        for table in self.tables(parts, columns, places):
            topics, topic = distinct_strings(table["topic"])
            partition = to_numpy(table["partition"])
            numbers = {
                name: to_numpy(table[name]).astype(type_, copy=False) for name, type_ in columns.items()
            }
            for place, rows in split_by_place(numbers, topics, topic, partition):
                if place in places:
                    found[place].append(rows)
        return {place: concat_rows(pieces, columns) for place, pieces in found.items()}

    def tables(
        self, parts: Sequence[GroupPart], columns: Sequence[str] | Mapping[str, str], places: PlaceSet
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the group in row groups that may be of these partitions: `columns`, topic and partition.
        No batch is empty. Raises `UnreadablePart`, `UntrustedStatistics` and `Rejected`."""
        names = list(dict.fromkeys(["group", "topic", "partition", *columns]))
        for part in parts:
            for group, batch in read_part(part, names, places):
                words, code = distinct_strings(batch["group"])
                mine = code == (words.index(self.group) if self.group in words else -1)
                if not mine.any():
                    continue
                kept = batch if mine.all() else pick(batch, mine)
                span, partition = group.spans.get("partition"), to_numpy(kept["partition"])
                topics, topic = distinct_strings(kept["topic"])
                if span and (partition.min() < span[0] or partition.max() > span[1]):
                    raise UntrustedStatistics(part.path)
                if group.topic is not None and any(
                    word != group.topic and (topic == number).any() for number, word in enumerate(topics)
                ):
                    raise UntrustedStatistics(part.path)
                yield kept


def read_part(
    part: GroupPart, names: Sequence[str], places: PlaceSet = ALL_PLACES
) -> Iterator[tuple[RowGroup, pa.RecordBatch]]:
    """Yield row groups that may be of these partitions, each with its rows as one batch that is not empty. Texts are
    dictionaries. Raises `UnreadablePart`, and `Rejected` for a null."""
    wanted = [group for group in part.groups if group.rows and places.may_have(group)]
    if not wanted:
        return
    texts = [name for name in names if name in _TEXTS]
    try:
        with storage.open_parquet(part.path, read_dictionary=texts, pre_buffer=False) as file:
            for group in wanted:
                table = file.read_row_group(group.number, columns=list(names), use_threads=False)
                for name in table.column_names:
                    if table[name].null_count:
                        raise Rejected(f"{part.path}: column {name} has a null")
                (batch,) = table.unify_dictionaries().combine_chunks().to_batches()
                yield group, batch
    except (OSError, KeyError, pa.ArrowException) as error:
        raise UnreadablePart(part.path, describe_unreadable(error)) from error


def pick(batch: pa.RecordBatch, which: Bools) -> pa.RecordBatch:
    """Return the rows where `which` is True."""
    return batch.filter(pa.Array.from_buffers(
        pa.bool_(), len(which), [None, pa.py_buffer(np.packbits(which, bitorder="little"))]
    ))  # fmt: skip


_TEXTS = frozenset({"group", "topic", "event", "member_id", "why", "record", "error"})
_RECORD = {"offset": "i8", "producer": "i4", "seq": "i8"}
_NEEDED = frozenset({*_RECORD, "intact"})


def _distinct_offsets(rows: Rows) -> Rows:
    """Return one row per offset, ascending. A reader that starts again reads the same records."""
    rows = rows.sorted_by("offset")
    offset = rows["offset"]
    if len(rows) < 2 or bool((offset[1:] > offset[:-1]).all()):
        return rows
    return rows.take(np.concatenate(([True], offset[1:] != offset[:-1])))


@dataclass(frozen=True)
class Places:
    """Positions of offsets among those of records, ascending and distinct."""

    offset: Ints

    def find(self, offset: Ints) -> tuple[Ints, Bools]:
        """Return for each offset its position, and whether it is there. Where it is not, the position is any."""
        length = len(self.offset)
        if not length:
            return np.zeros(len(offset), np.int64), np.zeros(len(offset), np.bool_)
        first = int(self.offset[0])
        if int(self.offset[-1]) - first + 1 == length:  # no gap
            at = offset - first
            there: Bools = (at >= 0) & (at < length)
            return np.where(there, at, 0), there
        at = np.minimum(np.searchsorted(self.offset, offset), length - 1).astype(np.int64)
        same: Bools = self.offset[at] == offset
        return at, same


@dataclass(frozen=True)
class Event:
    """A row of the membership ledger. `position`: as the column `offset`."""

    member: int
    event: str
    member_id: str
    place: TopicPartition
    from_offset: int
    position: int
    t_ns: int


_EVENT = ("member", "event", "member_id", "from_offset", "offset", "t_ns")


def read_events(sources: GroupSources, places: PlaceSet) -> list[Event]:
    """Return the membership rows of these partitions and those without a partition, by time. Raises as
    `GroupSources.tables` does."""
    found: list[Event] = []
    for batch in sources.tables(sources.membership, _EVENT, ALL_PLACES):
        columns = [batch[name].to_pylist() for name in ("topic", "partition", *_EVENT)]
        for topic, partition, member, event, member_id, from_offset, offset, t_ns in zip(
            *columns, strict=True
        ):
            place = TopicPartition(topic, partition)
            if partition < 0 or place in places:
                found.append(Event(member, event, member_id, place, from_offset, offset, t_ns))
    return sorted(found, key=lambda event: event.t_ns)


def number_words(words: Sequence[str], wanted: str, code: Array) -> Bools:
    """Return True for each row whose text is `wanted`. `words`, `code`: of `distinct_strings`."""
    result: Bools = code == (words.index(wanted) if wanted in words else -1)
    return result
