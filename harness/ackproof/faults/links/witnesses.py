"""Who vouches for a broken link: connections that the harness makes over it as its source would, and the kernel.

None of them asks what was imposed. Each looks before the fault, during it and after it, and compares.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from ackproof.base.wait import wait_until
from ackproof.network.mesh import (
    BlackHole,
    Cut,
    Effect,
    Link,
    Mesh,
    Reset,
)

ANSWERS_WITHIN_S: Final = 2.0
"""A node in good health answers a probe within 5 ms."""
SILENT_FOR_S: Final = 0.8
"""How long a probe waits before it calls a link silent."""
STANDS_STILL_S: Final = 0.3
"""How long the kernel's counters are watched."""


@dataclass(frozen=True)
class Look:
    """What was seen of a link at one moment. `passes`: it carries questions and answers; `value` as the witness says.

    `seconds`, bytes or packets, whichever its witness measures.
    """

    passes: bool
    value: float
    words: str


class Witness(ABC):
    """Sees one effect. To look may take a few seconds, and raises `LinkError` where that cannot be done."""

    @abstractmethod
    def look(self, mesh: Mesh, link: Link) -> Look:
        """What is to be seen now."""

    def first(self, mesh: Mesh, link: Link) -> Look:
        """What is to be seen before the effect: looked for with patience where a busy machine could hide it."""
        return self.look(mesh, link)

    def bit(self, before: Look, now: Look) -> bool:
        """Whether the effect shows."""
        return before.passes and not now.passes

    def whole(self, before: Look, now: Look) -> bool:
        """Whether nothing of it is left."""
        return now.passes


@dataclass(frozen=True)
class Unreachable(Witness):
    """Of a link over which nothing passes: a probe that ends as `ways` say, and a source that gets no byte any more."""

    ways: tuple[str, ...] = ("refused", "reset", "closed", "silent")

    @classmethod
    def by(cls, effect: Effect) -> Unreachable:
        """Of one that is cut, resets, or is silent."""
        match effect:
            case Cut():
                return cls(("refused", "reset", "closed"))
            case Reset():
                return cls(("reset", "closed"))
            case BlackHole():
                return cls(("silent",))
        raise ValueError(f"{effect} lets something through")

    def look(self, mesh: Mesh, link: Link) -> Look:
        answer = mesh.probe(link, timeout_s=SILENT_FOR_S)
        if answer.passed:
            return Look(True, 0.0, f"probe {answer}")
        first = mesh.traffic(link)
        _pass(STANDS_STILL_S)
        later = mesh.traffic(link)
        came = later.received_since(first)
        words = f"probe {answer}, {came} bytes came back over {len(later.flows)} connections"
        return Look(came > 0 or answer.how not in self.ways, float(came), words)


def _pass(seconds: float) -> None:
    """Let a stretch of time go by over which something is measured."""
    until = time.monotonic() + seconds
    wait_until(
        lambda: time.monotonic() >= until, what="a measurement", timeout_s=seconds + 5, interval_s=seconds
    )
