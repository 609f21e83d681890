"""Further faults of processes: crash loop, death during start-up, out of memory, CPU starvation, quorum loss."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, field_validator

from ackproof.experiment.backends import Ability
from ackproof.experiment.base import Whole
from ackproof.experiment.fault import Complaints, FaultSpec, HoldKey, NodeFault
from ackproof.experiment.incidents import NOTHING, Incidents
from ackproof.experiment.quantities import Duration, wrong
from ackproof.experiment.releases import numbers
from ackproof.experiment.roles import Role, RoleKind

if TYPE_CHECKING:
    from ackproof.experiment.incidents import Exposure
    from ackproof.experiment.spec import Surroundings

_WITHOUT_CLIENTS = frozenset({RoleKind.CONTROLLER, RoleKind.CONTROLLERS, RoleKind.ZOOKEEPER})


class CrashLoop(NodeFault):
    """SIGKILL and start, again and again, as under a supervisor that always starts what has crashed."""

    KIND: ClassVar[str] = "crash_loop"
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(kills=1)
    SUMMARY: ClassVar[str] = "End the process at once and start it, again and again; at last it stays up."
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES})

    times: Whole = Field(3, ge=2, le=100, description="How many times it crashes.")
    up: Duration = Field(0.5, description="How long each process lives before it crashes.")

    def observed(self, nodes: int) -> Incidents:
        return super().observed(nodes * self.times)


class KillStarting(NodeFault):
    """SIGKILL, start, and SIGKILL again while it starts: recovery of its logs is itself interrupted."""

    KIND: ClassVar[str] = "kill_starting"
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(kills=2)
    SUMMARY: ClassVar[str] = "End the process, start it, and end it again before it has started."
    HEALING: ClassVar[str] = "start again"
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES})

    up: Duration = Field(0.1, description="How long it may live from its first line of log on.")


class OutOfMemory(NodeFault):
    """A broker's heap is used up by requests that claim to be large; its JVM ends by OutOfMemoryError.

    Each announces as much as socket.request.max.bytes allows, which the broker allocates at once.
    """

    KIND: ClassVar[str] = "out_of_memory"
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(kills=1)
    SUMMARY: ClassVar[str] = "Fill a broker's heap with announced requests until its JVM ends."
    HEALING: ClassVar[str] = "start again"
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES})

    @field_validator("target")
    @classmethod
    def _with_clients(cls, value: Role) -> Role:
        if value.kind in _WITHOUT_CLIENTS:
            raise wrong(f"{value} takes no requests of clients: aim at brokers")
        return value


class Starve(NodeFault):
    """The process gets a share of the time only: it is stopped and continued ten times a second (SIGSTOP, SIGCONT)."""

    KIND: ClassVar[str] = "starve"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "Let the process run for a share of the time only, ten times a second."
    HEALING: ClassVar[str] = "let it run"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES})

    share: float = Field(0.1, ge=0.01, le=0.9, description="Share of the time in which it runs.")

    def planned(self, exposure: Exposure) -> Incidents:
        return exposure.noticed(self, exposure.aimed_at(self))


class LoseQuorum(FaultSpec):
    """More than half of the controllers go, the active one among them: no metadata can change until they are back."""

    KIND: ClassVar[str] = "lose_quorum"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "Kill or pause more than half of the controllers, the active one among them."
    HEALING: ClassVar[str] = "bring them back"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES})
    NOT_IN: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"zookeeper": "there is no quorum of controllers; aim kill or pause at zookeeper"}
    )

    by: Literal["kill", "pause"] = Field("kill", description="SIGKILL, or SIGSTOP.")

    @property
    def targets(self) -> tuple[Role, ...]:
        """All controllers; which of them go follows from who is active."""
        return (Role(RoleKind.CONTROLLERS),)

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """Combined nodes would take their partitions with them, which is another fault."""
        if spec.cluster.combined and say.sound(("by",), cluster=True):
            say.report(
                (),
                "with combined nodes the brokers would go too; kill: {target: majority} says that",
                key=True,
            )

    def __str__(self) -> str:
        return f"{self.kind} by {self.by}"

    def planned(self, exposure: Exposure) -> Incidents:
        """Without a quorum no metadata can change, so nothing is elected, fenced or dropped; and whoever is the
        active controller next gives each broker a whole session."""
        del exposure
        return NOTHING


class RemoveController(NodeFault):
    """A controller is taken out of the quorum while it runs, and taken in again (KIP-853).

    The quorum is made a dynamic one first (kraft.version 1), which Kafka can do with a running one since 4.1.
    """

    KIND: ClassVar[str] = "remove_controller"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "Take a controller out of the quorum while it runs, and take it in again."
    HEALING: ClassVar[str] = "take it in again"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"
    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.PROCESSES})
    NOT_IN: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"zookeeper": "ZooKeeper's servers are no KRaft quorum"}
    )

    @field_validator("target")
    @classmethod
    def _one_controller(cls, value: Role) -> Role:
        if value.kind is not RoleKind.CONTROLLER:
            raise wrong(f"{value} is not one controller: aim at controller or controller(102)")
        return value

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """Two are left, and the release can."""
        if not say.sound(("target",), cluster=True):
            return
        if len(spec.cluster.controller_ids) < 3:
            say.report(("target",), "it takes 3 controllers or more, so that a quorum is left")
        elif numbers(spec.cluster.kafka) < (4, 1):
            say.report(
                ("target",),
                f"Kafka {spec.cluster.kafka} cannot change a running quorum; it takes 4.1 or later",
            )

    def planned(self, exposure: Exposure) -> Incidents:
        """Without a quorum no metadata can change, so nothing is elected, fenced or dropped; and whoever is the
        active controller next gives each broker a whole session."""
        del exposure
        return NOTHING
