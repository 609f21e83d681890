"""Recovery: after each fault of a run how long it took until what, a lane for each partition, and over repeats how the
times are spread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.quantities.answer import measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Argument, Ask, Quantity, Value, Witness
from ackproof.quantities.vocabulary import VOCABULARY
from ackproof.repeats.intervals import spread_of
from ackproof.rundir.bounds import WHOLE, Unit
from ackproof_reports.answer import by_experiment
from ackproof_reports.course import Fault
from ackproof_reports.facts import CaseFacts
from ackproof_reports.lanes import Lanes, lanes_of
from ackproof_reports.loading import BatchView
from ackproof_reports.over_repeats import Picture, Row, picture, row_of

MAX_FAULTS: Final = 8
"""Of more, such as a storm draws, the first are told."""
PHASES: Final = tuple(
    one
    for one in VOCABULARY.values()
    if one.name == "time_to" and one.required == (Argument.FAULT,) and one.needs is not Witness.METRICS
)


@dataclass(frozen=True)
class Phase:
    """How long after a fault something was seen."""

    name: str
    value: Value

    @property
    def text(self) -> str:
        """In words."""
        return self.value.text(Unit.SECONDS)


@dataclass(frozen=True)
class After:
    """What came after one fault."""

    fault: Fault
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class Recovery:
    """Of one run."""

    after: tuple[After, ...]
    lanes: Lanes | None
    left_out: int
    """So many further faults are not told."""


def evidence_of_run(fact: CaseFacts) -> Evidence | None:
    """What quantities are measured from; None where the judge looked at nothing, or the run's files cannot be read."""
    if fact.case.case is None or (fact.case.judged is not None and not fact.case.judged.classes):
        return None
    try:
        return Evidence.of_run(fact.case.run)
    except BadInput:
        return None  # what cannot be read is named in what is absent


def recovery_of(fact: CaseFacts, evidence: Evidence | None) -> Recovery | None:
    """Of a run that had faults which were confirmed; None of others."""
    struck = [one for one in fact.course.faults if one.confirmed is not None and one.kind != "storm"]
    if evidence is None or not struck:
        return None
    told = struck[:MAX_FAULTS]
    begins = [*(one.asked or 0 for one in struck[1:]), math.inf]
    return Recovery(
        tuple(
            After(one, tuple(_phases(evidence, one.number, (begin - (one.asked or 0)) / 1e9)))
            for one, begin in zip(told, begins, strict=False)
        ),
        lanes_of(fact, struck),
        max(0, len(struck) - MAX_FAULTS),
    )


def _phases(evidence: Evidence, fault: int, next_s: float) -> Iterator[Phase]:
    """`next_s`: how long after it the next fault was asked for. A controller that was elected behind that was not for
    this one's sake."""
    for quantity in PHASES:
        value = measured(evidence, Ask(quantity, fault=fault), WHOLE)
        if quantity.needs is not Witness.QUORUM or (value.known and value.high < next_s):
            yield Phase(quantity.variant, value)


# -- over repeats ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """One time over the repeats of each case."""

    title: str
    rows: tuple[Row, ...]
    picture: Picture | None


def spreads(batch: BatchView, told: Sequence[tuple[CaseFacts, Recovery | None]]) -> list[Spread]:
    """Of the cases that ran more than once, each time after each fault that is known of some repeat."""
    by_index = {fact.case.index: (fact, recovery) for fact, recovery in told}
    found = []
    for name, cases in by_experiment(batch).items():
        runs = [by_index[case.index] for case in cases]
        whose = f"{name}: " if len(by_experiment(batch)) > 1 else ""
        found += [Spread(whose + one.title, one.rows, one.picture) for one in _of_experiment(runs)]
    return found


def _of_experiment(runs: Sequence[tuple[CaseFacts, Recovery | None]]) -> Iterator[Spread]:
    cells: dict[str, list[tuple[CaseFacts, Recovery | None]]] = {}
    for fact, recovery in runs:
        cells.setdefault(fact.case.entry.cell_name, []).append((fact, recovery))
    cells = {name: group for name, group in cells.items() if len(group) > 1}
    faults = {
        after.fault.number: after.fault
        for group in cells.values()
        for _, one in group
        for after in (one.after if one else ())
    }
    for number, fault in sorted(faults.items()):
        for quantity in PHASES:
            values = {
                cell: [_value(*run, quantity, number) for run in group] for cell, group in cells.items()
            }
            if any(value.known for group in values.values() for value in group):
                yield _spread(f"After fault {fault.name}, {fault.title}: {quantity.variant}", values)


def _value(fact: CaseFacts, recovery: Recovery | None, quantity: Quantity, number: int) -> Value:
    """What one repeat took; of a starved machine at most so long."""
    for after in recovery.after if recovery else ():
        for phase in after.phases:
            if (after.fault.number, phase.name) == (number, quantity.variant):
                starved = phase.value.known and fact.case.starved
                return Value(0.0, phase.value.high, phase.value.why) if starved else phase.value
    return Value.unknown("the fault was not confirmed")


def _spread(title: str, values: dict[str, list[Value]]) -> Spread:
    rows = tuple(row_of(cell, group, Unit.SECONDS) for cell, group in values.items())
    between = None
    if len(values) == 1 and (spread := spread_of(next(iter(values.values())))):
        median = spread.median
        between = (median.low, median.high) if 0 < median.low <= median.high < math.inf else None
    return Spread(title, rows, picture(values, Unit.SECONDS, between))
