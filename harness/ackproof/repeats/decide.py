"""When an interval decides: wholly inside what was demanded, wholly outside, or neither; and how many repeats would."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ackproof.quantities.value import Value
from ackproof.repeats.beside import beside
from ackproof.repeats.demand import Demand
from ackproof.repeats.intervals import CONFIDENCE, Estimate, estimate, ranks

MOST: Final = 2000
"""So many repeats are thought of when it is asked how many would decide."""
_LARGEST: Final = 1 << 15
"""p99.99 takes 29,956 repeats; no statistic that a file may ask for takes more."""
USUAL: Final = 20
"""Repeats that are enough where the statistic does not ask for more."""
EARLY: Final = 0.999
"""Confidence with which something is decided before the last look (Haybittle and Peto)."""
EARLY_MEAN: Final = 11
"""Of fewer repeats no mean is decided before the last look: of a rare one that is much slower they most often tell
nothing. By so many the median is bounded with that confidence, whatever the distribution."""

Groups = Sequence[Sequence[Value]]
"""The values of one case's repeats; or of two that are held beside each other."""


@dataclass(frozen=True)
class Decision:
    """`holds` None: the interval is on both sides. `enough`: how many repeats of each case would likely decide then, if
    they were like these; None: no number up to `MOST` would."""

    estimate: Estimate
    holds: bool | None
    enough: int | None = None


def decide(demand: Demand, groups: Groups, confidence: float = CONFIDENCE) -> Decision:
    """Hold the statistic of these repeats against what was demanded of it."""
    found = _estimated(demand, groups, confidence)
    holds = _held(demand, found) if _may_decide(demand, min(map(len, groups)), confidence) else None
    enough = None if holds is not None or demand.statistic.is_max else _enough(demand, groups, confidence)
    return Decision(found, holds, enough)


def repeats_needed(demand: Demand) -> int:
    """Return the smallest number of repeats whose interval is bounded on each side that the demand needs. With fewer it
    is never PASS."""
    share = demand.statistic.share
    if share is None or demand.statistic.is_max:
        return 2
    both = demand.how is not None or demand.is_bare
    below, above = both or math.isfinite(demand.range.low), both or math.isfinite(demand.range.high)

    def is_bounded(count: int) -> bool:
        lower, upper = ranks(count, share, CONFIDENCE)
        return (lower > 0 or not below) and (upper <= count or not above)

    enough = 2
    while enough < _LARGEST and not is_bounded(enough):
        enough *= 2
    return bisect_left(range(enough), True, lo=2, key=is_bounded)


def _may_decide(demand: Demand, count: int, confidence: float) -> bool:
    return demand.statistic.share is not None or confidence < EARLY or count >= EARLY_MEAN


def _held(demand: Demand, found: Estimate) -> bool | None:
    """Whether it is as demanded; of what is only to be measured whether it was, with both ends of its interval."""
    if demand.is_bare:
        return True if math.isfinite(found.low) and math.isfinite(found.high) else None
    return demand.range.within(found.low, found.high)


def _estimated(demand: Demand, groups: Groups, confidence: float, as_if: int | None = None) -> Estimate:
    if demand.how is None:
        return estimate(groups[0], demand.statistic, confidence, as_if=as_if)
    return beside(groups[0], groups[1], demand.how, demand.statistic, confidence, as_if=as_if)


def _enough(demand: Demand, groups: Groups, confidence: float) -> int | None:
    for count in _counts(max(len(group) for group in groups)):
        found = _estimated(demand, groups, confidence, count)
        if _held(demand, found) is not None and _may_decide(demand, count, confidence):
            return count
    return None


def _counts(first: int) -> Iterator[int]:
    """Each, then ever fewer: nobody counts on the last of 500."""
    count = max(first, 1) + 1
    while count <= MOST:
        yield count
        count += max(1, count // 50)


def looks(first: int, most: int) -> list[tuple[int, float]]:
    """After how many repeats it is looked whether an expectation is decided, and with which confidence it must be.

    Who looks again and again, and stops at the first answer, is wrong more often than he says. So an early look decides
    only where that is all but sure, and the last bears what risk is left: all together err no more often than one.
    """
    counts = [first]
    while counts[-1] < most:
        counts.append(min(most, 2 * counts[-1]))
    early = [(count, EARLY) for count in counts[:-1]]
    return [*early, (counts[-1], CONFIDENCE + len(early) * (1 - EARLY))]
