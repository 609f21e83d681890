"""The story of one record: when it was sent, acknowledged and read, faults meanwhile, its removal, and what replaced
it.

Everything is read from the run's folder: both ledgers, the findings, the timeline, the replay, the replicas' logs.
Ledgers are read by predicate: one of ten million records takes four seconds, half of them to start.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.base.errors import BadInput
from ackproof.rundir.anomalies import LIVENESS, REMOVED, gravity
from ackproof.rundir.groups import DELIVERIES
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts
from ackproof.rundir.lifelines import Lifelines
from ackproof.rundir.model import ConformanceFile
from ackproof.rundir.narrator import tell_event
from ackproof.rundir.outcome import Outcome, ReadPhase
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import BATCHES
from ackproof.rundir.schema import CONSUMED, FINDINGS, GROUP_FINDINGS, PRODUCED
from ackproof.rundir.timeline import Event, EventKind, read_timeline
from ackproof_reports.group_story import GroupStories, read_matching
from ackproof_reports.mechanics import Row, ended, on_disk
from ackproof_reports.wording import number, one_line

BEFORE_NS: Final = 2_000_000_000
AFTER_NS: Final = 15_000_000_000
"""`BEFORE_NS`, `AFTER_NS`: events of the timeline are shown from this many ns before the record's own first event until
this many after its last. The final read of the record does not count as such an event."""
MOST_EVENTS: Final = 40
MOST_ROWS: Final = 200
"""Greatest number of ledger rows shown for one record; a damaged ledger may have any number."""
_RECORD: Final = re.compile(r"(\d+):(\d+)")
_PLACE: Final = re.compile(r"([^/@\s]+)/(\d+)@(\d+)")
_NEAR: Final = frozenset({EventKind.LEADER, EventKind.ISR})
_FINAL: Final = (ReadPhase.FINAL, ReadPhase.FINAL_COMMITTED)


class RecordId(NamedTuple):
    """Identity of a record: the number of its producer, and the number (`seq`, from 0) of that producer's attempt to
    send it. Both are numbers of ackproof's ledgers, not the producer id and sequence number of Kafka."""

    producer: int
    seq: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `PRODUCER:SEQ`, such as `0:412`. Raises `BadInput` for another form."""
        if (match := _RECORD.fullmatch(text)) is None:
            raise BadInput(f"{text!r} is no record; give PRODUCER:SEQ, such as 0:412")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"record {self.seq} of producer {self.producer}"


class Spot(NamedTuple):
    """A position in a log: an offset of a partition."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `TOPIC/PARTITION@OFFSET`, such as `orders/0@2387`. Raises `BadInput` for another form."""
        if (match := _PLACE.fullmatch(text)) is None:
            raise BadInput(f"{text!r} is no offset; give TOPIC/PARTITION@OFFSET, such as orders/0@2387")
        return cls(match[1], int(match[2]), int(match[3]))

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True)
class RecordStory:
    """All that the run's files say about one record. `moments`: (ns since the run's start, text), in order.
    `facts`: sentences without a time.
    """

    title: str
    moments: tuple[tuple[int, str], ...]
    facts: tuple[str, ...]

    def lines(self) -> list[str]:
        told = [f"{t_ns / 1e9:9.3f} s  {one_line(text, 200)}" for t_ns, text in self.moments]
        return [self.title, *told, *(f"  {one_line(fact, 900)}" for fact in self.facts)]


def first_found(run: CaseDir, anomaly: str | None) -> RecordId | Spot:
    """Return the record of the first finding of this class, in order of partition and offset; the offset if the record
    is unknown.

    `anomaly` None: the gravest class found, except liveness classes. Raises `BadInput` if there is no finding, or a
    file cannot be read."""
    classes = set(
        read_matching(run.finding_parts, FINDINGS, None, ["class"]).column("class").unique().to_pylist()
    )
    for name in [anomaly] if anomaly else sorted(classes - set(LIVENESS), key=gravity):
        if name in classes:
            rows = read_matching(run.finding_parts, FINDINGS, pc.field("class") == name)
            order = [(column, "ascending") for column in ("topic", "partition", "offset", "seq")]
            first: Row = rows.sort_by(order).slice(0, 1).to_pylist()[0]
            if first["producer"] >= 0 and first["seq"] >= 0:
                return RecordId(first["producer"], first["seq"])
            return Spot(first["topic"], first["partition"], first["offset"])
    found = f"; there are {', '.join(sorted(classes))}" if classes else ""
    what = f"of class {anomaly}" if anomaly else "to tell of"
    raise BadInput(f"{run.path}: no finding {what}{found}. Name a record: --record PRODUCER:SEQ")


def find_records(run: CaseDir, spot: Spot) -> list[RecordId]:
    """Return the records that were acknowledged at this offset, or that any reader or group member got there. At most
    `MOST_ROWS` rows of each ledger count. Raises `BadInput` if there are none, or a ledger cannot be read."""
    here = (pc.field("topic") == spot.topic) & (pc.field("partition") == spot.partition)
    here &= pc.field("offset") == spot.offset
    rows = [
        row
        for files, schema in (
            (parts(run.produced), PRODUCED),
            (parts(run.consumed), CONSUMED),
            (parts(run.deliveries), DELIVERIES),
        )
        for row in read_matching(files, schema, here).slice(0, MOST_ROWS).to_pylist()
    ]
    found = dict.fromkeys(RecordId(row["producer"], row["seq"]) for row in rows if row["producer"] >= 0)
    if not found:
        raise BadInput(f"{run.path}: no ledger names a record at {spot}")
    return list(found)


def story_of(run: CaseDir, who: RecordId) -> RecordStory:
    """Return the story of a record. Raises `BadInput` if neither a producer's nor a reader's ledger has it, or if a
    file cannot be read."""
    if (story := stories_of(run, [who]).get(who)) is None:
        raise BadInput(f"{run.path}: no ledger knows {who}")
    return story


def stories_of(run: CaseDir, whom: Sequence[RecordId]) -> dict[RecordId, RecordStory]:
    """Return the story of each of these records. A record that neither a producer's nor a reader's ledger has is left
    out. Files are read for all records together. Raises `BadInput` if a file cannot be read."""
    known = _read_rows(run, whom)
    return {who: _story(run, known, who) for who in whom if known.attempts[who] or known.reads[who]}


@dataclass(frozen=True)
class _Known:
    """Rows about the requested records, read from all files of the run at once.

    By record: `attempts` (produced ledger), `reads` (consumed ledger) and `classes` (findings). `holders`: rows of the
    final read at each offset at which such a record was acknowledged or read. `batches`: record batches in the
    replicas' logs, by partition; None if the logs were not read. `replay`: `conformance.json`; None without it.
    """

    attempts: dict[RecordId, list[Row]]
    reads: dict[RecordId, list[Row]]
    classes: dict[RecordId, list[Row]]
    holders: dict[Spot, list[Row]]
    batches: dict[TopicPartition, list[Row]] | None
    events: tuple[Event, ...]
    replay: ConformanceFile | None
    groups: GroupStories


def _read_rows(run: CaseDir, whom: Sequence[RecordId]) -> _Known:
    which = _among("producer", {who.producer for who in whom}) & _among("seq", {who.seq for who in whom})
    attempts = _by_record(whom, read_matching(parts(run.produced), PRODUCED, which))
    reads = _by_record(whom, read_matching(parts(run.consumed), CONSUMED, which))
    spots = {spot for who in whom for spot in _spots(attempts[who], reads[who])}
    there = (
        _among("topic", {spot.topic for spot in spots})
        & _among("partition", {spot.partition for spot in spots})
        & _among("offset", {spot.offset for spot in spots})
        & _among("phase", {int(phase) for phase in _FINAL})
    )
    holders: dict[Spot, list[Row]] = {spot: [] for spot in spots}
    for row in read_matching(parts(run.consumed), CONSUMED, there).to_pylist() if spots else ():
        holders.get(Spot(row["topic"], row["partition"], row["offset"]), []).append(row)
    events = tuple(read_timeline(run.timeline)[0])
    return _Known(
        attempts=attempts,
        reads=reads,
        classes=_by_record(whom, read_matching(run.finding_parts, GROUP_FINDINGS, which)),
        holders=holders,
        batches=_batches(run, spots) if run.replica_batches.exists() else None,
        events=events,
        replay=ConformanceFile.load(run.conformance_json) if run.conformance_json.exists() else None,
        groups=GroupStories(run, Lifelines.of_events(events), whom),
    )


def _among(column: str, values: Iterable[str | int]) -> pc.Expression:
    return pc.field(column).isin(list(values))


def _by_record(whom: Sequence[RecordId], table: pa.Table) -> dict[RecordId, list[Row]]:
    rows: dict[RecordId, list[Row]] = {who: [] for who in whom}
    for row in table.to_pylist():
        mine = rows.get(RecordId(row["producer"], row["seq"]))
        if mine is not None and len(mine) < MOST_ROWS:
            mine.append(row)
    return rows


def _batches(run: CaseDir, spots: Collection[Spot]) -> dict[TopicPartition, list[Row]]:
    """Return the record batches of each partition that may contain one of these offsets, and all later
    transaction markers.
    """
    if not spots:
        return {}
    offsets = [spot.offset for spot in spots]
    near = (
        _among("topic", {spot.topic for spot in spots})
        & ((pc.field("first_offset") <= max(offsets)) | pc.field("control"))
        & (pc.field("last_offset") >= min(offsets))
    )
    found: dict[TopicPartition, list[Row]] = {}
    for row in read_matching([run.replica_batches], BATCHES, near).to_pylist():
        found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row)
    return found


def _story(run: CaseDir, known: _Known, who: RecordId) -> RecordStory:
    attempts, reads = known.attempts[who], known.reads[who]
    places = dict.fromkeys(TopicPartition(row["topic"], row["partition"]) for row in (*attempts, *reads))
    in_groups = list(known.groups.moments(who))
    moments = [*_sent(attempts), *_read(reads), *in_groups]
    live = [row for row in reads if row["phase"] not in _FINAL]
    early = [t_ns for t_ns, _ in (*_sent(attempts), *_read(live), *in_groups)]
    begin, end = min(early, default=0) - BEFORE_NS, max(early, default=0) + AFTER_NS
    events = [event for event in known.events if begin <= event.t_ns <= end and _near(event, places)]
    told = [*moments, *((event.t_ns, tell_event(event)) for event in events[:MOST_EVENTS])]
    facts = list(_facts(run, known, who))
    if len(events) > MOST_EVENTS:
        facts.append(f"{len(events) - MOST_EVENTS} later events of its partition are in the timeline")
    where = ", ".join(f"{topic}/{partition}" for topic, partition in places)
    return RecordStory(f"{who}, {where}", tuple(sorted(told, key=lambda moment: moment[0])), tuple(facts))


def _sent(attempts: Sequence[Row]) -> Iterator[tuple[int, str]]:
    for row in attempts:
        yield row["sent_ns"], f"sent by producer {row['producer']}"
        outcome = Outcome(row["outcome"])
        if outcome is Outcome.ACKED:
            where = f" at offset {row['offset']}" if row["offset"] >= 0 else ", without an offset (acks=0)"
            yield row["done_ns"], f"acknowledged{where}"
        elif row["done_ns"] >= 0:
            yield row["done_ns"], f"{outcome.name.lower()}: error {row['error']}"


def _read(reads: Sequence[Row]) -> Iterator[tuple[int, str]]:
    for row in reads:
        is_final = row["phase"] in _FINAL
        who = "the final read holds it" if is_final else f"handed to live reader {row['reader']}"
        flaw = "" if row["intact"] else ", damaged"
        place = f"{row['topic']}/{row['partition']} offset {row['offset']}"
        yield row["read_ns"], f"{who} at {place}, leader epoch {row['leader_epoch']}{flaw}"


def _near(event: Event, places: dict[TopicPartition, None]) -> bool:
    """Return True if an event is about one of these partitions, about any fault, or the start or death of any
    node.
    """
    if event.kind in _NEAR:
        return (event.topic, event.partition) in places
    return event.fault is not None or event.kind in {EventKind.NODE_DIED, EventKind.NODE_STARTED}


def _facts(run: CaseDir, known: _Known, who: RecordId) -> Iterator[str]:
    attempts, reads = known.attempts[who], known.reads[who]
    if not attempts:
        yield "no producer's ledger knows it"
    if any(row["done_ns"] < 0 for row in attempts):
        yield "no report ever came of it: indeterminate"
    held = any(row["phase"] in _FINAL for row in reads)
    if not held:
        yield "the final read does not hold it" if run.final_read.exists() else "there was no final read"
    for spot in _spots(attempts, reads):
        yield from _there_now(run, known.holders[spot], who, spot, held)
        if known.batches is not None:
            yield on_disk(known.batches, spot)
            yield from ended(known.batches, spot)
    yield from known.groups.facts(who, _spots(attempts, reads))
    classes = dict.fromkeys(_class_text(row) for row in known.classes[who])
    if run.audit_json.exists():
        counted = f"counts it as {', '.join(classes)}" if classes else "finds nothing wrong with it"
        yield f"the audit {counted}"
    removed = {row["detail"]: None for row in known.classes[who] if row["class"] in REMOVED}
    yield from (f"what removed it: {why}" for why in removed if why)
    if known.replay is not None and not held and not removed:
        yield from dict.fromkeys(_causes(known.replay, who, attempts, reads))


def _class_text(row: Row) -> str:
    """Return the class of a finding, for a group's finding with group and member: `lost-commit (group billing, g0)`."""
    member = f", g{row['member']}" if row["member"] is not None and row["member"] >= 0 else ""
    return f"{row['class']} (group {row['group']}{member})" if row["group"] else str(row["class"])


def _spots(attempts: Sequence[Row], reads: Sequence[Row]) -> list[Spot]:
    """Return the offsets at which the record was acknowledged or read, each once."""
    rows = [row for row in (*attempts, *reads) if row["offset"] >= 0]
    return list(dict.fromkeys(Spot(row["topic"], row["partition"], row["offset"]) for row in rows))


def _there_now(run: CaseDir, holders: Sequence[Row], who: RecordId, spot: Spot, held: bool) -> Iterator[str]:
    """Yield a sentence for each record other than `who` that the final read has at the offset `spot`. `holders`: rows
    of the final read at `spot`. `held`: True if the final read has the record `who` at any offset.

    If `holders` is empty and `held` is False, yield a sentence that no record is there. Without a final read, yield
    nothing.
    """
    others = dict.fromkeys((RecordId(row["producer"], row["seq"]), row["leader_epoch"]) for row in holders)
    for other, epoch in others:
        if other != who:
            yield f"at {spot} the final read holds {other}, leader epoch {epoch}"
    if not others and not held and run.final_read.exists():
        yield f"at {spot} the final read holds no record"


def _causes(
    replay: ConformanceFile, who: RecordId, attempts: Sequence[Row], reads: Sequence[Row]
) -> Iterator[str]:
    epochs = {row["leader_epoch"] for row in reads if row["leader_epoch"] >= 0}
    for spot in _spots(attempts, reads):
        for cut in replay.truncations:
            if (cut.topic, cut.partition) == spot[:2] and (
                cut.from_offset <= spot.offset < cut.to_offset and (not epochs or cut.old_epoch in epochs)
            ):
                yield (
                    f"what took it: offsets {number(cut.from_offset)} to {number(cut.to_offset - 1)} of epoch "
                    f"{cut.old_epoch} were truncated: {cut.why}"
                )
    for one in replay.intervals:
        if one.producer == who.producer and one.first_seq <= who.seq <= one.last_seq:
            yield f"what took it: {one.why or 'no observed step explains it'}"
    for open_ in replay.unexplained:
        if (open_.producer, open_.seq) == who:
            yield f"not explained: {open_.why}"
    for row in attempts:
        for gone in replay.deletions:
            same = (gone.topic, gone.partition) == (row["topic"], row["partition"])
            if same and gone.created_ns <= row["done_ns"] <= gone.removed_ns:
                yield f"what took it: its topic was deleted (incarnation {gone.incarnation}): {gone.why}"
