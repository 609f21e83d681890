"""A fault that the user does: commands for breaking, looking, mending.

The only one that reaches the machines of a cluster that someone else runs; it can be used on every backend.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from pydantic import ConfigDict, Field

from ackproof.experiment.base import Text
from ackproof.experiment.fault import FaultSpec, HoldKey
from ackproof.experiment.quantities import Duration
from ackproof.experiment.roles import Role, RoleField

Argv: TypeAlias = Annotated[tuple[Text, ...], Field(min_length=1, max_length=200)]


class CommandFault(FaultSpec):
    """Commands as lists of words, run without a shell from the folder in which ackproof was called.

    `{bootstrap}` and `{nodes}` (who holds `target`, with commas) in a word are replaced. `check` must end with
    another status than 0 before the fault, and with 0 once it is in force: a check that cannot say no proves nothing.
    """

    KIND: ClassVar[str] = "command"
    UNPREDICTABLE: ClassVar[str] = "nobody knows what a command does"
    NOT_SIMULATED: ClassVar[str] = "your commands would act on this machine, not on virtual brokers"
    SUMMARY: ClassVar[str] = "Run a command of yours, believed when your own check command says so."
    HEALING: ClassVar[str] = "run heal"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"
    model_config = ConfigDict(populate_by_name=True)

    inject: Argv = Field(description="What breaks something; it must end with status 0.")
    looks: Argv = Field(alias="check", description="Status 0: it is broken. Any other: it is not (yet).")
    heal: Argv = Field(description="What mends it; it must end with status 0.")
    heal_check: Argv | None = Field(
        None, description="Status 0: it is mended. Without it check's status must be another than 0 again."
    )
    timeout: Duration = Field(
        30.0, gt=0, le=3600, description="How long each command may take, and how long its check may say no."
    )
    target: RoleField | None = Field(
        None, title="Target", description="Whom {nodes} stands for, resolved when it is due."
    )

    @property
    def targets(self) -> tuple[Role, ...]:
        """The role, if there is one."""
        return () if self.target is None else (self.target,)

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.inject)}"[:200]
