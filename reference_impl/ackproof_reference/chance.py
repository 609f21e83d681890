"""The one three-valued answer: what the reference implementation, a prediction and a ruling say of a class."""

from __future__ import annotations

from enum import StrEnum


class Chance(StrEnum):
    """Whether something may happen. Impossible: no interleaving within the scope leads to it."""

    IMPOSSIBLE = "impossible"
    POSSIBLE = "possible"
    UNKNOWN = "unknown"


GRAVEST_FIRST = (Chance.POSSIBLE, Chance.UNKNOWN, Chance.IMPOSSIBLE)
