"""Reads from a sampler the present state of a partition, as triggers of faults do."""

from __future__ import annotations

from ackproof.observe.sampler import Sampler
from ackproof.quantities.states import LIVE


def told_now(sampler: Sampler, state: str, number: int) -> float | None:
    """Return the sampled value of `state` (a key of `LIVE`, such as `isr`) for partition `number` of `orders`. None if
    there is no sample, if the newest one is older than a second, or if it lacks the value."""
    sample = sampler.fresh("orders", number)
    return None if sample is None else LIVE[state](sample)
