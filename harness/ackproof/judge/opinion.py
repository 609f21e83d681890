"""Opinions of the checks, of which every verdict is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial


class Says(Enum):
    """Kind of an opinion, which decides its effect on the verdict: files contradict each other, a promise is broken,
    evidence is missing, a question is open, something is not judged, or a witness agrees."""

    CONTRADICTS = "contradicts"
    """Two files of the run cannot both be true, so nothing can be built on either."""
    BREAKS = "breaks"
    """Kafka broke a promise of its configuration."""
    LACKS = "lacks"
    """Evidence is missing, so no absence can be shown."""
    OPEN = "open"
    """The evidence is complete, and the question stays open: neither forbidden nor allowed, or not demonstrated."""
    NOT_JUDGED = "not judged"
    """The verdict does not cover this."""
    AGREES = "agrees"
    """An independent witness confirms the result."""


@dataclass(frozen=True)
class Opinion:
    """One sentence on one subject that a check examined. `says`: its kind. `numbers`: figures of the sentence, by name.

    `proven`: for BREAKS, True if the finding proves a broken promise even where evidence is missing elsewhere.
    `subject`: partition, class, fault, node or client (`orders/0`, `lost`, `fault 1`); '' for the run. `check`: name of
    the check, which the verdict fills in.
    """

    says: Says
    text: str
    proven: bool = False
    subject: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    check: str = ""


contradicts = partial(Opinion, Says.CONTRADICTS)
breaks = partial(Opinion, Says.BREAKS)
lacks = partial(Opinion, Says.LACKS)
stays_open = partial(Opinion, Says.OPEN)
not_judged = partial(Opinion, Says.NOT_JUDGED)
agrees = partial(Opinion, Says.AGREES)


def kafka_differs(*, sealed: bool) -> Callable[..., Opinion]:
    """Return a function that creates the opinion for two differing answers of Kafka. Call it with the arguments of
    `Opinion` that follow `says`.

    The opinion is `lacks` (missing evidence) for a sealed run, else `contradicts` (files disagree). A broken broker can
    give other answers than it has on disk. In a sealed run nobody has changed a file, so such a difference is not
    blamed on the files. In other runs a file may have been changed.
    """
    return lacks if sealed else contradicts
