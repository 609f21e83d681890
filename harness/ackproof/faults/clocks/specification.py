"""Faults of clocks: the wall clock of single nodes jumps, as after a wrong time server or a resumed machine."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator

from ackproof.experiment.fault import HoldKey, NodeFault
from ackproof.experiment.needs import Need
from ackproof.experiment.quantities import Shift, shift_text, wrong

if TYPE_CHECKING:
    from ackproof.experiment.drawing import Draw
    from ackproof.experiment.nodes import Data

LEAST_S = 1.0
"""A smaller jump is hard to tell from the time that a busy machine takes to log a line."""


class ClockJump(NodeFault):
    """The wall clock jumps; what a JVM measures by the monotonic clock (time-outs, heartbeats) goes on."""

    KIND: ClassVar[str] = "clock_jump"
    SUMMARY: ClassVar[str] = "Let the wall clock of nodes jump forwards or back."
    HEALING: ClassVar[str] = "set the clock right"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"
    NOT_ON: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"attach": "the clocks of a cluster that someone else runs are out of reach; use `command`"}
    )

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
