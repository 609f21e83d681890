"""Decides expectations over repeats by confidence intervals, predicts how many repeats would decide, contrasts two
groups.

Means are compared by Welch's interval, their ratio by the same on a logarithmic scale (the delta method). Quantiles are
compared by combining the exact interval of each group (MOVER: Zou and Donner, 2008). An end that is infinite in one
group's interval stays infinite. Resampling is not used: with three to five repeats its 95 % intervals cover the truth
in 80 to 87 % of cases only (`tests/unit/repeats`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ackproof.quantities.quantity import Value
from ackproof.repeats.demand import Contrast, Demand, Statistic
from ackproof.repeats.intervals import CONFIDENCE, Estimate, Moments, ends, estimate, ranks, student

MOST: Final = 2000
"""Greatest number of repeats that is considered when searching how many would decide."""
_LARGEST: Final = 1 << 15
"""Limit of the search in `repeats_needed`. No statistic needs more: p99.99 takes 29,956."""
USUAL: Final = 20
"""Number of repeats that a message suggests if the statistic does not need more."""
EARLY: Final = 0.999
"""Confidence with which a test before the last one must decide (Haybittle and Peto; see `looks`)."""
EARLY_MEAN: Final = 11
"""With fewer repeats no mean is decided before the last test, because a rare, much slower repeat is most often
not among them. From this number on the median is bounded with the confidence `EARLY`, for any distribution."""

Groups = Sequence[Sequence[Value]]
"""Values of the repeats of one case, or of two cases that are compared."""


@dataclass(frozen=True)
class Decision:
    """Result of comparing a confidence interval with the range that an expectation demands.

    `holds`: True if the interval is inside the range, False if outside; without a range, True if both its ends are
    finite. None: it does neither, or there are too few repeats to decide about a mean in a test before the last
    (`looks`). `enough`: number of repeats of each case that would likely decide, if their values scattered like the
    present ones. None: it is decided, no number up to `MOST` would decide it, or the statistic is the maximum.
    """

    estimate: Estimate
    holds: bool | None
    enough: int | None = None


def decide(demand: Demand, groups: Groups, confidence: float = CONFIDENCE) -> Decision:
    """Compare the confidence interval of a statistic of these repeats with the range that the expectation demands.

    `groups`: the values (at least one) of one case, or of the two cases that the demand compares, in its order.
    `confidence`: confidence of the interval, 0 … 1. At `EARLY` (0.999) or more, the result for a mean is open if a
    group has fewer than `EARLY_MEAN` (11) repeats.
    """
    found = _estimated(demand, groups, confidence)
    holds = _holds(demand, found) if _may_decide(demand, min(map(len, groups)), confidence) else None
    enough = None if holds is not None or demand.statistic.is_max else _enough(demand, groups, confidence)
    return Decision(found, holds, enough)


def repeats_needed(demand: Demand) -> int:
    """Return the smallest number of repeats whose confidence interval can lie inside the demanded range. Return 2 for a
    mean or a maximum.

    For a quantile, few repeats leave an end of the interval infinite. The upper end must be finite if the range has an
    upper bound, the lower end if it has a lower bound. Both must be finite if two cases are compared or no range is
    demanded.
    """
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


def _holds(demand: Demand, found: Estimate) -> bool | None:
    """Return True if the interval is inside the demanded range, False if outside, else None.

    Without a range: True if both ends of the interval are finite, else None.
    """
    if demand.is_bare:
        return True if math.isfinite(found.low) and math.isfinite(found.high) else None
    return demand.range.covers(found.low, found.high)


def _estimated(demand: Demand, groups: Groups, confidence: float, as_if: int | None = None) -> Estimate:
    if demand.how is None:
        return estimate(groups[0], demand.statistic, confidence, as_if=as_if)
    return contrast_groups(groups[0], groups[1], demand.how, demand.statistic, confidence, as_if=as_if)


def _enough(demand: Demand, groups: Groups, confidence: float) -> int | None:
    for count in _counts(max(len(group) for group in groups)):
        found = _estimated(demand, groups, confidence, count)
        if _holds(demand, found) is not None and _may_decide(demand, count, confidence):
            return count
    return None


def _counts(first: int) -> Iterator[int]:
    """Yield numbers of repeats to try, ascending, from one more than `first` up to `MOST`. The step is 1 below 100
    repeats, and 2 % of the number from there on."""
    count = max(first, 1) + 1
    while count <= MOST:
        yield count
        count += max(1, count // 50)


def looks(first: int, most: int) -> list[tuple[int, float]]:
    """Return the numbers of repeats after which an expectation is tested, each with the required confidence, ascending.

    `first`, `most`: smallest and largest number of repeats; between them, each number is twice the one before. A
    test that is repeated until it decides is wrong more often than its confidence says. So an early look decides only
    with near certainty, and the last look gets the remaining risk. Together they are wrong no more often than a single
    test.
    """
    counts = [first]
    while counts[-1] < most:
        counts.append(min(most, 2 * counts[-1]))
    early = [(count, EARLY) for count in counts[:-1]]
    return [*early, (counts[-1], CONFIDENCE + len(early) * (1 - EARLY))]


_NOTHING: Final = (-math.inf, math.inf)
_LARGEST_LOG: Final = 700.0


def contrast_groups(
    of: Sequence[Value],
    other: Sequence[Value],
    how: Contrast,
    statistic: Statistic,
    confidence: float = CONFIDENCE,
    *,
    as_if: int | None = None,
) -> Estimate:
    """Estimate a statistic of group `of` minus that of group `other`, or divided by it (`how`), with a confidence
    interval.

    `confidence`: confidence of the interval, 0 … 1. `as_if`: assumed number of values in each group, to predict the
    interval of more repeats; None: the actual numbers.
    """
    if statistic.share is None:
        one, two = (ends(group, len(group) if as_if is None else as_if) for group in (of, other))
        seen = _contrast(how, (one[0].mean, one[1].mean), (two[0].mean, two[1].mean))
        interval = _minus if how is Contrast.MINUS else _over
        # As low as the low ends of the one and the high ends of the other would have it.
        return Estimate(
            seen, interval(one[0], two[1], confidence)[0], interval(one[1], two[0], confidence)[1]
        )
    left, right = (estimate(group, statistic, confidence, as_if=as_if) for group in (of, other))
    seen = _contrast(how, (left.seen.low, left.seen.high), (right.seen.low, right.seen.high))
    if how is Contrast.MINUS:
        return Estimate(seen, *_recovered(left, right, lambda number: number))
    low, high = _recovered(left, right, _log)
    return Estimate(seen, math.exp(low), math.exp(high) if high < _LARGEST_LOG else math.inf)


def _recovered(left: Estimate, right: Estimate, scale: Callable[[float], float]) -> tuple[float, float]:
    """Return the interval (low, high) of `left` minus `right`, recovered from the interval of each (MOVER: method of
    variance estimates recovery). Errors add up as variances do: the squares of the distances from estimate to bound are
    added.

    `scale`: function that is applied to each number first, such as the logarithm for a ratio. The result is on that
    scale. An end of the result is infinite if one of the two intervals has no bound that it needs.
    """
    low, high = scale(left.seen.low) - scale(right.seen.high), scale(left.seen.high) - scale(right.seen.low)
    beneath = math.hypot(scale(left.seen.low) - scale(left.low), scale(right.high) - scale(right.seen.high))
    beyond = math.hypot(scale(left.high) - scale(left.seen.high), scale(right.seen.low) - scale(right.low))
    # What is open in one of them is open in both.
    return (
        -math.inf if math.isnan(low) or not math.isfinite(beneath) else low - beneath,
        math.inf if math.isnan(high) or not math.isfinite(beyond) else high + beyond,
    )


def _log(number: float) -> float:
    return -math.inf if number <= 0 else math.log(number)


def _contrast(how: Contrast, left: tuple[float, float], right: tuple[float, float]) -> Value:
    """Return the difference or the ratio of two numbers, each known as (least, greatest)."""
    if how is Contrast.MINUS:
        return Value(left[0] - right[1], left[1] - right[0])
    low = left[0] / right[1] if left[0] > 0 and math.isfinite(right[1]) and right[1] > 0 else 0.0
    if left[0] > 0 == right[1]:
        low = math.inf
    high = left[1] / right[0] if right[0] > 0 else math.inf
    return Value(low, high)


def _minus(one: Moments, two: Moments, confidence: float) -> tuple[float, float]:
    difference = one.mean - two.mean
    return _around(difference, one.of_mean, two.of_mean, one, two, confidence)


def _over(one: Moments, two: Moments, confidence: float) -> tuple[float, float]:
    if one.mean <= 0 or two.mean <= 0:
        return 0.0, math.inf
    low, high = _around(
        math.log(one.mean) - math.log(two.mean),
        one.of_mean / one.mean / one.mean,
        two.of_mean / two.mean / two.mean,
        one,
        two,
        confidence,
    )
    return math.exp(low), math.exp(high) if high < _LARGEST_LOG else math.inf


def _around(
    middle: float, first: float, second: float, one: Moments, two: Moments, confidence: float
) -> tuple[float, float]:
    """Return Welch's interval around `middle`, a difference of means or of their logarithms. `first`, `second`: the
    squared standard errors of the two, whose variances may differ. Return (-inf, inf) if `middle` is infinite, or if
    Student's t gives no usable interval for one of the means (`Moments.bounds`)."""
    whole = first + second
    if not (math.isfinite(middle) and one.bounds(confidence) and two.bounds(confidence)):
        return _NOTHING
    if whole == 0:
        return middle, middle
    share = first / whole
    freedom = 1 / (share**2 / (one.count - 1) + (1 - share) ** 2 / (two.count - 1))
    reach = student(confidence, freedom) * math.sqrt(whole)
    return middle - reach, middle + reach
