"""When the next records are due, for a client that sends at a rate."""

from __future__ import annotations

from typing import Final

_MOST_BEHIND_S: Final = 0.2


class Pace:
    """A smooth schedule of `rate` records per second, from the first look on.

    What a client could not send in time is made up for by at most 0.2 s worth of records: a cluster that comes
    back is not met by a burst of everything that its absence delayed.
    """

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._start_s = now_s
        self._sent = 0

    def due(self, now_s: float) -> int:
        """How many records are due at `now_s` (seconds on any one clock)."""
        due = int((now_s - self._start_s) * self._rate) + 1 - self._sent
        most = max(1, int(self._rate * _MOST_BEHIND_S))
        if due > most:
            self._start_s += (due - most) / self._rate
            due = most
        return max(0, due)

    def sent(self, count: int) -> None:
        self._sent += count

    def wait_s(self, now_s: float) -> float:
        """Seconds from `now_s` until the next record is due."""
        return max(0.0, self._start_s + self._sent / self._rate - now_s)
