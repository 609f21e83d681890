"""Jumps of single nodes' wall clocks, as after a wrong time server or a resumed machine.

The witness is the node: its log lines have its own time stamps. The difference to this machine's time is also read
before the jump, so that time zones cancel out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import Field, field_validator

from ackproof.base.errors import WaitTimeout
from ackproof.base.units import Shift, shift_text, wrong
from ackproof.cluster.clocks import ClockReading
from ackproof.cluster.protocol import LocalNode, clock_of
from ackproof.experiment.backends import Ability, Need
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import LAG, NOTHING, Draw, Exposure, Incidents
from ackproof.experiment.fault import WHERE_IT_RUNS, NodeFault
from ackproof.experiment.kafka import numbers
from ackproof.experiment.problems import Data
from ackproof.faults.injection import injects
from ackproof.faults.processes import ProcessInjection

_STAMPS_AHEAD_S: Final = 3600.0
"""Default of message.timestamp.after.max.ms since 4.0, in seconds: a broker refuses records whose timestamps
are further in the future."""
LEAST_S = 1.0
"""Smallest jump, in seconds. A smaller one is hard to tell from the time that a busy machine takes to log a line."""
SHARP: Final = 0.5
"""Maximum uncertainty of a measured jump (the difference of two clock readings), as a share of the jump. A less certain
reading is repeated."""


class ClockJump(NodeFault):
    """The wall clock jumps. Times that a JVM measures by the monotonic clock (time-outs, heartbeats) are not
    affected."""

    KIND = "clock_jump"
    SUMMARY = "Let the wall clock of nodes jump forwards or back."
    HEALING = "set the clock right"
    HOLD_KEY = "for"
    ASKS = frozenset({Ability.CLOCKS})
    OVER = WHERE_IT_RUNS

    by: Shift = Field(description="Shift: forwards (1h), or back (-1h).")

    NEEDS = frozenset({Need.CLOCKS})

    @field_validator("by")
    @classmethod
    def _far_enough(cls, value: float) -> float:
        if abs(value) < LEAST_S:
            raise wrong(f"a jump of {shift_text(value)} cannot be witnessed", "at least 1s")
        return value

    @property
    def clock_shift(self) -> float:
        return self.by

    def __str__(self) -> str:
        return f"{super().__str__()} by {shift_text(self.by)}"

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {"target": draw.role(), "by": draw.more.choice(("30s", "-30s", "10m", "-10m"))}

    def planned(self, exposure: Exposure) -> Incidents:
        """Return the removal of each follower from the ISR, because a leader measures the lag of followers by its wall
        clock. Return no incidents if the jump is less than replica.lag.time.max.ms, or hits no broker with a replica.
        """
        far = abs(self.by) * 1000 >= exposure.time_out(LAG)
        return (
            Incidents(shrinks=exposure.replicas - 1) if far and exposure.aimed_at(self.targets) else NOTHING
        )

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        if spec.workload.producers.transaction_size is not None:
            return "by", "its transaction coordinator does not look at the wall clock"
        if self.by <= -_STAMPS_AHEAD_S and numbers(spec.cluster.kafka.version) >= (4, 0):
            why = "its brokers take records that are stamped an hour ahead, which Kafka refuses from 4.0 on"
            return "by", why
        return None


@injects(ClockJump)
class ClockJumpInjection(ProcessInjection[ClockJump]):
    """Shift the wall clocks of nodes by the fault's `by`. Healing ends this shift; shifts by other faults stay.

    Both are confirmed when the time stamps in each node's log show the sum of the shifts in force. The uncertainty of
    that reading must be at most half of `by`.
    """

    _true: Mapping[int, ClockReading] = {}

    def inject(self) -> str:
        self._require_breakable()
        self._true = {node.id: self._read_unshifted(node) for node in self.nodes}
        for node in self.nodes:
            self._jump(node, self.fault.by)
        return f"the clock of {self._name_nodes()} set to {self.fault.by:+g} s"

    def confirm(self) -> str:
        return "; ".join(self._await_shift(node) for node in self.nodes)

    def heal(self) -> str:
        if not self._true:
            return "nothing to undo"
        for node in self.nodes:
            self._jump(node, 0.0)
        return f"the clock of {self._name_nodes()} set right"

    def confirm_healed(self) -> str:
        ready = self._await_ready()
        return "; ".join([*(self._await_shift(node) for node in self.nodes if node.id in self._true), ready])

    def _jump(self, node: LocalNode, seconds: float) -> None:
        """Shift the node's clock by `seconds` for this fault (0 ends its shift), in addition to the shifts of
        other faults."""
        with self.holds.acting_on(node.id):
            self.holds.jump(node.id, self.fault.number, seconds)
            self._shift(node, self.holds.jumped(node.id))

    @staticmethod
    def _shift(node: LocalNode, seconds: float) -> None:
        clock_of(node).shift(seconds)

    def _read_unshifted(self, node: LocalNode) -> ClockReading:
        """Return the clock's reading without the shifts of other faults, as soon as its uncertainty is at most a
        quarter of the jump. Raises `FaultNotConfirmed` if no such reading comes in time."""

        def sharp() -> ClockReading | None:
            off = self.holds.jumped(node.id)
            now = self._look(node)
            # After another jump in between, the time of the stamp is ambiguous.
            known = now if off == self.holds.jumped(node.id) else None
            if known is None or not known.is_sharp(abs(self.fault.by) * SHARP / 2):
                return None
            return known - ClockReading(off, off)

        return self.wait_for(sharp, f"the clock of node {node.id} before it jumps")

    def _await_shift(self, node: LocalNode) -> str:
        """Wait until the node's clock shows the sum of all its shifts, while no other fault holds the node; return what
        was seen, in words. Raises `FaultNotConfirmed` if the clock does not show the sum in time."""
        moved: list[ClockReading] = []

        def there() -> bool:
            off = self.holds.jumped(node.id)
            if (now := self._look(node)) is None:
                return False
            moved[:] = [now - self._true[node.id]]
            return moved[0].near(off, abs(self.fault.by) * SHARP) and off == self.holds.jumped(node.id)

        what = f"the clock of node {node.id} to be off by {self.holds.jumped(node.id):+g} s"

        def state() -> str:
            return f"its log's stamps are off by {moved[0]}" if moved else "it logs nothing"

        self._when_free(node, lambda: self.wait_for(there, what, state=state))
        return f"log stamps of node {node.id}: off by {moved[0]}"

    @staticmethod
    def _look(node: LocalNode) -> ClockReading | None:
        try:
            return clock_of(node).read()
        except (OSError, WaitTimeout):
            return None  # busy, or starting: look again
