"""`slow_member`: members of a consumer group take longer for each record, for a while.

A member that exceeds `max.poll.interval.ms` leaves its group by itself. The witness is the member's output file, which
gets a line for each record that the member has processed. The harness watches when new lines appear.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import Field

from ackproof.base.processes import ClientProcess, process_state
from ackproof.base.units import Duration
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw
from ackproof.experiment.fault import Complaints
from ackproof.experiment.problems import Data
from ackproof.faults.clients.client import ClientFault, ClientInjection, has_ended
from ackproof.faults.injection import injects

if TYPE_CHECKING:
    from ackproof.clients.groups import Groups

OF_TIME: Final = 0.8
"""Share of `record_time` in which a slowed member must process no record, and a member at its usual pace two."""
WITHIN_S: Final = 60.0
"""Seconds, in addition to `record_time`, until a member is seen at its new pace. It may have to join again."""
_LINE: Final = b'"e":"processed"'


class SlowMember(ClientFault):
    """Members take longer for each record. Healing restores the time in their group's field `record_time`."""

    KIND = "slow_member"
    DONE = "slowed down"
    SUMMARY = (
        "Let members of a consumer group take longer for each record, such as beyond max.poll.interval.ms."
    )
    HEALING = "process at the usual pace"
    HOLD_KEY = "for"
    SHORT = ("client",)
    NOT_SIMULATED = "it has no groups"
    IN_FORCE_S = 60.0

    record_time: Duration = Field(ge=0.1, le=60, description="Time for each record.")

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        super().check(spec, say)
        usual = max((group.record_time for group in spec.workload.groups.values()), default=0.0)
        if self.client.kind != "member" or self.client.group in spec.workload.share_groups:
            say.report(("client",), f"{self.client} is no member of a consumer group")
        elif self.record_time < 3 * usual:
            say.report(
                ("record_time",), f"it is not slow: groups take {usual:g} s", "write three times that or more"
            )

    @property
    def lasts(self) -> float:
        return float("inf") if self.hold is None else self.hold

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        usual = max((group.record_time for group in draw.experiment.workload.groups.values()), default=-1.0)
        return None if usual < 0 else {"client": "member", "record_time": f"{max(0.5, 3 * usual):g}s"}

    def __str__(self) -> str:
        return f"{self.kind} {self.client} ({self.record_time:g} s)"


class _Pace:
    """Watches how fast a member processes records, by the `processed` events that appear in its output file from the
    creation of this object on. `seen`: times at which the last two were seen, in seconds on a monotonic clock."""

    def __init__(self, groups: Groups, client: ClientProcess) -> None:
        self.client = client
        self._path = groups.output(client.id)
        self._at = self._path.stat().st_size
        self._since = time.monotonic()
        self.seen: deque[float] = deque(maxlen=2)

    def look(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        self.seen.extend([time.monotonic()] * data.count(_LINE))

    def processes(self, within_s: float) -> bool:
        """Return True if the last two records that were processed were seen less than `within_s` seconds apart."""
        self.look()
        return len(self.seen) == 2 and self.seen[1] - self.seen[0] < within_s

    def is_slow(self, for_s: float) -> bool:
        """Return True if the process has processed no record for `for_s` seconds, all of which it was running."""
        self.look()
        runs = process_state(self.client.pid, self.client.started) == "running"
        self._since = self._since if runs else time.monotonic()
        return time.monotonic() - max([self._since, *self.seen]) >= for_s


@injects(SlowMember)
class _SlowMemberInjection(ClientInjection[SlowMember]):
    """Tell members to take longer for each record. Healing tells them to take their usual time.

    Confirmed when each member runs and processes no record for 80 % of `record_time`. Before the fault and after the
    healing it must process two records within that time, unless it has ended."""

    @property
    def _still_s(self) -> float:
        return OF_TIME * self.fault.record_time

    def _watch(self, client: ClientProcess) -> _Pace:
        """Return an observer of the member's pace. Before that, wait until the member processes records at its usual
        pace, or has ended. Raises `FaultNotConfirmed` if neither happens in time."""
        pace = _Pace(self.groups, client)
        self.wait_for(
            lambda: has_ended(client) or pace.processes(self._still_s),
            f"member {client.id} to process two records within {self._still_s:g} s",
            self.fault.record_time + WITHIN_S,
        )
        return pace

    def inject(self) -> str:
        for client in self.choose():
            self._watch(client)
            self.groups.tell(client.id, f"record_time {self.fault.record_time:g}")
            self.hit.append(client)
        return f"{self.fault.record_time:g} s for each record: {', '.join(self.clients)}"

    def confirm(self) -> str:
        for client in self.hit:
            self.wait_for(
                partial(_Pace(self.groups, client).is_slow, self._still_s),
                f"member {client.id} to process nothing for {self._still_s:g} s",
                self.fault.record_time + WITHIN_S,
            )
        return f"output: {', '.join(self.clients)} ran, and processed nothing for {self._still_s:g} s"

    def heal(self) -> str:
        told = [client.id for client in self.hit if not has_ended(client)]
        for name in told:
            self.groups.tell(name, "record_time")
        return f"the usual time for each record: {', '.join(told) or 'none: all have ended'}"

    def confirm_healed(self) -> str:
        seen = []
        for client in self.hit:
            self._watch(client)
            pace = f"processed two records within {self._still_s:g} s"
            seen.append(f"{client.id} {'has ended since' if has_ended(client) else pace}")
        return f"output: {', '.join(seen)}"
