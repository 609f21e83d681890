"""What a node logged around the faults of a test, rather than what it logged last: that is the audit's aftermath."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

LINES: Final = 8
"""So many for each moment."""
MOMENTS: Final = 3
"""The first of these are told of: what comes later is mostly healing."""
BEFORE_S: Final = 0.5
AFTER_S: Final = 5.0
"""What a fault brings about is logged so long after it: a session of a broker ends after 3 s and more."""
_WIDTH: Final = 240
_READ: Final = 100_000
_STAMP: Final = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\] ")
_EVERY_MOMENT: Final = re.compile(r"Periodic task|\(PeriodicTaskControlManager\)")
"""Lines that a controller logs whether anything happens or not."""


def excerpt(log_tail: Callable[[int], str], moments: Sequence[float]) -> list[str]:
    """Lines of a log around these moments (seconds since 1970, ascending); its last where nothing is told of any."""
    lines = [line for line in log_tail(_READ).splitlines() if not _EVERY_MOMENT.search(line)]
    stamped = list(_stamped(lines))
    shown: dict[int, None] = {}
    for moment in moments[:MOMENTS]:
        near = [
            at for at, then in stamped if moment - BEFORE_S <= then <= moment + AFTER_S and at not in shown
        ]
        shown |= dict.fromkeys(near[:LINES])
    chosen = [lines[at] for at in sorted(shown)] or lines[-LINES:]
    return [line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…" for line in chosen]


def _stamped(lines: Sequence[str]) -> Iterator[tuple[int, float]]:
    """Lines that begin with a time, as seconds since 1970."""
    for at, line in enumerate(lines):
        if found := _STAMP.match(line):
            yield at, datetime.fromisoformat(found[1]).timestamp()
