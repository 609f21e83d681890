"""Compare batches, case by case: verdicts and quantities over repeats. Marks the differences that are certain."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.quantities.quantity import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.repeats.decide import contrast_groups
from ackproof.repeats.demand import Contrast, Statistic, span_text
from ackproof.repeats.intervals import CONFIDENCE
from ackproof.rundir.anomalies import TABLE, gravity
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.bounds import Unit
from ackproof.rundir.lab import (
    ComparedBatch,
    ComparedCase,
    ComparedCount,
    ComparedDifference,
    ComparedQuantity,
    ComparisonFile,
)
from ackproof.rundir.layout import BatchDir
from ackproof_lab.compare.groups import (
    Asked,
    Group,
    estimate_fields,
    expected_of,
    groups_of,
    settings_of,
    side,
)


def compare(
    directories: Sequence[Path],
    statistic: Statistic,
    gate: Gate | None = None,
    step: Callable[[str], None] = lambda _: None,
) -> ComparisonFile:
    """Compare the first batch with each later one; cases that differ come first. `statistic`: computed over the repeats
    of a case. `gate`: limit to apply; None: none. `step` is called with a sentence on the progress.

    Cases are matched by their experiment's name and settings. If every batch has one case, these are matched. Raises
    `BadInput` for fewer than two folders, and for one without a readable `batch.json`.
    """
    if len(directories) < 2:
        raise BadInput("give two batches or more to compare")
    files = [BatchFile.load(BatchDir(one).batch_json) for one in directories]
    batches = []
    for directory, file in zip(directories, files, strict=True):
        step(f"measuring {len(file.cases)} runs of {directory}")
        batches.append(groups_of(directory, file))
    if all(len(batch) == 1 for batch in batches):
        name = next(iter(batches[0]))
        batches = [{name: next(iter(batch.values()))} for batch in batches]
    names = list(dict.fromkeys(name for batch in batches for name in batch))
    together = [[batch.get(name) for batch in batches] for name in names]
    how_many = sum(_comparisons(groups) for groups in together)
    # Bonferroni correction: of many intervals with 95 % confidence each, some would be wrong.
    sure = 1 - (1 - CONFIDENCE) / max(1, how_many)
    cases = [_case(name, groups, statistic, sure) for name, groups in zip(names, together, strict=True)]
    cases.sort(key=lambda case: not case.differs)
    nothing_in_common = ""
    if not any(batches[0].keys() & other.keys() for other in batches[1:]):
        nothing_in_common = "; ".join(
            f"{f'batch {number}' if number > 1 else 'the first batch'} has {', '.join(batch) or 'no case'}"
            for number, batch in enumerate(batches, start=1)
        )
    found = ComparisonFile(
        batches=tuple(
            ComparedBatch(
                name=file.name or directory.resolve().name,
                directory=directory.resolve().name,
                verdict=str(file.verdict or "no verdict"),
                cases=len(file.cases),
                path=str(directory.absolute()),
                report=str(BatchDir(directory).report_html.absolute()),
            )
            for directory, file in zip(directories, files, strict=True)
        ),
        statistic=statistic.name,
        confidence=CONFIDENCE,
        environment=_differing([_environment(batch) for batch in batches]),
        cases=tuple(cases),
        nothing_in_common=nothing_in_common,
    )
    return found if gate is None else gate.apply(found)


def _case(name: str, groups: Sequence[Group | None], statistic: Statistic, sure: float) -> ComparedCase:
    """Compare one case over the batches (None: a batch without it). `sure`: confidence of the interval that decides
    whether a difference is certain, chosen so that all these intervals hold together with 95 %."""
    there = [group for group in groups if group is not None]
    asked = dict.fromkeys(key for group in there for key in group.values)
    expected = {key for group in there if group.file for key in expected_of(group.file)}
    quantities = [_quantity(key, groups, statistic, sure, expected=key in expected) for key in asked]
    return ComparedCase(
        case=name,
        verdicts=tuple(group.verdicts if group else "" for group in groups),
        verdicts_differ=_differ([[one.verdict for one in group.entries] for group in there]),
        counts=tuple(_counts(there, groups)),
        runs=tuple(tuple(group.runs) if group else () for group in groups),
        settings=_differing([settings_of(group) for group in groups]),
        quantities=tuple(one for one in quantities if one is not None),
    )


def _counts(there: Sequence[Group], groups: Sequence[Group | None]) -> Iterator[ComparedCount]:
    """Yield the anomaly classes whose counts differ between the batches, the gravest first. `groups`: the case in each
    batch; None: a batch without it. `there`: the groups that are not None."""
    names = {name for group in there for entry in group.entries for name in entry.counts if name in TABLE}
    for name in sorted(names, key=gravity):
        counts = tuple(group.counts(name) if group else () for group in groups)
        if any(map(any, counts)) and _differ([group.counts(name) for group in there]):
            yield ComparedCount(anomaly=name, counts=counts)


def _differ(sides: Sequence[Sequence[Hashable]]) -> bool:
    """Return True if a value occurs in a larger share of the repeats in one batch than in another. A batch without
    values differs from one that has some. `sides`: the values of the repeats, by batch."""
    shares = [{one: Fraction(number, len(side)) for one, number in Counter(side).items()} for side in sides]
    return any(one != shares[0] for one in shares)


def _quantity(
    key: Asked, groups: Sequence[Group | None], statistic: Statistic, sure: float, *, expected: bool
) -> ComparedQuantity | None:
    unit = parse_ask(key[0]).quantity.unit
    values = [group.values_of(key) if group else [] for group in groups]
    if not any(one.is_known for group in values for one in group):
        return None  # no run has this quantity: there was no such fault, or no reader
    first = values[0]
    return ComparedQuantity(
        quantity=key[0],
        window=key[1],
        unit=unit.value,
        sides=tuple(side(group, unit, statistic) if group else None for group in values),
        beyond=tuple(_beyond(group, first, unit, statistic, sure) for group in values[1:]),
        expected=expected,
    )


def _comparisons(groups: Sequence[Group | None]) -> int:
    there = [group for group in groups if group is not None]
    asked = dict.fromkeys(key for group in there for key in group.values)
    values = [[group.values_of(key) if group else [] for group in groups] for key in asked]
    return sum(_comparable(group, one[0]) for one in values for group in one[1:])


def _comparable(values: Sequence[Value], first: Sequence[Value]) -> bool:
    """Return True if both batches have values, all of them are known, and at least one is above 0."""
    every = (*values, *first)
    return (
        bool(values and first) and all(one.is_known for one in every) and max(one.high for one in every) > 0
    )


def _beyond(
    values: Sequence[Value], first: Sequence[Value], unit: Unit, statistic: Statistic, confidence: float
) -> ComparedDifference | None:
    how = Contrast.MINUS if unit is Unit.COUNT else Contrast.OVER
    if not _comparable(values, first):
        return None
    found = contrast_groups(values, first, how, statistic)
    sure = contrast_groups(values, first, how, statistic, confidence)
    alike = 1.0 if how is Contrast.OVER else 0.0
    return ComparedDifference(
        apart=not sure.low <= alike <= sure.high,
        sure_low=sure.low if math.isfinite(sure.low) else None,
        sure_high=sure.high if math.isfinite(sure.high) else None,
        **estimate_fields(found, unit, how),
    )


# -- what else differs ----------------------------------------------------------------------------------------------


def _environment(batch: Mapping[str, Group]) -> dict[str, str]:
    """Return the environment of a batch by name, from one run of each case. If they differ, the text lists each value.

    The load average and the free memory, which always differ, are left out.
    """
    values_by_name: dict[str, dict[str, None]] = {}
    for group in batch.values():
        for name, value in (group.file.environment if group.file else {}).items():
            if name != "load average":
                values_by_name.setdefault(name, {})[
                    value.partition(",")[0] if name == "memory" else value
                ] = None
    return {name: ", ".join(values) for name, values in values_by_name.items()}


def _differing(sides: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return each name whose values differ between the batches, with the value in each; '' if a batch lacks the name.
    Batches without any name are not compared."""
    there = [side for side in sides if side]
    names = dict.fromkeys(name for side in there for name in side)
    return {
        name: tuple(side.get(name, "") for side in sides)
        for name in names
        if len({side.get(name, "") for side in there}) > 1
    }


_GATE: Final = re.compile(r"slower:([0-9]{1,4}(?:\.[0-9]{1,3})?)%\Z")


@dataclass(frozen=True)
class Gate:
    """Limit of `--fail-on`. `share`: a time may be longer, or a rate lower, by at most this fraction (0.2 for
    `slower:20%`). `text`: the limit as given.
    """

    share: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Parse a limit such as `slower:20%`. Raises ValueError for any other text."""
        match = _GATE.match(text.strip())
        if match is None:
            raise ValueError(f"expected slower:20%, not '{text[:60]}'")
        return cls(float(match[1]) / 100, text.strip())

    def apply(self, found: ComparisonFile) -> ComparisonFile:
        """Return the comparison with the result of this limit on times and rates added. `broken`: a sentence for each
        quantity that is certainly slower than allowed. `told`, `untold`: numbers of comparisons of times and rates that
        were decided, and that were not."""
        broken: list[str] = []
        told = untold = 0
        for case, quantity, batch, beyond in _limited_quantities(found):
            holds = None if beyond is None else self._slower(quantity, beyond)
            told += holds is not None
            untold += holds is None
            if holds and beyond is not None:
                where = f"{case}: {quantity.quantity} {quantity.window}".rstrip()
                ratio = span_text(*_sure_span(beyond), Unit(quantity.unit), Contrast.OVER)
                broken.append(f"{where}: {batch}: {ratio} times that of the first")
        return found.model_copy(
            update={"fail_on": self.text, "broken": tuple(broken), "untold": untold, "told": told}
        )

    def _slower(self, quantity: ComparedQuantity, beyond: ComparedDifference) -> bool | None:
        """Return True if the quantity is certainly slower than the limit allows, False if certainly not, None if
        undecided. `beyond`: ratio of its value in a later batch to that in the first one. The interval from `sure_low`
        to `sure_high` decides; it is corrected for the number of comparisons. For a rate, the reciprocal is compared
        with the limit."""
        low, high = _sure_span(beyond)
        if Unit(quantity.unit) is Unit.PER_SECOND:
            low, high = (1 / high if high else math.inf), (1 / low if low else math.inf)
        if low > 1 + self.share:
            return True
        return False if high <= 1 + self.share else None


def _sure_span(beyond: ComparedDifference) -> tuple[float, float]:
    """Return `sure_low` and `sure_high` of a ratio as numbers; 0 and infinity where they are unbounded."""
    low, high = beyond.sure_low, beyond.sure_high
    return 0.0 if low is None else low, math.inf if high is None else high


def _limited_quantities(
    found: ComparisonFile,
) -> Iterator[tuple[str, ComparedQuantity, str, ComparedDifference | None]]:
    for case in found.cases:
        for one in case.quantities:
            quantity = parse_ask(one.quantity).quantity
            if quantity.takes_time and quantity.unit in (Unit.SECONDS, Unit.PER_SECOND):
                for batch, beyond in zip(found.batches[1:], one.beyond, strict=True):
                    yield case.case, one, batch.directory, beyond
