"""The timestamps that a record may have, for the plain audit (reference.py)."""

from __future__ import annotations

from typing import NamedTuple


class Stamps(NamedTuple):
    """Rule for the timestamps of a partition. `base`: wall clock in ns where `sent_ns` is 0; None: no CreateTime.

    `within`: first and last ms of the run; None: no LogAppendTime. `unsure`: how many ns a CreateTime may lie before
    the send or after the answer; None: it equals the time of the send.
    """

    base: int | None = None
    within: tuple[int, int] | None = None
    unsure: int | None = None

    def permit(self, stamp, row) -> bool:
        """Return whether a record sent as `row` may have `stamp`, in ms. A negative one means no timestamp, which is
        always permitted."""
        if stamp < 0 or (self.within is not None and self.within[0] <= stamp <= self.within[1]):
            return True
        if self.base is None:
            return False
        if self.unsure is None:
            return stamp == (self.base + row.sent_ns) // 10**6
        early = stamp < (self.base + row.sent_ns - self.unsure) // 10**6
        answered = row.done_ns > row.sent_ns
        return not early and not (answered and stamp > (self.base + row.done_ns + self.unsure) // 10**6)
