"""Every pair of fault kinds, distributed over runs (`storm: {pairs: all}`).

A run has a share of the pairs, one after the other. The second fault of a pair begins while the first is in force, and
the next pair when both are over (`faults.life`). The pairs of a share depend only on the experiment, so that shares can
be run on different days and machines. The seed decides which nodes each fault hits, and its parameters.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Final, TypeAlias

from ackproof.base.errors import FaultNotConfirmed
from ackproof.experiment.case import StormDraw
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.triggers import ChainTrigger
from ackproof.faults.registry import fault_kinds
from ackproof.faults.storm import (
    TRIES,
    Able,
    Storm,
    make_valid_fault,
    possible_kinds,
    roles_for_kind,
)
from ackproof.rundir.timeline import DRAWN_FROM

Pair: TypeAlias = tuple[str, str]
"""Names of two kinds of faults, in alphabetical order."""
BESIDE_S: Final = 0.3
"""Seconds from the confirmation of a pair's first fault (or its request, if it ends by itself) to the
beginning of the second."""


@dataclass(frozen=True)
class PairShares:
    """Distribution of the pairs of fault kinds over the runs of an experiment. `shares`: the pairs of each run."""

    shares: tuple[tuple[Pair, ...], ...]
    refused: Mapping[Pair, str]
    """Pairs that no run has, each with the reason."""


def pair_storm_of(experiment: ExperimentSpec) -> Storm | None:
    """Return the experiment's storm with `pairs: all`, of which it has at most one; None if it has none."""
    return next((fault for fault in experiment.faults if isinstance(fault, Storm) and fault.pairs), None)


def distribute_pairs(storm: Storm, experiment: ExperimentSpec, able: Able) -> PairShares:
    """Return all pairs of the storm's kinds, distributed over runs: `storm.count // 2` pairs for each run, fewer for
    the last if need be. Pairs that cannot be run are refused with the reason. The result does not depend on the seed.
    `able(fault)`: True if the backend can inject the fault."""
    dealer = _Dealer(storm, experiment, able)
    kinds = possible_kinds(storm, experiment, able)
    refused: dict[Pair, str] = {}
    pairs: list[Pair] = []
    for pair in combinations(sorted(kinds), 2):
        why = next((f"{kind}: {kinds[kind]}" for kind in pair if kinds[kind]), "")
        tried = why or dealer.draw_pair(pair, random.Random(f"{pair}"), storm.number * DRAWN_FROM + 1)
        if isinstance(tried, str):
            refused[pair] = tried
        else:
            pairs.append(pair)
    random.Random("pairs").shuffle(pairs)
    size = storm.count // 2
    cuts = [*range(0, len(pairs), size), len(pairs)]
    return PairShares(tuple(tuple(pairs[low:high]) for low, high in pairwise(cuts)), refused)


def draw_pairs(
    storm: Storm, experiment: ExperimentSpec, share: tuple[Pair, ...], seed: int, able: Able
) -> StormDraw:
    """Draw the two faults of each pair in `share` (one run's, by `distribute_pairs`): their targets and parameters.

    `seed`: the experiment's seed, not the case's, so that a pair is drawn alike in every share. `able(fault)`: True if
    the backend can inject the fault.
    """
    dealer = _Dealer(storm, experiment, able)
    faults: list[FaultSpec] = []
    for index, pair in enumerate(share):
        number = storm.number * DRAWN_FROM + 2 * index + 1
        # If this seed finds no compatible pair, the seed-independent draw is used.
        for source in (f"{seed}/{pair}", f"{pair}"):
            found = dealer.draw_pair(pair, random.Random(source), number)
            if not isinstance(found, str):
                faults += found
                break
    return StormDraw(tuple(faults), ())


@dataclass(frozen=True)
class _Dealer:
    """Draws the two faults of one pair after the other, for a storm with `pairs: all`."""

    storm: Storm
    experiment: ExperimentSpec
    able: Able
    roles: dict[str, list[str]] = field(default_factory=dict)
    """Roles that each kind can be aimed at, cached, because finding them takes most of the time."""

    def draw_pair(
        self, pair: Pair, generator: random.Random, number: int
    ) -> tuple[FaultSpec, FaultSpec] | str:
        """Return two faults that can be in force together; or the reason why no such faults were found. A fault that is
        held for a time comes before one that ends by itself. `number`: the first fault's number; the second gets the
        next one."""
        why = ""
        for _ in range(TRIES):
            longer, other = sorted(
                pair, key=lambda kind: (fault_kinds()[kind].HOLD_KEY is None, generator.random())
            )
            first = self._draw(longer, generator, number, ChainTrigger(self.storm.number))
            second = self._draw(other, generator, number + 1, ChainTrigger(number, BESIDE_S))
            if isinstance(first, str):
                return f"{longer}: {first}"
            if isinstance(second, str):
                return f"{other}: {second}"
            try:
                clash = second.at_odds(first, self.experiment)
            except FaultNotConfirmed as error:
                clash = str(error)
            if not clash:
                return first, second
            why = f"{second.kind} finds nothing to break while {first} {clash}"
        return why

    def _draw(
        self, kind: str, generator: random.Random, number: int, trigger: ChainTrigger
    ) -> FaultSpec | str:
        if kind not in self.roles:
            self.roles[kind] = roles_for_kind(self.storm, kind, self.experiment)
        draw = Draw(generator, self.roles[kind], self.experiment, more=generator)
        entry = self.storm.menu_entry(kind)
        lasts = draw.pick_seconds(entry.lasting or self.storm.lasting)
        return make_valid_fault(kind, entry, draw, number, trigger, lasts, self.able)
