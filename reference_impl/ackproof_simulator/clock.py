"""Virtual time: events in the order of their time, those of one moment in the order in which they were asked for."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

Act: TypeAlias = Callable[..., object]

MS = 1_000_000
SECOND = 1_000_000_000


class Clock:
    """`now` is nanoseconds since the run's start."""

    __slots__ = ("_count", "_queue", "now", "over")

    def __init__(self) -> None:
        self.now = 0
        self.over = False
        self._queue: list[tuple[int, int, Act, tuple[object, ...]]] = []
        self._count = 0

    def at(self, when: int, act: Act, *args: object) -> None:
        """Call `act` at a time; what is asked for in the past happens now."""
        self._count += 1
        heappush(self._queue, (when if when > self.now else self.now, self._count, act, args))

    def after(self, delay: int, act: Act, *args: object) -> None:
        """Call `act` after so many nanoseconds."""
        self._count += 1
        heappush(self._queue, (self.now + delay, self._count, act, args))

    def run(self) -> None:
        """Let everything happen until somebody sets `over`, or nothing is left."""
        queue = self._queue
        while queue and not self.over:
            self.now, _, act, args = heappop(queue)
            act(*args)
