"""Confidence intervals of the mean and of quantiles, from values that may be known only as ranges.

The low end of an interval is computed from the values' low ends, the high end from their high ends. So the interval
covers the truth at least as often as its confidence says, wherever the values lie in their ranges. An unknown value has
infinite ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import Final

from ackproof.quantities.quantity import Value, longest, shortest
from ackproof.repeats.demand import Statistic

CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class Estimate:
    """A statistic of some repeats (`seen`), and its confidence interval `low` … `high`.

    The interval is for the statistic of all possible repeats. An end that these repeats do not bound is infinite. But a
    lower end is then 0 for a ratio, and for one case whose values all have lower bounds: no quantity is below 0.
    """

    seen: Value
    low: float
    high: float


@dataclass(frozen=True)
class Spread:
    """Least, median, 90th percentile and greatest value of a quantity over repeats, for reports."""

    least: Value
    median: Estimate
    p90: Estimate
    most: Value


def spread_of(values: Sequence[Value]) -> Spread | None:
    """Return the spread of those values that have a lower bound (`Value.is_known`); None if there are none."""
    known = [one for one in values if one.is_known]
    if not known:
        return None
    median, p90 = (estimate(known, Statistic(name, share)) for name, share in (("median", 0.5), ("p90", 0.9)))
    return Spread(shortest(known), median, p90, longest(known))


def estimate(
    values: Sequence[Value], statistic: Statistic, confidence: float = CONFIDENCE, *, as_if: int | None = None
) -> Estimate:
    """Estimate a statistic of these values (at least one), with its interval at this confidence (0 … 1).

    Mean: Student's t; the interval is unbounded for one value, or for few equal values. Quantile: exact, by ranks, for
    any distribution. Maximum: the greatest of these values, whose own range is the interval. `as_if`: assumed number of
    such values, to predict the interval of more repeats; None: as many as there are.
    """
    if statistic.is_max:
        seen = longest(list(values))
        return Estimate(seen, seen.low, seen.high)
    count = len(values) if as_if is None else as_if
    if statistic.share is None:
        return _mean(values, confidence, count)
    return _quantile(values, statistic.share, confidence, count)


# -- the mean -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moments:
    """Mean and variance of numbers, from which the interval of a mean is computed. `count`: how many numbers there are,
    or are assumed to be (`as_if` of `estimate`)."""

    mean: float
    variance: float
    count: int

    @classmethod
    def from_numbers(cls, numbers: Sequence[float], count: int) -> Moments:
        """Return mean and variance of at least one number, with `count` as their count. Both are infinite if a number
        is infinite. The variance of a single number is infinite."""
        mean = fmean(numbers)
        if not math.isfinite(mean) or len(numbers) < 2:
            return cls(mean, math.inf, count)
        if min(numbers) == max(numbers):  # what the mean is rounded by is no scatter
            return cls(numbers[0], 0, count)
        return cls(mean, sum((one - mean) ** 2 for one in numbers) / (len(numbers) - 1), count)

    @property
    def of_mean(self) -> float:
        return self.variance / self.count

    def bounds(self, confidence: float) -> bool:
        """Return True if Student's t gives a usable interval of the mean of these numbers.

        Two equal numbers give Student's t an interval of width 0. So numbers without scatter bound the mean
        only if there are enough to bound the median by ranks.
        """
        if self.variance > 0:
            return math.isfinite(self.variance)
        return ranks(self.count, 0.5, confidence)[0] > 0  # both sides of a median are bounded, or neither


def student(confidence: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t: the greatest error of a mean at this confidence (0 … 1), in
    standard errors. `freedom`: degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def ends(values: Sequence[Value], count: int) -> tuple[Moments, Moments]:
    """Return the moments of the values' lower bounds, and of their upper bounds, as if there were `count` values."""
    return Moments.from_numbers([one.low for one in values], count), Moments.from_numbers(
        [one.high for one in values], count
    )


def _mean(values: Sequence[Value], confidence: float, count: int) -> Estimate:
    lows, highs = ends(values, count)
    return Estimate(
        Value(lows.mean, highs.mean),
        # No quantity is below 0.
        max(0.0, lows.mean - _reach(lows, confidence)) if math.isfinite(lows.mean) else -math.inf,
        highs.mean + _reach(highs, confidence),
    )


def _reach(numbers: Moments, confidence: float) -> float:
    if not numbers.bounds(confidence):
        return math.inf
    return student(confidence, numbers.count - 1) * math.sqrt(numbers.of_mean)


# -- quantiles ------------------------------------------------------------------------------------------------------


def _quantile(values: Sequence[Value], share: float, confidence: float, count: int) -> Estimate:
    lows, highs = sorted(one.low for one in values), sorted(one.high for one in values)
    lower, upper = ranks(count, share, confidence)

    def place(rank: int) -> int:
        return -(-rank * len(values) // count) - 1

    # Never, where both neighbours of the quantile are so: one of them alone is no number.
    never = min(_neighbours(highs, share)) == math.inf and all(
        one.never for one in values if one.high == math.inf
    )
    return Estimate(
        Value(_quantile_of(lows, share), _quantile_of(highs, share), never=never),
        lows[place(lower)] if lower else (0.0 if math.isfinite(lows[0]) else -math.inf),
        highs[place(upper)] if upper <= count else math.inf,
    )


def _quantile_of(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ascending numbers; the mean of two neighbours if it lies between them.

    This is definition 2 of Hyndman and Fan.
    """
    first, second = _neighbours(ordered, share)
    return first if first == second else (first + second) / 2


def _neighbours(ordered: Sequence[float], share: float) -> tuple[float, float]:
    place = round(len(ordered) * share, 9)
    return ordered[max(0, math.ceil(place) - 1)], ordered[min(len(ordered) - 1, math.floor(place))]


@lru_cache(maxsize=4096)
def ranks(count: int, share: float, confidence: float) -> tuple[int, int]:
    """Return two ranks (from 1): the values at these ranks enclose the quantile `share` (0 … 1) with this confidence.

    `count`: number of values, in ascending order. Rank 0, or `count` + 1: no value bounds that side. Two errors are
    possible: the quantile is below the lower value, or above the upper one. If several pairs of ranks qualify, the pair
    with the fewest values between is taken; of several such pairs, the pair whose two errors are most equally probable.
    If one side cannot be bounded, the error on the other side may have the whole probability 1 - `confidence`. The
    result depends on no value, so it is known before the first run.
    """
    from scipy.special import bdtr

    below = [0.0, *(float(bdtr(one, count, share)) for one in range(count + 1))]
    # below[k]: the probability that fewer than k values are not above the quantile
    risk = 1 - confidence
    best: tuple[int, float, int, int] | None = None
    upper = 1
    for lower in range(1, count + 1):
        upper = max(upper, lower + 1)
        while upper <= count and below[upper] - below[lower] < confidence:
            upper += 1
        if upper > count:
            break
        found = (upper - lower, round(abs(below[lower] - (1 - below[upper])), 12), lower, upper)
        best = found if best is None else min(best, found)
    if best is not None:
        return best[2], best[3]
    no_upper, no_lower = 1 - below[count] > risk, below[1] > risk
    lowest = max(
        (one for one in range(count + 1) if below[one] <= (risk if no_upper else risk / 2)), default=0
    )
    highest = min(
        (one for one in range(1, count + 1) if 1 - below[one] <= (risk if no_lower else risk / 2)),
        default=count + 1,
    )
    return lowest, highest
