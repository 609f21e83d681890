"""What a check says. All that a verdict is made of is of this one type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial


class Says(Enum):
    """What an opinion means for the verdict."""

    CONTRADICTS = "contradicts"
    """Two things that this run left cannot both be true, so that nothing can be built on either."""
    BREAKS = "breaks"
    """Kafka broke what its configuration forbids to break."""
    LACKS = "lacks"
    """Evidence is missing, so that no absence can be told."""
    OPEN = "open"
    """Evidence is whole, and the question stays open: seen and neither forbidden nor allowed, or not demonstrated."""
    NOT_JUDGED = "not judged"
    """Something that no verdict speaks of."""
    AGREES = "agrees"
    """An independent witness says the same."""


@dataclass(frozen=True)
class Opinion:
    """One sentence about one thing that was looked at."""

    says: Says
    text: str
    proven: bool = False
    """Of what breaks: one specimen proves it, even where evidence is missing elsewhere."""


contradicts = partial(Opinion, Says.CONTRADICTS)
breaks = partial(Opinion, Says.BREAKS)
lacks = partial(Opinion, Says.LACKS)
stays_open = partial(Opinion, Says.OPEN)
not_judged = partial(Opinion, Says.NOT_JUDGED)
agrees = partial(Opinion, Says.AGREES)
