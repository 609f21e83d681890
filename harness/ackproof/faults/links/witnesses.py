"""Who vouches for a broken link: connections that the harness makes over it as its source would, and the kernel.

None of them asks what was imposed. Each looks before the fault, during it and after it, and compares.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Final, Protocol

from ackproof.base.wait import wait_until
from ackproof.cluster.network.mesh import (
    BlackHole,
    Cut,
    Delay,
    DropLarge,
    Effect,
    Link,
    Loss,
    Mesh,
    Reset,
    SlowClose,
    Throttle,
)
from ackproof.cluster.network.probe import OVERHEAD

ANSWERS_WITHIN_S: Final = 2.0
"""A node in good health answers a probe within 5 ms."""
SILENT_FOR_S: Final = 0.8
"""How long a probe waits before it calls a link silent."""
STANDS_STILL_S: Final = 0.3
"""How long the kernel's counters are watched."""
VOLUME_S: Final = 1.0
"""A throttled link is asked for what takes so long at its rate."""
ROUNDS: Final = 5
LOSS_ASKS: Final = 150
LARGEST: Final = 30_000


@dataclass(frozen=True)
class Look:
    """What was seen of a link at one moment. `passes`: it carries questions and answers; `value` as the witness says.

    `seconds`, bytes or packets, whichever its witness measures.
    """

    passes: bool
    value: float
    words: str


class Witness(Protocol):
    """Sees one effect. Each method may take a few seconds, and raises `LinkError` where it cannot look."""

    def look(self, mesh: Mesh, link: Link) -> Look:
        """What is to be seen now."""

    def bit(self, before: Look, now: Look) -> bool:
        """Whether the effect shows."""

    def whole(self, before: Look, now: Look) -> bool:
        """Whether nothing of it is left."""


@dataclass(frozen=True)
class _Unreachable:
    """Of a cut, a black hole, resets: a probe that ends as `ways` say, and a source that gets no byte any more."""

    ways: tuple[str, ...]
    patience_s: float

    def look(self, mesh: Mesh, link: Link) -> Look:
        answer = mesh.probe(link, timeout_s=self.patience_s)
        if answer.passed:
            return Look(True, 0.0, f"probe {answer}")
        first = mesh.traffic(link)
        _pass(STANDS_STILL_S)
        later = mesh.traffic(link)
        came = later.received_since(first)
        words = f"probe {answer}, {came} bytes came back over {len(later.flows)} connections"
        return Look(came > 0 or answer.how not in self.ways, float(came), words)

    def bit(self, before: Look, now: Look) -> bool:
        return before.passes and not now.passes

    def whole(self, before: Look, now: Look) -> bool:
        return now.passes


NOTHING_PASSES: Final = _Unreachable(("refused", "reset", "closed", "silent"), SILENT_FOR_S)
"""Of a link on which several effects lie."""


@dataclass(frozen=True)
class _Thin:
    """Of a throttled link: how long a volume takes. `value` in seconds."""

    rate: int

    def look(self, mesh: Mesh, link: Link) -> Look:
        size = max(OVERHEAD, min(LARGEST, round(self.rate * VOLUME_S)))
        asks = max(1, min(64, round(self.rate * VOLUME_S / size)))
        answer = mesh.probe(link, timeout_s=10 * VOLUME_S, size=size, asks=asks)
        return Look(
            answer.passed, answer.seconds, f"{size * asks} bytes took {answer.seconds:.2f} s ({answer.how})"
        )

    def bit(self, before: Look, now: Look) -> bool:
        sent = max(OVERHEAD, min(LARGEST, self.rate)) * max(1, min(64, self.rate // LARGEST))
        least = 0.6 * min(VOLUME_S, sent / self.rate)
        # What stands below (a line that is thin or long already) adds up with this one.
        return now.value >= before.value + max(least, min(before.value, VOLUME_S))

    def whole(self, before: Look, now: Look) -> bool:
        return now.passes and now.value <= max(0.5 * VOLUME_S, 2 * before.value)


@dataclass(frozen=True)
class _Late:
    """Of a delayed link: how long a question and its answer take. `value` in seconds, the median of a few.

    The median, because one look that a busy machine held up would hide the delay, or pass for it.
    """

    latency: float

    def look(self, mesh: Mesh, link: Link) -> Look:
        rounds = [mesh.probe(link, timeout_s=ANSWERS_WITHIN_S + 6 * self.latency) for _ in range(ROUNDS)]
        middle = statistics.median(answer.seconds for answer in rounds)
        return Look(
            all(answer.passed for answer in rounds), middle, f"a round trip takes {middle * 1000:.1f} ms"
        )

    def bit(self, before: Look, now: Look) -> bool:
        return now.passes and now.value >= before.value + self.latency

    def whole(self, before: Look, now: Look) -> bool:
        return now.passes and now.value < before.value + self.latency


@dataclass(frozen=True)
class _Lossy:
    """Of lost packets: how often the kernel had to send those of a probe again. `value` in packets."""

    def look(self, mesh: Mesh, link: Link) -> Look:
        answer = mesh.probe(link, timeout_s=2.5, asks=LOSS_ASKS)
        asked = f"{answer.answers} of {LOSS_ASKS} questions answered"
        return Look(answer.passed, answer.resent, f"{asked}, {answer.resent} packets sent again")

    def bit(self, before: Look, now: Look) -> bool:
        return before.passes and (now.value > before.value or not now.passes)

    def whole(self, before: Look, now: Look) -> bool:
        return now.passes and now.value == 0


@dataclass(frozen=True)
class _Narrow:
    """Of dropped large packets: small questions pass, large ones do not."""

    above: int

    def look(self, mesh: Mesh, link: Link) -> Look:
        small = mesh.probe(link, timeout_s=ANSWERS_WITHIN_S)
        large = mesh.probe(link, timeout_s=SILENT_FOR_S, size=min(LARGEST, 2 * self.above))
        return Look(large.passed, float(small.passed), f"small questions {small.how}, large ones {large.how}")

    def bit(self, before: Look, now: Look) -> bool:
        return before.passes and not now.passes and now.value == 1

    def whole(self, before: Look, now: Look) -> bool:
        return now.passes


@dataclass(frozen=True)
class _Lingering:
    """Of slow closing: how long after our end of a connection the other comes. `value` in seconds."""

    delay: float

    def look(self, mesh: Mesh, link: Link) -> Look:
        seconds = mesh.closing(link, timeout_s=ANSWERS_WITHIN_S + 3 * self.delay)
        if seconds is None:
            return Look(False, float("inf"), "it did not close")
        return Look(True, seconds, f"closed after {seconds * 1000:.0f} ms")

    def bit(self, before: Look, now: Look) -> bool:
        return before.passes and now.value >= before.value + 0.8 * self.delay

    def whole(self, before: Look, now: Look) -> bool:
        return now.passes and now.value < before.value + 0.8 * self.delay


def witness_of(effect: Effect) -> Witness:
    """Who sees this effect."""
    match effect:
        case Cut():
            return _Unreachable(("refused", "reset", "closed"), SILENT_FOR_S)
        case Reset():
            return _Unreachable(("reset", "closed"), SILENT_FOR_S)
        case BlackHole():
            return _Unreachable(("silent",), SILENT_FOR_S)
        case Throttle(rate):
            return _Thin(rate)
        case Delay(latency):
            return _Late(latency)
        case Loss():
            return _Lossy()
        case DropLarge(above):
            return _Narrow(above)
        case SlowClose(delay):
            return _Lingering(delay)


def _pass(seconds: float) -> None:
    """Let a stretch of time go by over which something is measured."""
    until = time.monotonic() + seconds
    wait_until(
        lambda: time.monotonic() >= until, what="a measurement", timeout_s=seconds + 5, interval_s=seconds
    )
