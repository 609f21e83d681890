"""The few lines of the nodes' logs that say what went wrong around the faults of a test."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

MOST: Final = 10
"""Lines of all nodes together."""
BEFORE_S: Final = 0.5
AFTER_S: Final = 5.0
"""What a fault brings about is logged so long after it: a session of a broker ends after 3 s and more."""
_WIDTH: Final = 240
_BAD: Final = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\] (WARN|ERROR|FATAL) (.*)")
_NUMBERS: Final = re.compile(r"\d+")


class BadLine(NamedTuple):
    """A line at WARN or above. Those of a node that differ in their numbers alone have one `kind`."""

    at: float
    severe: bool
    node: str
    text: str

    @property
    def kind(self) -> tuple[str, str]:
        return self.node, _NUMBERS.sub("#", self.text.partition("] ")[2])


def bad_lines(logs: Mapping[str, str], moments: Sequence[float], since: float = 0.0) -> list[str]:
    """Return at most `MOST` lines at WARN, ERROR and FATAL from the logs of nodes, by name: around these moments, or
    without any from `since` on (seconds since 1970). Of one kind only the first; severe ones are preferred."""
    found = sorted(
        line
        for node, log in logs.items()
        for line in _bad(node, log)
        if (not moments and line.at >= since)
        or any(moment - BEFORE_S <= line.at <= moment + AFTER_S for moment in moments)
    )
    count = Counter(line.kind for line in found)
    firsts = list({line.kind: line for line in reversed(found)}.values())
    shown = sorted(sorted(firsts, key=lambda line: (not line.severe, line.at))[:MOST])
    told = [_told(line, count[line.kind]) for line in shown]
    left = len(firsts) - len(shown)
    return told + ([f"… and {left} more kinds of lines at WARN or above"] if left else [])


def _told(line: BadLine, times: int) -> str:
    text = line.text if len(line.text) <= _WIDTH else f"{line.text[:_WIDTH]}…"
    return f"{line.node}: {text}" + (f" ({times} such lines)" if times > 1 else "")


def _bad(node: str, log: str) -> Iterator[BadLine]:
    for line in log.splitlines():
        if found := _BAD.match(line):
            yield BadLine(datetime.fromisoformat(found[1]).timestamp(), found[2] != "WARN", node, line)
