"""Plain values for the page's templates, arranged for display. All text in them is untrusted; templates escape it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pydantic import JsonValue

from ackproof_reports.answer import by_experiment
from ackproof_reports.cells import Cell, Grid, Matrix, matrix_of
from ackproof_reports.embedding import Block, RunFile, files_of
from ackproof_reports.expectations import Expectation, expectations
from ackproof_reports.facts import CaseFacts
from ackproof_reports.findings import SPANS, Group, Line, first_lines
from ackproof_reports.loading import BatchView, State
from ackproof_reports.mechanics import Mechanism, mechanics_of
from ackproof_reports.recovery import Alerts, Recovery, alerts_of, evidence_of_run, recovery_of
from ackproof_reports.reference import Reference, Story, reference_of, stories_of
from ackproof_reports.series import Sparkline, peak_rate, sparkline
from ackproof_reports.stories import Causes, causes_of
from ackproof_reports.wording import duration, number_range, one_line, visible

MAX_RANGES: Final = 200
FIRST_ROWS: Final = 25
"""Number of lines of findings in the HTML itself, which need no script and appear in print."""
MAX_SETTINGS_TEXT: Final = 40_000
MAX_MAPS: Final = 24
MAX_REASON: Final = 160
"""Greatest number of characters of a reason in a cell of the matrix."""
MAP_COLUMNS: Final = SPANS


@dataclass(frozen=True)
class CellFacts:
    """A cell of the matrix with the facts of each of its repeats, from which the texts in the cell are made."""

    cell: Cell
    facts: tuple[CaseFacts, ...]

    @property
    def state(self) -> State:
        return self.cell.states[0]

    @property
    def judged(self) -> bool:
        """True if any repeat ended with PASS or FAIL. Otherwise the counts carry no verdict."""
        return bool(self.cell.judged)

    @property
    def why(self) -> str:
        return next((one_line(run.reasons[0], MAX_REASON) for run in self.cell.runs if run.reasons), "")

    @property
    def loses(self) -> bool:
        return any(fact.count("lost") for fact in self.facts)

    @property
    def lost_share(self) -> float | None:
        """Share of acknowledged records that were lost, 0 … 1, over all repeats that counted lost and acknowledged
        records; None without acknowledged records."""
        pairs = [(fact.count("lost"), fact.count("acked")) for fact in self.facts]
        lost = sum(n for n, of in pairs if n is not None and of)
        acked = sum(of for n, of in pairs if n is not None and of)
        return lost / acked if acked else None

    def number(self, name: str) -> str:
        """Return a count of the audit, such as `lost`, over the repeats as text: one number, or the smallest
        and the largest. `ABSENT` if no repeat counted it.
        """
        return number_range([n for fact in self.facts if (n := fact.count(name)) is not None])

    @property
    def gap(self) -> str:
        """Longest time between two acks of one partition, over all repeats, as text; `ABSENT` if no repeat has it."""
        known = [fact for fact in self.facts if fact.gap_ms is not None]
        return max(known, key=lambda fact: fact.gap_ms or 0).gap if known else duration(None)


@dataclass(frozen=True)
class ExperimentView:
    """One experiment of the batch: its matrix of cases and its expectations. `cells`: facts by the `id()` of
    each cell; `facts_of` looks them up.
    """

    name: str
    matrix: Matrix
    cells: dict[int, CellFacts]
    expectations: tuple[Expectation, ...]

    def facts_of(self, cell: Cell | None) -> CellFacts | None:
        return None if cell is None else self.cells[id(cell)]

    def caption(self, grid: Grid) -> str:
        """Return the caption of a table: the names of its axes (`acks × brokers`), and the fixed settings."""
        axes = " × ".join(axis.name for axis in (grid.rows, grid.columns) if axis)
        fixed = ", ".join(f"{name}={value}" for name, value in grid.fixed)
        return f"{axes}, {fixed}" if fixed and axes else axes or fixed


def experiments(batch: BatchView, facts: Sequence[CaseFacts]) -> list[ExperimentView]:
    """Return a view of each experiment of a batch, in the order of the batch. `facts`: the facts of all cases."""
    by_index = {fact.case.index: fact for fact in facts}
    views = []
    for name, cases in by_experiment(batch).items():
        matrix = matrix_of(cases)
        cells = {id(c): CellFacts(c, tuple(by_index[run.index] for run in c.runs)) for c in matrix.cells}
        views.append(ExperimentView(name, matrix, cells, tuple(expectations(cases))))
    return views


@dataclass(frozen=True)
class LogMap:
    """A bar for one partition's log that shows the lost offsets. All x are in per cent of the bar.

    The bar reaches from offset `start` to `last`, which includes lost records beyond the log's end. `end`: end offset
    of the final read, `end_x`: its x coordinate; both None if unknown. `parts`: (x, width) of the lost offsets.
    """

    lost: Group
    start: int
    end: int | None
    end_x: float | None
    last: int
    parts: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class CasePage:
    """The section of one case in the report. A field is None if the report has nothing of this kind to show.

    `reference`: comparison with the prediction and the simulated runs. `causes`: causes of its losses. `recovery`:
    times after its faults. `alerts`: how alerts on its nodes' metrics would have reacted. `files`: links to files of
    its run. `stories`: counterexamples of the prediction. `mechanics`: drawings of the truncations that removed
    acknowledged records. `maps`: bars that show the offsets of lost records. `spark`: acks per second. `picture`,
    `findings`, `told`: embedded data of the chart, of the findings, and of the histories of lost records.
    `first_lines`: lines of findings in the HTML itself.

    `ranges`: ranges of lost or vanished records: the group, first and last offset (or seq), and the number of findings.
    `ranges_total`: number of all ranges, also those that are not shown. `settings`: the resolved case as JSON, cut off
    if `settings_cut`. `environment`: (name, value) of machine and versions, without those that all cases share.
    `opened`: True if the section is unfolded at first."""

    facts: CaseFacts
    reference: Reference | None
    causes: Causes | None
    mechanics: tuple[Mechanism, ...]
    spark: Sparkline | None
    picture: Block | None
    findings: Block | None
    told: Block | None
    first_lines: tuple[Line, ...]
    maps: tuple[LogMap, ...]
    ranges: tuple[tuple[Group, int, int, int], ...]
    ranges_total: int
    settings: str
    settings_cut: bool
    environment: tuple[tuple[str, str], ...]
    opened: bool
    stories: tuple[Story, ...]
    recovery: Recovery | None
    alerts: Alerts | None
    files: tuple[RunFile, ...]


def case_pages(facts: Sequence[CaseFacts]) -> list[CasePage]:
    """Return the section of every case, in order. One section is unfolded at first: that of the first FAIL.

    Without a FAIL, it is the first case with lost records (preferably with known offsets); else the first with a chart;
    else the first case.
    """
    peak = max((peak_rate(fact.series) for fact in facts), default=0.0)
    first = min(facts, key=_interest).case.index if facts else None
    shared = dict(shared_environment(facts))
    return [
        _case_page(fact, peak, shared, fact.case.index == first, stories)
        for fact, stories in zip(facts, stories_of(facts), strict=True)
    ]


def _interest(fact: CaseFacts) -> int:
    """Return a case's rank; the section of the first case with the lowest rank is unfolded. 0: FAIL, 1: lost records at
    known offsets, 2: other losses, 3: any chart, 4: the rest."""
    if fact.case.state is State.FAIL:
        return 0
    if fact.case.lost:
        return 1 if any(group.producer is None for group in fact.lost_groups) else 2
    return 3 if fact.picture else 4


def _case_page(
    fact: CaseFacts, peak: float, shared: dict[str, str], opened: bool, stories: tuple[Story, ...]
) -> CasePage:
    groups, rows = (fact.findings.groups, fact.findings.rows) if fact.findings else ((), None)
    ranges = [(group, *stretch) for group in groups for stretch in group.ranges]
    settings = ""
    if fact.case.case is not None:
        settings = json.dumps(fact.case.case.resolved, indent=2, ensure_ascii=False)
    environment = fact.case.case.environment if fact.case.case else {}
    evidence, absent = evidence_of_run(fact), list(fact.absent)
    alerts = alerts_of(fact, evidence, absent)
    return CasePage(
        facts=replace(fact, absent=tuple(absent)),
        reference=reference_of(fact.case, fact.gap_ms),
        causes=causes_of(fact.case),
        mechanics=mechanics_of(fact.case, fact.lost_groups),
        spark=sparkline(fact.course, fact.series, peak),
        picture=Block.pack(fact.picture.data, plain=True) if fact.picture else None,
        findings=None if rows is None else _findings_block(rows),
        told=Block.pack(fact.stories) if fact.stories else None,
        first_lines=() if rows is None else first_lines(rows, FIRST_ROWS),
        maps=tuple(_maps(fact)),
        ranges=tuple(ranges[:MAX_RANGES]),
        ranges_total=sum(group.total for group in groups),
        settings=settings[:MAX_SETTINGS_TEXT],
        settings_cut=len(settings) > MAX_SETTINGS_TEXT,
        environment=tuple((name, value) for name, value in environment.items() if shared.get(name) != value),
        opened=opened,
        stories=stories,
        recovery=recovery_of(fact, evidence),
        alerts=alerts,
        files=files_of(fact.case.run.path, fact.case.entry.run),
    )


def shared_environment(facts: Sequence[CaseFacts]) -> tuple[tuple[str, str], ...]:
    """Return (name, value) pairs that the recorded environments of all cases have in common; empty if no case recorded
    one."""
    told = [fact.case.case.environment for fact in facts if fact.case.case and fact.case.case.environment]
    if not told:
        return ()
    return tuple((name, value) for name, value in told[0].items() if all(t.get(name) == value for t in told))


def _findings_block(rows: pa.Table) -> Block:
    table = rows.unify_dictionaries()
    data: dict[str, JsonValue] = {}
    for name in ("class", "topic", "detail"):
        column = table.column(name).combine_chunks().dictionary_encode()
        if not hasattr(column, "indices"):
            column = column.combine_chunks()
        data[name] = {
            "names": [visible(one_line(text)) for text in column.dictionary.to_pylist()],
            "at": column.indices.to_pylist(),
        }
    for name in ("partition", "producer", "offset", "seq", "other"):
        data[name] = table.column(name).to_pylist()
    return Block.pack(data)


def _maps(fact: CaseFacts) -> Iterator[LogMap]:
    reads = {(r.topic, r.partition): r for r in fact.case.final.partitions} if fact.case.final else {}
    for group in [group for group in fact.lost_groups if group.producer is None][:MAX_MAPS]:
        read = reads.get((group.topic, group.partition))
        start = min(read.start if read else group.first, group.first)
        last = max(read.end if read else 0, group.last + 1)
        yield LogMap(
            lost=group,
            start=start,
            end=read.end if read else None,
            end_x=round(100 * (read.end - start) / (last - start), 3) if read else None,
            last=last,
            parts=_columns(group.spans, start, last),
        )


def _columns(spans: Sequence[tuple[int, int]], start: int, last: int) -> tuple[tuple[float, float], ...]:
    """Return spans of offsets (first, last) as (x, width) in per cent of a bar from offset `start` to `last`. Each is
    at least two columns of the bar wide. Spans closer than one column are merged."""
    size = max(1, last - start)
    least = 100 / MAP_COLUMNS
    parts: list[tuple[float, float]] = []
    for first, final in sorted(spans):
        x = 100 * (first - start) / size
        width = max(2 * least, 100 * (final + 1 - first) / size)
        if parts and x - (parts[-1][0] + parts[-1][1]) < least:
            parts[-1] = (parts[-1][0], max(parts[-1][1], x + width - parts[-1][0]))
        else:
            parts.append((x, width))
    return tuple((round(min(x, 100 - width), 3), round(width, 3)) for x, width in parts)
