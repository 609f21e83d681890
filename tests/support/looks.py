"""What a sampler knows of a partition now, as the triggers of faults ask it."""

from __future__ import annotations

from ackproof.observe.sampler import Sampler
from ackproof.quantities.states import LIVE


def told_now(sampler: Sampler, state: str, number: int) -> float | None:
    """A state of partition `number` of `orders`; None: nobody told it within the last second."""
    sample = sampler.fresh("orders", number)
    return None if sample is None else LIVE[state](sample)
