"""Opinions of the checks, of which every verdict is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from ackproof.rundir.documents import JudgedOpinion
from ackproof.rundir.outcome import Says

Opinion: TypeAlias = JudgedOpinion
"""One sentence on one subject that a check examined; the verdict fills in the name of the check."""


def _say(
    kind: Says,
    text: str,
    *,
    proven: bool = False,
    subject: str = "",
    numbers: Mapping[str, float] | None = None,
) -> Opinion:
    return Opinion(kind=kind, text=text, proven=proven, subject=subject, numbers=dict(numbers or {}))


contradicts = partial(_say, Says.CONTRADICTS)
breaks = partial(_say, Says.BREAKS)
lacks = partial(_say, Says.LACKS)
stays_open = partial(_say, Says.OPEN)
not_judged = partial(_say, Says.NOT_JUDGED)
agrees = partial(_say, Says.AGREES)


def kafka_differs(*, sealed: bool) -> Callable[..., Opinion]:
    """Return a function that creates the opinion for two differing answers of Kafka. It takes the arguments of `lacks`.

    The opinion is `lacks` (missing evidence) for a sealed run, else `contradicts` (files disagree). A broken broker can
    give other answers than it has on disk. In a sealed run nobody has changed a file, so such a difference is not
    blamed on the files. In a run without a seal a file may have been changed.
    """
    return lacks if sealed else contradicts
