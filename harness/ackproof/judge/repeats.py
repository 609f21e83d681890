"""Expectations over repeats, compared with the runs of a batch.

PASS if the interval is wholly inside the demanded bounds, FAIL if it is wholly outside, else INCONCLUSIVE. A repeat
that came neither to PASS nor to FAIL, or lacks the number, makes the result INCONCLUSIVE and is named: leaving it out
would be a choice among the repeats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.experiment.backends import BACKENDS
from ackproof.experiment.spec import attached_topic
from ackproof.judge.starved import widen_if_starved
from ackproof.quantities.answer import measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Ask, Quantity, Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.repeats.decide import Decision, decide
from ackproof.repeats.demand import Demand, span_text, value_text
from ackproof.rundir.batch import BatchCase, BatchFile, OverRepeats, RepeatValue
from ackproof.rundir.bounds import Unit
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict

_VERDICTS: Final = {True: Verdict.PASS, False: Verdict.FAIL, None: Verdict.INCONCLUSIVE}
_NAMED: Final = 3
"""Limit of repeats without a value that a result names. Further ones are only counted."""


def judged(directory: BatchDir, batch: BatchFile) -> BatchFile:
    """Return the batch with the result of each of its expectations over repeats and of each claim. `directory`: the
    folder of the batch, with its runs. Writes nothing."""
    runs = _Runs(directory)
    told = {
        name: tuple(_judged(one, batch.cases, runs) for one in every)
        for name, every in (("over_repeats", batch.over_repeats), ("claimed", batch.claimed))
    }
    return batch.model_copy(update=told)


@dataclass
class _Runs:
    """Reader of quantities in the runs of a batch, whose folder is `directory`.

    `evidence`: the files of the run that was read last (`read`; None: no run yet). They are kept in memory, because the
    next quantity is mostly asked of the same run.
    """

    directory: BatchDir
    read: BatchCase | None = None
    evidence: Evidence | None = None

    def value(self, entry: BatchCase, ask: Ask, demand: Demand) -> Value:
        run = CaseDir(self.directory.path / entry.run)
        try:
            if self.evidence is None or self.read is not entry:
                if (why := no_number(entry, run)) is not None:
                    return Value.unknown(why)
                self.evidence, self.read = Evidence.of_run(run), entry
            value = measured(self.evidence, with_run_topic(ask, run), demand.window)
        except BadInput as error:
            return Value.unknown(str(error))
        return discount_starved(entry, ask.quantity, value)


def no_number(entry: BatchCase, run: CaseDir) -> str | None:
    """Return why the quantities of a repeat do not count; None if they do. They do not count if its verdict is neither
    PASS nor FAIL, or if its folder holds another run. Raises `BadInput` without a readable case."""
    if entry.verdict not in (Verdict.PASS, Verdict.FAIL):
        why = entry.error or next(iter(entry.reasons), "no reason recorded")
        return f"{entry.verdict or 'it came to no verdict'}: {why}"
    there = CaseFile.load(run.case_json).case
    return None if there == entry.case else f"{entry.run} holds the run of {there}"


def with_run_topic(ask: Ask, run: CaseDir) -> Ask:
    """Return the question with the topic name that the run used: on a foreign cluster a run's topics have
    other names than in the file.

    Raises `BadInput` without a readable case.
    """
    if ask.place is None:
        return ask
    file = CaseFile.load(run.case_json)
    if not BACKENDS[file.backend].foreign:
        return ask
    return replace(ask, place=ask.place._replace(topic=attached_topic(ask.place.topic, file.run_id)))


def discount_starved(entry: BatchCase, quantity: Quantity, value: Value) -> Value:
    """Return a repeat's `value` of a quantity, with wider bounds if its machine was too busy and that can have changed
    the value."""
    return widen_if_starved(quantity, value) if entry.starved else value


def _judged(expected: OverRepeats, cases: Sequence[BatchCase], runs: _Runs) -> OverRepeats:
    ask = parse_ask(expected.quantity)
    demand = Demand.parse(expected.demand, ask.quantity.unit)
    of_cell = [
        [
            entry
            for entry in cases
            if (entry.experiment, entry.cell_name) == (expected.experiment, cell)
            and entry.repeat <= expected.repeats
        ]
        for cell in expected.cells
    ]
    groups = [[runs.value(entry, ask, demand) for entry in entries] for entries in of_cell]
    values = tuple(
        tuple(map(_repeat_value, entries, group)) for entries, group in zip(of_cell, groups, strict=True)
    )
    timings = dict.fromkeys(entry.timing for entries in of_cell for entry in entries if entry.timing)
    measured_under = ", ".join(timings) if ask.quantity.unit is Unit.SECONDS else ""
    cleared = {"seen": "", "interval": "", "low": None, "high": None, "enough": None}
    fresh = expected.model_copy(update={"values": values, "timing": measured_under, **cleared})
    if why := "; ".join(_lacking(expected, values, measure=demand.is_bare)):
        return fresh.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "why": why})
    found = decide(demand, groups, expected.confidence)
    return fresh.model_copy(update=_result(found, demand))


def _repeat_value(entry: BatchCase, value: Value) -> RepeatValue:
    return RepeatValue(
        case=entry.case,
        low=value.low if value.is_known else None,
        high=value.high if math.isfinite(value.high) else None,
        why=value.why,
        never=value.never,
        starved=value.starved,
    )


def _lacking(
    expected: OverRepeats, values: Sequence[Sequence[RepeatValue]], *, measure: bool
) -> Iterator[str]:
    """Yield, in words, each reason why the result is unknown: repeats that are missing or have no number.

    `values`: for each cell (combination of settings) of `expected.cells`, the values of its repeats. `measure`: True if
    the expectation has no bound and only measures the quantity. Then a value from a starved machine counts as no
    number.
    """
    for cell, group in zip(expected.cells, values, strict=True):
        if len(group) < expected.repeats:
            yield f"of {expected.repeats} repeats of {cell} {len(group)} are there"
    unknown = [one for group in values for one in group if one.low is None or (measure and one.starved)]
    yield from (f"{one.case} has no number: {one.why}" for one in unknown[:_NAMED])
    if len(unknown) > _NAMED:
        yield f"and {len(unknown) - _NAMED} more have none"


def _result(found: Decision, demand: Demand) -> dict[str, object]:
    estimate = found.estimate
    why = ""
    if found.holds is None:
        likely = (
            f"about {found.enough} repeats of each would likely decide it"
            if found.enough is not None
            else "no number of repeats would likely decide it"
        )
        what = "what these repeats came to" if demand.statistic.is_max else "the interval"
        where = "is open" if demand.is_bare else "is on both sides"
        why = f"{what} {where}" + ("" if demand.statistic.is_max else f"; {likely}")
    return {
        "verdict": _VERDICTS[found.holds],
        "why": why,
        "seen": value_text(estimate.seen, demand.unit, demand.how),
        "interval": ""
        if demand.statistic.is_max
        else span_text(estimate.low, estimate.high, demand.unit, demand.how),
        "low": estimate.low if math.isfinite(estimate.low) else None,
        "high": estimate.high if math.isfinite(estimate.high) else None,
        "enough": found.enough,
    }
