"""Explanations of findings for the report: causes of lost records (conformance.json), stories of single lost records,
and places of the other copies of duplicates (ledgers).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from ackproof.base.errors import BadInput
from ackproof.rundir import storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts
from ackproof.rundir.model import ConformanceFile
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.schema import CONSUMED, FINDINGS
from ackproof_reports.loading import CaseView
from ackproof_reports.one_record import RecordId, stories_of
from ackproof_reports.wording import ABSENT, number, one_line, plural, visible

MOST: Final = 50
"""Greatest number of causes shown for one case."""
_NOTHING: Final = "no observed step takes them"


@dataclass(frozen=True)
class Cause:
    """Cause of the loss of acknowledged records. `place`: the partition. `why`: the reason in words.

    `what`: the observed step that removed them, or, if `unexplained`, the records that no step explains, in words.
    `records`: number of records.
    """

    place: str
    what: str
    records: int
    why: str
    unexplained: bool = False


@dataclass(frozen=True)
class Causes:
    """Causes of the losses of one case, unexplained losses first. `more`: number of causes that are not shown.
    `more_records`: number of records lost by these. `notes`: sentences on further records, such as those on partitions
    that were not replayed."""

    shown: tuple[Cause, ...]
    more: int
    more_records: int
    notes: tuple[str, ...]


def causes_of(case: CaseView) -> Causes | None:
    """Return the causes of a case's losses; None if the run was not replayed, or if the replay names no removed record.
    If counts are hidden because the final read is incomplete (`CaseView.untold`), only truncations and deletions of
    topics are causes."""
    replay = case.conformance
    if replay is None:
        return None
    if case.untold:
        # The final read is incomplete: a record that it lacks is no proof of loss, so such classes are left out.
        replay = replay.model_copy(update={"classes": (), "intervals": ()})
    found = sorted(_all(replay), key=lambda cause: (not cause.unexplained, -cause.records))
    notes = tuple(_notes(replay))
    if not found and not notes:
        return None
    rest = found[MOST:]
    return Causes(tuple(found[:MOST]), len(rest), sum(cause.records for cause in rest), notes)


def with_causes(rows: pa.Table, replay: ConformanceFile | None) -> pa.Table:
    """Return the findings. If a finding has no detail and a truncation removed its record, the detail becomes the
    reason of the truncation.

    A finding is not changed if the replay does not explain all records of its class, or if its partition was deleted in
    the run. `replay` None: no finding is changed.
    """
    if replay is None:
        return rows
    explained = [one.anomaly for one in replay.classes if one.explained == one.count]
    # an offset of a topic that was deleted and created again is several records'
    created_again = {(gone.topic, gone.partition) for gone in replay.deletions}
    cuts = [
        cut for cut in replay.truncations if cut.acked and (cut.topic, cut.partition) not in created_again
    ]
    if not explained or not cuts:
        return rows
    column = {name: rows.column(name) for name in ("class", "topic", "partition", "offset", "detail")}
    open_rows = pc.and_(
        pc.is_in(column["class"], pa.array(explained)), pc.equal(column["detail"], pa.scalar(""))
    )
    offset = column["offset"].to_numpy()
    said: list[list[str]] = [[] for _ in range(rows.num_rows)]
    for cut in cuts:
        there = pc.and_(pc.equal(column["topic"], cut.topic), pc.equal(column["partition"], cut.partition))
        within = (offset >= cut.from_offset) & (offset < cut.to_offset)
        for row in np.flatnonzero(pc.and_(there, open_rows).to_numpy() & within).tolist():
            said[row].append(cut.why)
    detail = [
        " or ".join(dict.fromkeys(whys)) or text
        for whys, text in zip(said, column["detail"].to_pylist(), strict=True)
    ]
    return rows.set_column(rows.schema.get_field_index("detail"), FINDINGS.field("detail"), [detail])


def _all(replay: ConformanceFile) -> Iterator[Cause]:
    for cut in replay.truncations:
        if cut.acked:
            offsets = f"offsets {number(cut.from_offset)} to {number(cut.to_offset - 1)}"
            what = f"{offsets} of epoch {cut.old_epoch} truncated"
            yield Cause(f"{cut.topic}/{cut.partition}", what, cut.acked, cut.why)
    for gone in replay.deletions:
        if gone.acked:
            what = f"topic deleted, its incarnation {gone.incarnation} with it"
            yield Cause(f"{gone.topic}/{gone.partition}", what, gone.acked, gone.why)
    for one in replay.intervals:
        if one.why:
            seqs = f"seq {number(one.first_seq)} to {number(one.last_seq)} of producer {one.producer}"
            what = f"{seqs}, acknowledged without offsets"
            yield Cause(f"{one.topic}/{one.partition}", what, one.records, one.why)
    for of_class in replay.classes:
        if of_class.unexplained:
            example = next((one for one in replay.unexplained if one.anomaly == of_class.anomaly), None)
            place, what, why = ABSENT, of_class.anomaly, _NOTHING
            if example is not None:
                place, why = f"{example.topic}/{example.partition}", example.why
                where = f"seq {number(example.seq)}"
                if example.offset >= 0:
                    where = f"offset {number(example.offset)}"
                what += f", such as {where} of producer {example.producer}"
            yield Cause(place, what, of_class.unexplained, why, unexplained=True)


def _notes(replay: ConformanceFile) -> Iterator[str]:
    without_offsets = sum(of_class.by_interval for of_class in replay.classes)
    told = sum(one.records for one in replay.intervals if one.why)
    if without_offsets > told:
        yield f"{plural(without_offsets - told, 'more record')} acknowledged without offsets went in like ways"
    for of_class in replay.classes:
        if of_class.not_replayed:
            records = f"{plural(of_class.not_replayed, 'record')} counted as {of_class.anomaly}"
            yield f"{records} are on partitions that were not replayed, or whose files on disk a fault damaged"


MOST_STORIES: Final = 2_000
"""Greatest number of lost records of one case whose stories are embedded. For further records the page gives the
command that prints the story (`ackproof explain`).
"""
_TOLD: Final = [Anomaly.LOST, Anomaly.UNDELIVERED, Anomaly.SKIPPED_BY_RESET]
"""Classes whose findings have stories in the page; the same list is in stories.js."""
_PLACE: Final = ("topic", "partition", "offset")


def lost_stories(rows: pa.Table, run: CaseDir, most: int, absent: list[str]) -> dict[str, JsonValue] | None:
    """Return the stories (histories) of records that are lost, or that a group never processed. Only the first such
    findings count: at most `most`, and at most `MOST_STORIES`.

    The result has `lines`: the distinct lines of text. It also has `of`: for each record (`PRODUCER:SEQ`) its lines,
    each as [ms since the run's start or null, index in `lines`]. None without such findings, or if the ledgers are
    missing or cannot be read; in the last case `absent` gets a sentence."""
    told_of = pc.is_in(rows.column("class"), pa.array(_TOLD))
    lost = rows.filter(told_of).slice(0, min(most, MOST_STORIES))
    whom = [
        RecordId(producer, seq)
        for producer, seq in rows_of(lost, "producer", "seq")
        if producer >= 0 and seq >= 0
    ]
    if not whom or not parts(run.produced):
        return None
    try:
        stories = stories_of(run, whom)
    except BadInput as error:
        absent.append(f"the stories of lost records: {one_line(str(error))}")
        return None
    lines: dict[str, int] = {}

    def line(t_ns: int | None, text: str) -> JsonValue:
        at = lines.setdefault(visible(one_line(text, 900)), len(lines))
        return [None if t_ns is None else t_ns // 1_000_000, at]

    of: dict[str, JsonValue] = {}
    for who, story in stories.items():
        told = [line(*moment) for moment in story.moments]
        of[f"{who.producer}:{who.seq}"] = [*told, *(line(None, fact) for fact in story.facts)]
    return {"lines": [*lines], "of": of} if of else None


def with_copies(rows: pa.Table, run: CaseDir, absent: list[str]) -> pa.Table:
    """Return the findings with a column `other`: lowest offset of another intact copy of a duplicate in the same
    partition, else -1.

    If the other copies are in other partitions, the detail names the first. `absent` gets a sentence if the readers'
    ledgers cannot be read.
    """
    other = [-1] * rows.num_rows
    detail: list[str] = rows.column("detail").to_pylist()
    copies = pc.equal(rows.column("class"), Anomaly.DUPLICATE)
    if pc.any(copies).as_py() and (files := parts(run.consumed)):
        try:
            where = _copies(rows.filter(copies), [str(file) for file in files])
        except (OSError, pa.ArrowException) as error:
            absent.append(f"where the other copies of duplicates are: {one_line(str(error), 200)}")
            where = {}
        for row, who, place in _each(rows, pc.indices_nonzero(copies).to_pylist()):
            found = sorted(where.get(who, set()) - {place}, key=lambda one: (one[:2] != place[:2], one))
            if found and found[0][:2] == place[:2]:
                other[row] = found[0][2]
            elif found:
                detail[row] += "; the other copy is at {}/{} offset {}".format(*found[0])
    column = rows.schema.get_field_index("detail")
    told = rows.set_column(column, rows.schema.field("detail"), pa.array(detail, pa.string()))
    return told.append_column("other", pa.array(other, pa.int64()))


_Where = tuple[str, int, int]


def _each(rows: pa.Table, which: list[int]) -> Iterator[tuple[int, tuple[int, int], _Where]]:
    """Yield (index, (producer, seq), (topic, partition, offset)) for each of the rows with the indices `which`."""
    taken = rows.take(pa.array(which, pa.int64()))
    for row, (producer, seq, *place) in zip(which, rows_of(taken, "producer", "seq", *_PLACE), strict=True):
        yield row, (producer, seq), (place[0], place[1], place[2])


def _copies(findings: pa.Table, files: list[str]) -> dict[tuple[int, int], set[_Where]]:
    """Return, by record (producer, seq), the places (topic, partition, offset) of its intact copies in the final read.
    Only records in `findings` are looked up."""
    known = [findings.column(name).combine_chunks().unique() for name in ("producer", "seq")]
    phases = [int(ReadPhase.FINAL), int(ReadPhase.FINAL_COMMITTED)]
    read = storage.open_dataset(files, CONSUMED).to_table(
        columns=["producer", "seq", *_PLACE],
        filter=pc.field("phase").isin(phases)
        & pc.field("intact")
        & pc.field("producer").isin(known[0])
        & pc.field("seq").isin(known[1]),
    )
    where: dict[tuple[int, int], set[_Where]] = {}
    for _, who, place in _each(read, list(range(read.num_rows))):
        where.setdefault(who, set()).add(place)
    return where
