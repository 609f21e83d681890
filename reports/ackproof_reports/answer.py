"""The headline of a report: the answer of each experiment in one sentence, from the verdicts, and what could not be
judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ackproof.rundir.anomalies import REMOVED, TABLE, Anomaly, count_text
from ackproof.rundir.anomaly_terms import RuledBy, Unit
from ackproof.rundir.outcome import Verdict, cases_text
from ackproof_reports.cells import Cell, Matrix, matrix_of, subject
from ackproof_reports.course import arrange, circumstances
from ackproof_reports.loading import BatchView, CaseView, State
from ackproof_reports.wording import joined, number, one_line, plural

_REASON: Final = 160
"""Greatest number of characters of a reason in a headline."""
_REASONS: Final = 3
"""Greatest number of reasons in a headline."""

_GONE: Final = tuple(
    row.name for row in TABLE.values() if row.ruled_by is RuledBy.LOSS and row.unit is not Unit.RECORD
)
"""Anomaly classes by which readers miss records although none of these counts as lost, such as `torn-transaction`."""


@dataclass(frozen=True)
class Clause:
    """One part of a headline, such as "acks=1 lost 12 records". `who`: its subject, the settings; '' if `what` has it.

    `what`: the verb and its object. `when`: the faults, '' to leave them out. `note`: a remark, with the punctuation
    before it. `tone`: good, bad, warn or plain.
    """

    who: str
    what: str
    tone: str
    when: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.who, self.what, self.when) if part) + self.note


@dataclass(frozen=True)
class Headline:
    """Answer of one experiment as a sentence: clauses about groups of settings, then about expectations over repeats
    that did not pass."""

    experiment: str
    clauses: tuple[Clause, ...]

    @property
    def text(self) -> str:
        """The sentence as plain text, with a full stop."""
        sentence = "; ".join(clause.text for clause in self.clauses) + "."
        return sentence if "=" in sentence.split(" ", 1)[0] else sentence[0].upper() + sentence[1:]


def by_experiment(batch: BatchView) -> dict[str, list[CaseView]]:
    """Return the cases of a batch by the name of their experiment, in the order of the batch. A case whose files name
    no experiment gets the name that all other cases share; if they share none, the name of the batch."""
    groups: dict[str, list[CaseView]] = {}
    known = {case.case.experiment for case in batch.cases if case.case}
    only = next(iter(known)) if len(known) == 1 else batch.name
    for case in batch.cases:
        name = case.entry.experiment or (case.case.experiment if case.case else only)
        groups.setdefault(name, []).append(case)
    return groups


def answers(batch: BatchView) -> list[Headline]:
    """Return the headline of each experiment; a batch has one experiment unless several files were given. For a
    batch without cases, the result is a single headline that says so."""
    groups = by_experiment(batch)
    if not groups:
        return [Headline(batch.name, (Clause("", "the batch has no case, so there is no answer", "warn"),))]
    return [
        Headline(name, (*_clauses(cases), *_over_repeats(batch, name, alone=len(groups) == 1)))
        for name, cases in groups.items()
    ]


def _over_repeats(batch: BatchView, name: str, *, alone: bool) -> Iterator[Clause]:
    for one in batch.file.over_repeats:
        if (not alone and one.experiment != name) or one.verdict is Verdict.PASS:
            continue
        failed = one.verdict is Verdict.FAIL
        what = f"over repeats, {one.title} {'does not hold' if failed else 'is not decided'}"
        yield Clause("", what, "bad" if failed else "warn", note=f": {one.seen}" if one.seen else "")


def _clauses(cases: Sequence[CaseView]) -> Iterator[Clause]:
    matrix = matrix_of(cases)
    kinds: dict[str, list[Cell]] = {}
    for cell in matrix.cells:
        kinds.setdefault(_kind(cell), []).append(cell)
    when = _when(cases)
    said = False
    for kind, make in (
        ("fail", _failed),
        ("lost", _lost),
        ("kept", _kept_clause),
        ("kept", _otherwise_gone),
        ("", _removed),
    ):
        for clause in make(kinds.get(kind, []) if kind else matrix.cells, matrix):
            # The circumstances are said once, with the first thing that happened under them.
            yield replace(clause, when="" if said else when)
            said = True
    yield from _inconclusive(kinds.get("inconclusive", []), matrix)
    for kind, singular in (
        ("uncounted", "passed, but its losses were not counted"),
        ("harness", "came to no verdict because the harness failed"),
        ("pending", "was not judged"),
    ):
        if cells := kinds.get(kind):
            what = singular
            if not _is_one(cells, matrix):
                what = singular.replace("was not", "were not").replace("its losses", "their losses")
            yield Clause(_who(cells, matrix), what, "warn")


def _inconclusive(cells: Sequence[Cell], matrix: Matrix) -> Iterator[Clause]:
    """Yield clauses about the inconclusive `cells` (combinations of settings) with the reasons: one clause for all
    cells with the same reasons. If there would be more than `_REASONS` clauses, yield a single one without reasons."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        reasons = tuple(dict.fromkeys(why for run in cell.runs for why in run.reasons))
        groups.setdefault(reasons, []).append(cell)
    if len(groups) > _REASONS:
        yield Clause(_who(cells, matrix), f"stayed inconclusive, for {len(groups)} different reasons", "warn")
        return
    for reasons, group in groups.items():
        why = one_line(reasons[0], _REASON) if reasons else ""
        more = f" (and {plural(len(reasons) - 1, 'more reason')})" if len(reasons) > 1 else ""
        if why and len(matrix.cells) == 1:
            yield Clause("inconclusive:", why, "warn", note=more)
        else:
            yield Clause(
                _who(group, matrix), "stayed inconclusive", "warn", note=f": {why}{more}" if why else ""
            )


def _kind(cell: Cell) -> str:
    states = cell.states
    if State.FAIL in states:
        return "fail"
    if cell.judged:
        return "lost" if any(cell.losses) else ("kept" if cell.losses else "uncounted")
    if State.INCONCLUSIVE in states:
        return "inconclusive"
    return "harness" if State.HARNESS_FAILED in states else "pending"


def _failed(cells: Sequence[Cell], matrix: Matrix) -> Iterator[Clause]:
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(_forbidden(cell)), []).append(cell)
    for classes, group in groups.items():
        who = _who(group, matrix)
        runs = [run for cell in group for run in cell.runs if run.state is State.FAIL]
        if not classes:
            reason = next((run.reasons[0] for run in runs if run.reasons), "the judge gave no reason")
            yield Clause(who, f"failed: {reason}", "bad")
            continue
        others = {name: sum(run.counts.get(name, 0) for run in runs) for name in classes}
        lost = others.pop(Anomaly.LOST, 0)
        told = [f"lost {count_text(lost, Anomaly.LOST)}"] if lost else []
        if others:
            told.append("showed " + joined([count_text(count, name) for name, count in others.items()]))
        yield Clause(who, joined(told), "bad", note=", which must not happen there")


def _forbidden(cell: Cell) -> list[str]:
    names = [
        judgement.anomaly
        for run in cell.runs
        if run.state is State.FAIL and run.judged
        for judgement in run.judged.classes
        if judgement.forbidden and judgement.count
    ]
    # Overwritten records are lost ones, told twice; the sentence says lost.
    return [name for name in dict.fromkeys(names) if not (name == "overwritten" and "lost" in names)]


def _lost(cells: Sequence[Cell], matrix: Matrix) -> Iterator[Clause]:
    if not cells:
        return
    # None of them failed: what was lost is what they may lose.
    note = ", as it may" if _is_one(cells, matrix) else ", as they may"
    what = f"lost {_lost_of_acked(cells)}" if len(matrix.cells) == 1 else "lost acknowledged records"
    yield Clause(_who(cells, matrix), what, "bad", note=note)


def _lost_of_acked(cells: Sequence[Cell]) -> str:
    runs = [run for cell in cells for run in cell.judged]
    acked = [run.audit.audited.acked if run.audit else run.counts.get("acked") for run in runs]
    lost = sum(run.lost or 0 for run in runs)
    if any(count is None for count in acked):
        return count_text(lost, Anomaly.LOST)
    return f"{number(lost)} of {count_text(sum(n for n in acked if n is not None), Anomaly.LOST)}"


def _kept_clause(cells: Sequence[Cell], matrix: Matrix) -> Iterator[Clause]:
    if not cells:
        return
    if len(cells) == len(matrix.cells) == 1:
        whose = "its" if _is_one(cells, matrix) else "their"
        yield Clause(_who(cells, matrix), f"lost none of {whose} acknowledged records", "good")
    elif len(cells) == len(matrix.cells):
        yield Clause(f"none of the {len(cells)} settings", "lost an acknowledged record", "good")
    elif any(_kind(cell) == "lost" or _forbidden(cell) for cell in matrix.cells):
        yield Clause(_who(cells, matrix), "lost none", "good")
    else:
        yield Clause(_who(cells, matrix), "lost no acknowledged record", "good")


def _otherwise_gone(cells: Sequence[Cell], matrix: Matrix) -> Iterator[Clause]:
    """Yield a clause for each group of cells whose readers miss records, although no acknowledged record is
    lost: for example half a transaction.
    """
    for group, told in _counted_alike(cells, _GONE):
        note = ", as it may" if _is_one(group, matrix) else ", as they may"
        yield Clause(_who(group, matrix), f"showed {told}", "bad", note=note)


def _removed(cells: Sequence[Cell], matrix: Matrix) -> Iterator[Clause]:
    """Yield a clause for each group of cells with the same kinds of removed records: by retention, compaction or an
    administrator. Such records are not lost."""
    for group, told in _counted_alike(cells, REMOVED):
        yield Clause(_who(group, matrix), f"had {told} removed, as was asked for", "plain")


def _counted_alike(cells: Sequence[Cell], classes: Sequence[str]) -> Iterator[tuple[list[Cell], str]]:
    """Group the cells by the `classes` of which they have findings, and yield (cells, text) for each group. The text
    has the counts of these classes over all judged repeats. Cells without such findings are left out."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        shown = tuple(name for name in classes if any(run.counts.get(name, 0) for run in cell.judged))
        if shown:
            groups.setdefault(shown, []).append(cell)
    for names, group in groups.items():
        runs = [run for cell in group for run in cell.judged]
        counts = [count_text(sum(run.counts.get(name, 0) for run in runs), name) for name in names]
        yield group, joined(counts)


def _who(cells: Sequence[Cell], matrix: Matrix) -> str:
    text = subject(cells, matrix)
    if text:
        return text
    if len(matrix.cells) > 1:
        return f"all {len(matrix.cells)} settings"
    return "the run" if len(cells[0].runs) == 1 else f"{len(cells[0].runs)} runs"


def _is_one(cells: Sequence[Cell], matrix: Matrix) -> bool:
    return len(cells) == 1 and (len(matrix.cells) > 1 or len(cells[0].runs) == 1)


def _when(cases: Sequence[CaseView]) -> str:
    """Return the confirmed faults as a clause, `when the leader was killed`. '' if no fault was confirmed, or if the
    faults differ between the cases with PASS or FAIL."""
    seen = {
        circumstances(arrange(case.events).faults) for case in cases if case.state in {State.PASS, State.FAIL}
    }
    phrase = seen.pop() if len(seen) == 1 else ""
    return f"when {phrase}" if phrase else ""


def tally(batch: BatchView) -> str:
    """Return the number of cases and of each state as text: `2 cases, 3 repeats of each: 5 PASS, 1
    INCONCLUSIVE`.
    """
    states = [case.state for case in batch.cases]
    parts = [f"{states.count(state)} {state.value}" for state in State if state in states]
    return ": ".join(filter(None, (cases_text(case.entry.title for case in batch.cases), ", ".join(parts))))
