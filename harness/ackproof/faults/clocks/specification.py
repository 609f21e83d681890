"""Faults of clocks: the wall clock of single nodes jumps, as after a wrong time server or a resumed machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import Field, field_validator

from ackproof.experiment.backends import Ability
from ackproof.experiment.fault import HoldKey, NodeFault
from ackproof.experiment.incidents import LAG, NOTHING, Incidents
from ackproof.experiment.needs import Need
from ackproof.experiment.quantities import Shift, shift_text, wrong
from ackproof.experiment.releases import numbers

if TYPE_CHECKING:
    from ackproof.experiment.drawing import Draw
    from ackproof.experiment.incidents import Exposure
    from ackproof.experiment.nodes import Data
    from ackproof.experiment.spec import Surroundings

_STAMPS_AHEAD_S: Final = 3600.0
"""message.timestamp.after.max.ms since 4.0 (KIP-937)."""
LEAST_S = 1.0
"""A smaller jump is hard to tell from the time that a busy machine takes to log a line."""


class ClockJump(NodeFault):
    """The wall clock jumps; what a JVM measures by the monotonic clock (time-outs, heartbeats) goes on."""

    KIND: ClassVar[str] = "clock_jump"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "Let the wall clock of nodes jump forwards or back."
    HEALING: ClassVar[str] = "set the clock right"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.CLOCKS})

    by: Shift = Field(description="How far: forwards (1h), or back (-1h).")

    @property
    def needs(self) -> frozenset[Need]:
        """JVMs whose clock can be set."""
        return frozenset({Need.CLOCKS})

    @field_validator("by")
    @classmethod
    def _far_enough(cls, value: float) -> float:
        if abs(value) < LEAST_S:
            raise wrong(f"a jump of {shift_text(value)} cannot be witnessed; at least 1s")
        return value

    def __str__(self) -> str:
        return f"{super().__str__()} by {shift_text(self.by)}"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Seconds or minutes, forwards or back."""
        return {"target": draw.role(), "by": draw.more.choice(("30s", "-30s", "10m", "-10m"))}

    def planned(self, exposure: Exposure) -> Incidents:
        """A leader counts by its wall clock how long its followers have lagged; set right, it jumps the other way."""
        far = abs(self.by) * 1000 >= exposure.time_out(LAG)
        return Incidents(shrinks=exposure.replicas - 1) if far and exposure.aimed_at(self) else NOTHING

    def not_simulated(self, spec: Surroundings) -> tuple[str, str] | None:
        if spec.workload.producers.transaction_size is not None:
            return "by", "its transaction coordinator does not look at the wall clock"
        if self.by <= -_STAMPS_AHEAD_S and numbers(spec.cluster.kafka) >= (4, 0):
            why = "its brokers take records that are stamped an hour ahead, which Kafka refuses from 4.0 on"
            return "by", why
        return None
