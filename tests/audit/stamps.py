"""The timestamps that a record may have, a second time: one by one."""

from __future__ import annotations

from typing import NamedTuple


class Stamps(NamedTuple):
    """From when `sent_ns` counts (CreateTime), the first and last ms of the run (LogAppendTime); None: never in force.
    `unsure`: so far a timestamp may lie outside of sent to done; None: it is that of the send."""

    base: int | None = None
    within: tuple[int, int] | None = None
    unsure: int | None = None

    def permit(self, stamp, row) -> bool:
        """A record in the oldest format has none."""
        if stamp < 0 or (self.within is not None and self.within[0] <= stamp <= self.within[1]):
            return True
        if self.base is None:
            return False
        if self.unsure is None:
            return stamp == (self.base + row.sent_ns) // 10**6
        early = stamp < (self.base + row.sent_ns - self.unsure) // 10**6
        answered = row.done_ns > row.sent_ns
        return not early and not (answered and stamp > (self.base + row.done_ns + self.unsure) // 10**6)
