"""What the page tells of single findings: the stories of lost records, and where the other copy of a duplicate is.

Both are looked up in the ledgers, all of a case at once, as long as the run's folder still has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from ackproof.base.errors import BadInput
from ackproof.rundir import storage
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.schema import CONSUMED
from ackproof_reports.one_record import RecordId, stories_of
from ackproof_reports.wording import one_line, visible

MOST_STORIES: Final = 2_000
"""Of one case; of what is beyond, the page gives the command that tells it."""
_PLACE: Final = ("topic", "partition", "offset")


def lost_stories(rows: pa.Table, run: CaseDir, most: int, absent: list[str]) -> dict[str, JsonValue] | None:
    """The stories of lost records among these findings, the first `most`: `lines` of text that they share, and `of`
    each record (`PRODUCER:SEQ`) its lines as [ms or null, number of the line]. None where there is none.
    """
    lost = rows.filter(pc.equal(rows.column("class"), Anomaly.LOST)).slice(0, min(most, MOST_STORIES))
    whom = [
        RecordId(producer, seq)
        for producer, seq in zip(
            *(lost.column(name).to_pylist() for name in ("producer", "seq")), strict=True
        )
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
        at = lines.setdefault(visible(one_line(text, 300)), len(lines))
        return [None if t_ns is None else t_ns // 1_000_000, at]

    of: dict[str, JsonValue] = {}
    for who, story in stories.items():
        told = [line(moment.t_ns, moment.text) for moment in story.moments]
        of[f"{who.producer}:{who.seq}"] = [*told, *(line(None, fact) for fact in story.facts)]
    return {"lines": [*lines], "of": of} if of else None


def with_copies(rows: pa.Table, run: CaseDir, absent: list[str]) -> pa.Table:
    """Findings with a column `other`: of a duplicate the offset of the other copy in its partition, else -1.

    One whose other copy is in another partition has that in its detail.
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
    """Number, record and place of these rows."""
    taken = rows.take(pa.array(which, pa.int64()))
    columns = (taken.column(name).to_pylist() for name in ("producer", "seq", *_PLACE))
    for row, producer, seq, *place in zip(which, *columns, strict=True):
        yield row, (producer, seq), (place[0], place[1], place[2])


def _copies(findings: pa.Table, files: list[str]) -> dict[tuple[int, int], set[_Where]]:
    """Where the final read found intact copies of the records of these findings."""
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
