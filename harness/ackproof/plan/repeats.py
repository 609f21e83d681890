"""Expectations over repeats: matches each with its cells, and orders the runs that are compared.

A comparison has two sides. Each cell that the left side selects is paired with a cell that the right side selects. Both
agree in every axis which neither side names, and there must be exactly one such cell.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ackproof.base.advice import Advice
from ackproof.experiment.case import Case
from ackproof.experiment.experiment import MOST_REPEATS, ExperimentSpec
from ackproof.experiment.problems import Path, nearest
from ackproof.plan.axes import Choice
from ackproof.plan.diagnostics import Problems
from ackproof.plan.expectations import ExpectationMatcher
from ackproof.plan.paths import value_at
from ackproof.quantities.vocabulary import parse_ask
from ackproof.repeats.decide import USUAL, repeats_needed
from ackproof.repeats.demand import Demand
from ackproof.rundir.documents import Scalar

if TYPE_CHECKING:
    from ackproof.rundir.batch import OverRepeats

_WHOLE: Final = re.compile(r"-?[0-9]{1,15}\Z")
_TRUTHS: Final[Mapping[str, Scalar]] = {"true": True, "false": False, "null": None}


class RepeatsMatcher:
    """Finds the cells of one experiment's matrix to which each expectation over repeats applies. Such an expectation
    bounds a statistic over all repeats of a cell, or compares two cells. `names`, `choices`, `cells`: name, combination
    of the matrix, and experiment of each cell, in the same order."""

    def __init__(
        self,
        found: Problems,
        spec: ExperimentSpec,
        expecting: ExpectationMatcher,
        names: Sequence[str],
        choices: Sequence[Choice],
        cells: Sequence[ExperimentSpec],
    ) -> None:
        self._found = found
        self._spec = spec
        self._expecting = expecting
        self._names = names
        self._choices = choices
        self._cells = [cell.data() for cell in cells]
        self._labels = sorted(
            {option.name for choice in choices for option in choice if option and option.name}
        )

    def match(self) -> tuple[OverRepeats, ...]:
        """Return the expectations over repeats: one entry for each cell, or pair of cells that are compared, with their
        names. An expectation with a problem is left out.

        Reports comparisons without a pair of cells, and expectations that a single repeat cannot show; warns of
        expectations that this number of repeats cannot decide.
        """
        return tuple(
            one
            for where, expectation in self._expecting.every()
            for name, demand in expectation.over_repeats.items()
            for one in self._spread_demand(
                self._expecting.place_of(where, name), name, demand, self._expecting.hits.get(where, ())
            )
        )

    def _spread_demand(
        self, where: Path, name: str, demand: Demand, hits: Sequence[int]
    ) -> Iterator[OverRepeats]:
        needed = repeats_needed(demand)
        self._check_repeats(where, demand, needed)
        if not self._found.sound(where):
            return
        unit = parse_ask(name).quantity.unit.value
        from ackproof.rundir.batch import OverRepeats  # few files have one

        every = [(hit,) for hit in hits] if demand.how is None else self._pairs(where, demand, hits)
        for cells in every:
            yield OverRepeats(
                quantity=name,
                demand=str(demand),
                unit=unit,
                cells=tuple(self._names[cell] for cell in cells),
                repeats=self._spec.repeat,
                needed=needed,
                claim=str(where[1]) if where[0] == "claims" else "",
                side=str(where[2]) if where[0] == "claims" else "",
            )

    def _check_repeats(self, where: Path, demand: Demand, needed: int) -> None:
        """Report an expectation over repeats if each case runs only once. Warn if there are fewer than `needed`
        repeats, because then the expectation cannot be decided."""
        name, repeats = demand.statistic.name, self._spec.repeat
        if repeats < 2 and self._found.sound(where, ("repeat",)):
            remedy = self._remedy(max(needed, USUAL), "--repeat 2 ")
            self._found.report(where, f"{name} is of repeats, and each case runs once", remedy)
        elif repeats < needed:
            message = f"over {repeats} repeats {name} has no interval that is bounded: it takes {needed}"
            self._found.warn(where, message, self._remedy(needed))

    def _remedy(self, count: int, beginning: str = "") -> str:
        if count > MOST_REPEATS:
            return f"no experiment has more than {MOST_REPEATS}: ask for a quantile nearer to the median, or for max"
        run = f"ackproof run {self._found.file}"
        until = f"{beginning}--until-decided --at-most {min(2 * count, MOST_REPEATS)}"
        return f"write repeat: {count}, or: {run} --repeat {count}, or until it is decided: {run} {until}"

    def _pairs(self, where: Path, demand: Demand, hits: Sequence[int]) -> Sequence[tuple[int, ...]]:
        left, right = (self._chosen(where, items, hits) for items in (demand.of, demand.baseline))
        if left is None or right is None:
            return []
        touched = {*self._slots(demand.of), *self._slots(demand.baseline)}
        others = [slot for slot in range(len(self._choices[0])) if slot not in touched]
        pairs: list[tuple[int, ...]] = []
        for cell in left:
            mine = self._choices[cell]
            fitting = [
                other for other in right if all(mine[slot] is self._choices[other][slot] for slot in others)
            ]
            if len(fitting) != 1 or fitting[0] == cell:
                self._found.report(where, self._no_pair(demand, cell, fitting))
                return []
            pairs.append((cell, fitting[0]))
        return pairs

    def _no_pair(self, demand: Demand, cell: int, fitting: Sequence[int]) -> str:
        name, side = self._names[cell], ",".join(demand.baseline)
        if not fitting:
            return f"no case has {side} and is else like {name}"
        if fitting[0] == cell:
            return f"{name} would be compared with itself"
        both = " and ".join(self._names[one] for one in fitting[:2])
        return Advice(f"{name} could be compared with {both}", "name the other settings, too")

    def _chosen(self, where: Path, items: Sequence[str], hits: Sequence[int]) -> list[int] | None:
        """Return those of the cells `hits` that have all `items`, as indexes. Return None, with a problem reported, if
        there is none or an item is unknown. An item is a setting such as `acks=all`, or the name of settings that vary
        together."""
        chosen = list(hits)
        for item in items:
            name, equals, text = item.partition("=")
            if not equals:
                if item not in self._labels:
                    there = f"there is {', '.join(self._labels[:10])}; " if self._labels else ""
                    fact = f"'{item[:60]}' is no name of settings that go together"
                    hint = f"{there}a setting is written acks=all"
                    self._found.report(where, fact, hint, suggestion=nearest(item, self._labels))
                    return None
                chosen = [
                    cell
                    for cell in chosen
                    if any(option and option.name == item for option in self._choices[cell])
                ]
                continue
            path = self._expecting.path_of(where, name, key=False)
            if path is None:
                return None
            values = [value_at(self._cells[cell], path) for cell in hits]
            value, right = self._expecting.understood(path, _scalar(text))
            if not right or value not in values:
                known = list(dict.fromkeys(str(one) for one in values))
                why = Advice(f"no case has {name}={text}", f"there is {', '.join(known[:10])}")
                self._found.report(where, why, suggestion=nearest(text, known))
                return None
            chosen = [cell for cell in chosen if value_at(self._cells[cell], path) == value]
        if not chosen:
            self._found.report(where, f"no case has {','.join(items)}")
            return None
        return chosen

    def _slots(self, items: Sequence[str]) -> Iterator[int]:
        """Yield the positions, in a `Choice`, of the options that these items name: by a setting (`acks=all`), or by an
        option's name. A position is the index of an axis or an `include`. An item that names no option yields nothing;
        a position may come twice."""
        for item in items:
            name, equals, _ = item.partition("=")
            path = self._expecting.path_of((), name, key=False) if equals else None
            for slot in range(len(self._choices[0])):
                options = [choice[slot] for choice in self._choices]
                if any(
                    one is not None and (path in one.settings if path else one.name == item)
                    for one in options
                ):
                    yield slot


def _scalar(text: str) -> Scalar:
    if _WHOLE.match(text):
        return int(text)
    return _TRUTHS.get(text, text)


def in_rounds(cases: Sequence[Case], seed: int) -> list[Case]:
    """Return compared cases in run order: one round per repeat with all cells, each round shuffled by the seed.

    So changes over time, such as other load on the machine, affect all cells alike.
    """
    order: list[Case] = []
    for repeat, group in groupby(sorted(cases, key=lambda case: case.repeat), key=lambda case: case.repeat):
        together = list(group)
        random.Random(f"{seed}/order/{repeat}").shuffle(together)
        order += together
    return order
