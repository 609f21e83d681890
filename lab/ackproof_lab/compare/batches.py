"""Several batches, case by case: verdicts, quantities over their repeats, what differs, and by how much for certain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.quantities.quantity import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.repeats.decide import contrast_groups
from ackproof.repeats.demand import Contrast, Statistic
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
from ackproof_lab.compare.gate import Gate
from ackproof_lab.compare.groups import Asked, Group, expected_of, groups_of, settings_of, side, words

Step = Callable[[str], None]


@dataclass(frozen=True)
class _Method:
    """`sure`: the confidence of each, so that all of them hold at once at 95 %."""

    statistic: Statistic
    sure: float


def compare(
    directories: Sequence[Path], statistic: Statistic, gate: Gate | None = None, step: Step = lambda _: None
) -> ComparisonFile:
    """Hold two batches or more beside each other, the first being what the others are held against.

    Cases are matched by their experiment's name and settings; where every batch has one, these belong together. Raises
    `BadInput` for fewer than two, and for a folder without a readable `batch.json`.
    """
    if len(directories) < 2:
        raise BadInput("compare takes two batches or more")
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
    # Bonferroni's: of many intervals that each err in one of 20, some would err.
    method = _Method(statistic, 1 - (1 - CONFIDENCE) / max(1, how_many))
    cases = [_case(name, groups, method) for name, groups in zip(names, together, strict=True)]
    cases.sort(key=lambda case: not case.differs)
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
        nothing_in_common=_nothing_in_common(batches),
    )
    return found if gate is None else gate.held(found)


def _nothing_in_common(batches: Sequence[Mapping[str, Group]]) -> str:
    if any(batches[0].keys() & other.keys() for other in batches[1:]):
        return ""
    return "; ".join(
        f"{'the first batch' if not number else f'batch {number + 1}'} has {', '.join(batch) or 'no case'}"
        for number, batch in enumerate(batches)
    )


def _case(name: str, groups: Sequence[Group | None], method: _Method) -> ComparedCase:
    there = [group for group in groups if group is not None]
    asked = dict.fromkeys(key for group in there for key in group.values)
    expected = {key for group in there if group.file for key in expected_of(group.file)}
    quantities = [_quantity(key, groups, method, expected=key in expected) for key in asked]
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
    """Classes that the batches which have the case did not count alike."""
    names = {name for group in there for entry in group.entries for name in entry.counts if name in TABLE}
    for name in sorted(names, key=gravity):
        counts = tuple(group.counts(name) if group else () for group in groups)
        if any(map(any, counts)) and _differ([group.counts(name) for group in there]):
            yield ComparedCount(anomaly=name, counts=counts)


def _differ(sides: Sequence[Sequence[Hashable]]) -> bool:
    """Return True if repeats came to each value in another share of the repeats of their batch."""
    shares = [{one: Fraction(number, len(side)) for one, number in Counter(side).items()} for side in sides]
    return any(one != shares[0] for one in shares)


def _quantity(
    key: Asked, groups: Sequence[Group | None], method: _Method, *, expected: bool
) -> ComparedQuantity | None:
    unit = parse_ask(key[0]).quantity.unit
    values = [group.of(key) if group else [] for group in groups]
    if not any(one.is_known for group in values for one in group):
        return None  # no run tells it: there was no such fault, or nobody read
    first = values[0]
    return ComparedQuantity(
        quantity=key[0],
        window=key[1],
        unit=unit.value,
        sides=tuple(side(group, unit, method.statistic) if group else None for group in values),
        beyond=tuple(_beyond(group, first, unit, method) for group in values[1:]),
        expected=expected,
    )


def _comparisons(groups: Sequence[Group | None]) -> int:
    """How many times a quantity of one batch is held beside that of the first."""
    there = [group for group in groups if group is not None]
    asked = dict.fromkeys(key for group in there for key in group.values)
    values = [[group.of(key) if group else [] for group in groups] for key in asked]
    return sum(_comparable(group, one[0]) for one in values for group in one[1:])


def _comparable(values: Sequence[Value], first: Sequence[Value]) -> bool:
    """Whether both have numbers, and any at all."""
    every = (*values, *first)
    return (
        bool(values and first) and all(one.is_known for one in every) and max(one.high for one in every) > 0
    )


def _beyond(
    values: Sequence[Value], first: Sequence[Value], unit: Unit, method: _Method
) -> ComparedDifference | None:
    how = Contrast.MINUS if unit is Unit.COUNT else Contrast.OVER
    if not _comparable(values, first):
        return None
    found = contrast_groups(values, first, how, method.statistic)
    sure = contrast_groups(values, first, how, method.statistic, method.sure)
    alike = 1.0 if how is Contrast.OVER else 0.0
    return ComparedDifference(
        apart=not sure.low <= alike <= sure.high,
        sure_low=sure.low if math.isfinite(sure.low) else None,
        sure_high=sure.high if math.isfinite(sure.high) else None,
        **words(found, unit, how),
    )


# -- what else differs ----------------------------------------------------------------------------------------------


def _environment(batch: Mapping[str, Group]) -> dict[str, str]:
    """On what its runs stood, where all of them say the same; else each of what they say. Without what no two moments
    have alike: the load, and the memory that is free."""
    told: dict[str, dict[str, None]] = {}
    for group in batch.values():
        for name, value in (group.file.environment if group.file else {}).items():
            if name != "load average":
                told.setdefault(name, {})[value.partition(",")[0] if name == "memory" else value] = None
    return {name: ", ".join(values) for name, values in told.items()}


def _differing(sides: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """What is not the same on all sides that say anything."""
    there = [side for side in sides if side]
    names = dict.fromkeys(name for side in there for name in side)
    return {
        name: tuple(side.get(name, "") for side in sides)
        for name in names
        if len({side.get(name, "") for side in there}) > 1
    }
