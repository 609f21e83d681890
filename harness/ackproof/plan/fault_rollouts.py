"""Planned work on node after node: rolling restart and rolling upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ackproof.plan.base import Flag
from ackproof.plan.faults import Complaints, FaultSpec, NodeFault, register
from ackproof.plan.problems import nearest
from ackproof.plan.quantities import Duration
from ackproof.plan.releases import RELEASES, numbers
from ackproof.plan.versions import Version

if TYPE_CHECKING:
    from ackproof.plan.spec import ExperimentSpec


@register
class RollingRestart(NodeFault):
    """A controlled shutdown and a start of node after node, as an operator does it to load new settings.

    The next node's turn comes when all partitions have their ISRs full again.
    """

    KIND: ClassVar[str] = "rolling_restart"
    SUMMARY: ClassVar[str] = "Restart node after node in good order; the next when all ISRs are full again."

    await_isr: Flag = Field(True, description="Wait for full ISRs between nodes; false: for the node alone.")
    rest: Duration = Field(0.0, description="How long each node runs before the next one's turn.")


@register
class Upgrade(FaultSpec):
    """A rolling upgrade of the whole cluster: controllers, then brokers, then the release's feature levels.

    Each node is shut down in good order and started on the jars of the other release, with the data that it has.
    """

    KIND: ClassVar[str] = "upgrade"
    SUMMARY: ClassVar[str] = (
        "Restart node after node on a newer release of Kafka, then raise the feature levels."
    )

    to: Version = Field(description="The release to run afterwards, in quotes; newer than cluster.kafka.")
    finalise: Flag = Field(
        True, description="Raise the feature levels to those of the new release at the end."
    )

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        """There is such a release, and it is newer."""
        if not say.sound(("to",), cluster=True):
            return
        now = spec.cluster.kafka
        if self.to not in RELEASES:
            say.report(("to",), f"Kafka '{self.to}' does not exist", nearest(self.to, RELEASES))
        elif numbers(self.to) <= numbers(now):
            say.report(("to",), f"Kafka {self.to} is not newer than {now}; KRaft metadata cannot go back")

    def __str__(self) -> str:
        return f"{self.kind} to {self.to}"
