"""Requests that another fault holds go on, some at a time.

::

    - hold_request: {link: clients -> leader(orders/0), api: Produce}
      when: acked >= 1000
      for: 10s
    - release_request: {link: clients -> leader(orders/0), api: Produce, count: 2}
      after: {fault: 1, by: 3s}

The proxy is not asked whether they have gone. On a connection on which a request waits nothing moves: for 2.5 seconds
the kernel's counts tell which stand still, then as many go as are asked for (they are waited for), and on as many of
those connections something must arrive at the other end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic import Field

from ackproof.cluster.network.mesh import Link, LinkError
from ackproof.cluster.network.requests.rules import Side
from ackproof.experiment.apis import APIS
from ackproof.experiment.base import Whole
from ackproof.experiment.incidents import NOTHING
from ackproof.faults.injection import Aim, FaultContext, Injection, injects
from ackproof.faults.requests.of_requests import BITES_WITHIN_S
from ackproof.faults.requests.on_link import OnLink

if TYPE_CHECKING:
    from collections.abc import Iterator

STOOD_STILL_S: Final = 2.5
"""For so long: more than a broker's heartbeats are apart, and a fetch waits for records."""
_MOVES_WITHIN_S: Final = 2.0


class ReleaseRequest(OnLink):
    """Those that came first go first; what comes behind them is held again."""

    KIND = "release_request"
    PER_NODE = NOTHING
    SUMMARY = "Let some of the requests go on that a hold_request holds; those that came first go first."

    count: Whole = Field(1, ge=1, le=10_000, description="How many of them.")

    def disturbs(self, producer: int) -> bool:
        del producer
        return False

    def __str__(self) -> str:
        return f"{self.kind} {self.link} ({self.count} {self.api} {self.side}s)"


@injects(ReleaseRequest)
class RequestRelease(Injection[ReleaseRequest]):
    """So many go, as soon as so many wait."""

    def __init__(self, fault: ReleaseRequest, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._laid = fault.laid(context.cluster)
        self._api = APIS[fault.api]
        self._side = Side(fault.side)
        self._links = fault.ends(aim, context.cluster)
        self._still: Mapping[tuple[Link, int], int] = {}
        """What had arrived at the connections that stood still before."""

    def inject(self) -> str:
        """Release them, after a look at which connections stand still."""
        left = self.fault.count

        def all_gone() -> bool:
            nonlocal left
            for link in self._links:
                if left:
                    left -= self._laid.release(link, self._api, self._side, left)
            return not left

        try:
            self._still = self._standing_still()
            self.seen(
                all_gone,
                f"{self.fault.count} to wait there",
                BITES_WITHIN_S,
                state=lambda: f"{self.fault.count - left} did",
            )
        except LinkError as error:
            raise self.unseen(error) from error
        return f"released {self.fault.count} {self.fault.api} {self.fault.side}s"

    def confirm(self) -> str:
        moved = self.seen(
            self._moved,
            "something to arrive where nothing did",
            _MOVES_WITHIN_S,
            state=lambda: f"nothing moved on {len(self._still)} connections that stood still",
        )
        return f"something arrived on {moved} of {len(self._still)} connections that had stood still"

    def confirm_healed(self) -> str:
        """Nothing is left to undo."""
        return "nothing was to be undone"

    def _standing_still(self) -> Mapping[tuple[Link, int], int]:
        first = self._received()
        over = time.monotonic() + STOOD_STILL_S
        self.seen(lambda: time.monotonic() >= over, "who stands still", 2 * STOOD_STILL_S)
        now = self._received()
        return {each: count for each, count in first.items() if now.get(each) == count}

    def _moved(self) -> int:
        """On how many of them something has arrived; 0 where these are fewer than were released."""
        now = self._received()
        moved = sum(now.get(each, count) > count for each, count in self._still.items())
        return moved if moved >= min(self.fault.count, len(self._still)) else 0

    def _received(self) -> Mapping[tuple[Link, int], int]:
        def each() -> Iterator[tuple[tuple[Link, int], int]]:
            for link in self._links:
                for inode, count in self._laid.received(link, self._api, self._side).items():
                    yield (link, inode), count

        try:
            return dict(each())
        except LinkError as error:
            raise self.unseen(error) from error
