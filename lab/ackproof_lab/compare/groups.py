"""`Group`: the repeats of one case in one batch, with their verdicts, measured values and settings."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from ackproof.base.errors import BadInput
from ackproof.experiment.problems import path_text
from ackproof.judge.repeats import discount_starved, no_number
from ackproof.plan.cases import case_from_json
from ackproof.plan.paths import leaves, value_at
from ackproof.quantities.answer import measured, rows
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Ask, Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.repeats.demand import Contrast, Statistic, span_text, value_text
from ackproof.repeats.intervals import Estimate, estimate
from ackproof.rundir.batch import BatchCase, BatchFile
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.lab import ComparedSide
from ackproof.rundir.layout import CaseDir

Asked = tuple[str, str]
"""Name of a quantity, and name of the window of time in which it is measured ('' the whole run)."""
Measure = Callable[[Evidence], Iterable[tuple[Asked, Value]]]
"""Function that yields the measured quantities of one run, each with its value."""


def _every_quantity(evidence: Evidence) -> Iterable[tuple[Asked, Value]]:
    """Yield ((quantity, window), value) for every quantity of a run over all partitions together; quantity and window
    are texts. Also yield the quantities that the run's experiment expects, such as those of one partition, but no
    states (`isr`)."""
    told: set[Asked] = set()
    for row in rows(evidence, partitions=False):
        told.add((row.quantity, row.window))
        yield (row.quantity, row.window), Value(row.low, row.high, row.why)
    for asked, (ask, window) in expected_of(CaseFile.load(evidence.run.case_json)).items():
        if asked not in told and ask.quantity.state is None:
            yield asked, measured(evidence, ask, window)


def expected_of(file: CaseFile) -> dict[Asked, tuple[Ask, Window]]:
    """Return the quantities on which a case's experiment has expectations, per run or over repeats.

    Keys: the quantity and its window, as texts. Values: the same two, parsed. Empty if an older version wrote the
    case in a form that cannot be read.
    """
    found = {}
    with suppress(BadInput):
        for expect in case_from_json(file.resolved).experiment.expect:
            windows = [(name, bound.window) for name, bound in expect.bounds.items()]
            windows += [(name, demand.window) for name, demand in expect.over_repeats.items()]
            for name, window in windows:
                ask = parse_ask(name)
                found[str(ask), str(window)] = ask, window
    return found


@dataclass
class Group:
    """All repeats of one case in one batch. `entries`: the entry of each repeat in `batch.json`. `runs`: the absolute
    path of each repeat's run.

    `values`: per quantity that any repeat has, a value for each repeat that could be measured. `unknown`: an unknown
    value, with the reason, for each other repeat. `file`: `case.json` of the first repeat that has one."""

    entries: list[BatchCase] = field(default_factory=list)
    values: dict[Asked, list[Value]] = field(default_factory=dict)
    unknown: list[Value] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Names of the repeats that could be measured, in the order of `values`."""
    file: CaseFile | None = None
    runs: list[str] = field(default_factory=list)

    def values_of(self, asked: Asked) -> list[Value]:
        return [*self.values.get(asked, ()), *self.unknown]

    def add(self, name: str, told: Mapping[Asked, Value]) -> None:
        """Add a measured repeat, called `name`. `told`: its values by quantity and window.

        If only some repeats have a quantity, the other repeats get an unknown value for it, because omitting them would
        bias the mean.
        """
        for asked in {**self.values, **told}:
            mine = self.values.setdefault(asked, [_untold(one) for one in self.names])
            mine.append(told.get(asked, _untold(name)))
        self.names.append(name)

    @property
    def verdicts(self) -> str:
        """Return the verdicts with their counts: `19 PASS, 1 FAIL`."""
        count = Counter(str(one.verdict or "no verdict") for one in self.entries)
        return ", ".join(f"{number} {word}" for word, number in count.items())

    def counts(self, anomaly: str) -> tuple[int, ...]:
        """Return the counts of an anomaly class, one for each repeat that counted it."""
        return tuple(one.counts[anomaly] for one in self.entries if anomaly in one.counts)


def _untold(name: str) -> Value:
    return Value.unknown(f"{name} has no value")


def groups_of(directory: Path, file: BatchFile, measure: Measure = _every_quantity) -> dict[str, Group]:
    """Return the cases of a batch, each with all of its repeats measured. Keys: `experiment: settings`, or `settings`
    if the batch has one experiment. A repeat that cannot be measured counts as an unknown value, with the reason.

    `measure` yields the quantities of one run; by default each one over all partitions together, and those that its
    experiment expects.
    """
    groups: dict[str, Group] = {}
    for entry in file.cases:
        name = f"{entry.experiment}: {entry.cell_name}" if entry.experiment else entry.cell_name
        group = groups.setdefault(name, Group())
        group.entries.append(entry)
        group.runs.append(str((directory / entry.run).absolute()))
        _measure(group, entry, CaseDir(directory / entry.run), measure)
    return groups


def _measure(group: Group, entry: BatchCase, run: CaseDir, measure: Measure) -> None:
    """Measure one repeat and add its values to the group; if that is not possible, add an unknown value with
    the reason.
    """
    why = None
    try:
        if group.file is None and run.case_json.exists():
            group.file = CaseFile.load(run.case_json)
        if (why := no_number(entry, run)) is None:
            told = measure(Evidence.of_run(run))
            group.add(
                entry.case,
                {
                    asked: discount_starved(entry, parse_ask(asked[0]).quantity, value)
                    for asked, value in told
                },
            )
    except BadInput as error:
        why = str(error)
    if why is not None:
        group.unknown.append(Value.unknown(f"{entry.case}: {why}"))


def side(values: Sequence[Value], unit: Unit, statistic: Statistic) -> ComparedSide:
    """Return a statistic over the repeats' values (at least one) with its confidence interval. If any value is
    unknown, return the reason instead.
    """
    unknown = [one for one in values if not one.is_known]
    if unknown:
        return ComparedSide(
            repeats=len(values), why=f"{len(unknown)} of {len(values)} unknown: {unknown[0].why}"
        )
    found = estimate(values, statistic)
    middle = (found.seen.low + found.seen.high) / 2
    return ComparedSide(
        repeats=len(values),
        middle=middle if math.isfinite(middle) else None,
        **estimate_fields(found, unit, None),
    )


def estimate_fields(found: Estimate, unit: Unit, how: Contrast | None) -> dict[str, object]:
    """Return an estimate as the fields of `ComparedSide`: `seen` and `interval` as text; `low` and `high` as
    numbers, None if unbounded.

    `how`: the contrast that the estimate is of (ratio or difference), for its text; None for a plain value.
    """
    return {
        "seen": value_text(found.seen, unit, how),
        "interval": span_text(found.low, found.high, unit, how),
        "low": found.low if math.isfinite(found.low) else None,
        "high": found.high if math.isfinite(found.high) else None,
    }


def settings_of(group: Group | None) -> dict[str, str]:
    """Return every setting of a case as text, by path, with its faults and its backend. Empty for None, and without a
    readable `case.json`."""
    resolved: JsonValue = group.file.resolved if group and group.file else None
    experiment = resolved.get("experiment") if isinstance(resolved, dict) else None
    if not isinstance(experiment, dict):
        return {}
    told = {path_text(path): str(value_at(experiment, path)) for path in leaves(experiment)}
    return told | {
        "faults": json.dumps(experiment.get("faults", [])),
        "backend": str(experiment.get("backend")),
    }
