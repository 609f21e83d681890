"""From many runs to a few numbers with their uncertainty: quantiles, bootstrap of a mean, Wilson of a share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import Final

import numpy as np

from ackproof.rundir.model import Elected, Spread
from ackproof_simulator.counts import Counts

QUANTITIES: Final = (
    "lost",
    "duplicate",
    "surfaced",
    "unavailable_ms",
    "new_leader_ms",
    "shrink_ms",
    "full_isr_ms",
)
RESAMPLES: Final = 1000
Z: Final = 1.959963985
"""Two-sided 95 % of the normal distribution."""


def wilson(seen: int, runs: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927); (0, 1) without any run."""
    if runs == 0:
        return 0.0, 1.0
    share, square = seen / runs, Z * Z
    middle = (share + square / (2 * runs)) / (1 + square / runs)
    half = Z * sqrt(share * (1 - share) / runs + square / (4 * runs * runs)) / (1 + square / runs)
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % percentile interval of the mean, from resamples drawn with a fixed seed; a single value is both ends."""
    found = np.asarray(values, np.float64)
    random = np.random.default_rng(0)
    means = [float(found[random.integers(0, len(found), len(found))].mean()) for _ in range(RESAMPLES)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def spread(name: str, runs: Sequence[Counts]) -> Spread:
    """One quantity over the runs in which it is known."""
    values = [value for one in runs if (value := float(getattr(one, name))) >= 0]
    seen = sum(value > 0 for value in values)
    low, high = wilson(seen, len(values))
    if not values:
        nothing = dict.fromkeys(("least", "p05", "p50", "p95", "most", "mean", "mean_low", "mean_high"), -1.0)
        return Spread(name=name, runs=0, seen=0, share_low=low, share_high=high, **nothing)
    p05, p50, p95 = (float(value) for value in np.quantile(values, [0.05, 0.5, 0.95]))
    mean_low, mean_high = bootstrap(values)
    return Spread(
        name=name,
        runs=len(values),
        seen=seen,
        least=min(values),
        p05=p05,
        p50=p50,
        p95=p95,
        most=max(values),
        mean=float(np.mean(values)),
        mean_low=mean_low,
        mean_high=mean_high,
        share_low=low,
        share_high=high,
    )


def elected(runs: Sequence[Counts]) -> tuple[Elected, ...]:
    """Who came to lead first, the most frequent first."""
    count = Counter(one.leader for one in runs if one.leader >= 0)
    return tuple(Elected(leader=leader, runs=number) for leader, number in count.most_common())
