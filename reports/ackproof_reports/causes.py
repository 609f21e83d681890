"""What took the acknowledged records: the steps that the replay traced them to, heaviest first, and for each record.

Read from `conformance.json`. A loss without a cause is in the table too, marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir.model import ConformanceFile
from ackproof.rundir.schema import FINDINGS
from ackproof_reports.loading import CaseView
from ackproof_reports.wording import ABSENT, number, plural

MOST: Final = 50
"""Causes that are shown."""
_NOTHING: Final = "no observed step takes them"


@dataclass(frozen=True)
class Cause:
    """One step and what went with it. `unexplained`: no observed step takes them."""

    place: str
    what: str
    records: int
    why: str
    unexplained: bool = False


@dataclass(frozen=True)
class Causes:
    """Those of one case. `more`: how many there are beside those shown, and `more_records` what went with them."""

    shown: tuple[Cause, ...]
    more: int
    more_records: int
    notes: tuple[str, ...]


def causes_of(case: CaseView) -> Causes | None:
    """The causes; None where nothing was replayed or nothing acknowledged had to go."""
    replay = case.conformance
    if replay is None:
        return None
    if case.untold:
        replay = replay.model_copy(
            update={"classes": (), "intervals": ()}
        )  # what is not there was not looked for
    found = sorted(_all(replay), key=lambda cause: (not cause.unexplained, -cause.records))
    notes = tuple(_notes(replay))
    if not found and not notes:
        return None
    rest = found[MOST:]
    return Causes(
        shown=tuple(found[:MOST]),
        more=len(rest),
        more_records=sum(cause.records for cause in rest),
        notes=notes,
    )


def with_causes(rows: pa.Table, replay: ConformanceFile | None) -> pa.Table:
    """Findings (columns as in `FINDINGS`) whose detail says what took the record, where the audit left it empty.

    Of classes that the replay explains to the last record, and by a truncation that took what stood at that offset.
    """
    if replay is None:
        return rows
    explained = [one.anomaly for one in replay.classes if one.explained == one.count]
    # an offset of a topic that was deleted and made anew is several records'
    anew = {(gone.topic, gone.partition) for gone in replay.deletions}
    cuts = [cut for cut in replay.truncations if cut.acked and (cut.topic, cut.partition) not in anew]
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
            yield Cause(
                f"{one.topic}/{one.partition}", f"{seqs}, acknowledged without offsets", one.records, one.why
            )
    for of_class in replay.classes:
        if of_class.unexplained:
            example = next((one for one in replay.unexplained if one.anomaly == of_class.anomaly), None)
            place, what, why = ABSENT, of_class.anomaly, _NOTHING
            if example is not None:
                place, why = f"{example.topic}/{example.partition}", example.why
                where = (
                    f"offset {number(example.offset)}"
                    if example.offset >= 0
                    else f"seq {number(example.seq)}"
                )
                what += f", such as {where} of producer {example.producer}"
            yield Cause(place, what, of_class.unexplained, why, unexplained=True)


def _notes(replay: ConformanceFile) -> Iterator[str]:
    without_offsets = sum(of_class.by_interval for of_class in replay.classes)
    told = sum(one.records for one in replay.intervals if one.why)
    if without_offsets > told:
        yield f"{plural(without_offsets - told, 'more record')} acknowledged without offsets went in like ways"
    for of_class in replay.classes:
        if of_class.not_replayed:
            yield (
                f"{plural(of_class.not_replayed, 'record')} counted as {of_class.anomaly} "
                "are on partitions that were not replayed"
            )
