"""Planned work on one partition: elections, and moves to another log dir.

The witness of an election is another broker than the requested one: it shows the new leader in a newer epoch. The
witness of a move is the disk: the partition's folder is in another log dir, and in no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import Field, field_validator

from ackproof.base.advice import Advice
from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import admin
from ackproof.cluster.admin import Election
from ackproof.cluster.protocol import LocalNode, local
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.backends import Ability
from ackproof.experiment.base import PartitionField
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import NOTHING, Draw, Exposure, Incidents
from ackproof.experiment.fault import WHERE_IT_RUNS, Complaints, FaultSpec
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import Role, RoleField, RoleKind, refuse_controllers
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, Injection, injects
from ackproof.faults.planned.views import ask_for_one, find_views, state_at, state_of, views

UNCLEAN: Final = "unclean.leader.election.enable"
BrokerId: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]


class PartitionOperation(FaultSpec):
    """Base of faults that change one partition as an operator does; they target its preferred leader."""

    partition: PartitionField

    @property
    def targets(self) -> tuple[Role, ...]:
        """Return the role of the preferred leader, which has a holder even while the partition has no leader."""
        return (Role(RoleKind.PREFERRED_LEADER, self.partition.topic, self.partition.partition),)

    def __str__(self) -> str:
        return f"{self.kind} {self.partition}"


def missing_broker(spec: ExperimentSpec, broker: int) -> str:
    """Return the message for a broker id that the cluster does not have. It names the valid ids."""
    last = spec.cluster.broker_ids[-1]
    return Advice(
        f"broker {broker} does not exist",
        f"the brokers of this cluster are {'1' if last == 1 else f'1 to {last}'}",
    )


PlannedT = TypeVar("PlannedT", bound=PartitionOperation)


class PartitionOperationInjection(Injection[PlannedT]):
    """Base of injections that request a change of a partition at one broker, and witness it at another. A broker that
    runs alone has both roles."""

    def __init__(self, fault: PlannedT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.place = fault.partition
        self._before: PartitionState | None = None

    @property
    def state_before(self) -> PartitionState:
        if self._before is None:
            raise FaultNotConfirmed(f"{self.fault.kind} was not begun")
        return self._before

    def _look(self) -> None:
        """Record the partition's state before the change, and wait for a broker that takes requests. Raises
        `FaultNotConfirmed` if no broker shows the partition, or takes requests, in time."""
        self._before = state_of(self.context, self.place)
        views(self.context)

    def _witness(self) -> PartitionState | None:
        """Return the partition as the witness broker shows it now. Return None if `find_views` finds no brokers, or if
        the witness does not answer or know the partition. The witness is chosen at each call, because brokers may
        restart."""
        look = find_views(self.context)
        return None if look is None else state_at(look.witness_link, self.place)


_ELECTION_NOT_NEEDED: Final = 84


class ElectPreferred(PartitionOperation):
    """A preferred election: the first of the assigned replicas becomes leader again (KIP-460)."""

    KIND = "elect_preferred"
    SUMMARY = "Make the first assigned replica of a partition its leader; another must lead at that time."

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {"partition": draw.other_place()}

    def planned(self, exposure: Exposure) -> Incidents:
        return Incidents(preferred=1, hand_overs=1)


class ElectUnclean(PartitionOperation):
    """An unclean election by an operator: a live replica becomes leader although it is not in the ISR. It ignores
    unclean.leader.election.enable. Records that the new leader does not have are lost."""

    KIND = "elect_unclean"
    SUMMARY = "Make a live replica that is not in the ISR the leader of a leaderless partition."

    def may_set(self, spec: ExperimentSpec, topic: str) -> Mapping[str, str]:
        """Return the setting that allows unclean elections, if the fault concerns a partition of `topic`; else an empty
        mapping. The judge treats the fault as if the topic had this setting."""
        return {UNCLEAN: "true"} if topic == self.partition.topic else {}

    def planned(self, exposure: Exposure) -> Incidents:
        return Incidents(unclean=1)


@injects(ElectPreferred, ElectUnclean)
class _ElectionInjection(PartitionOperationInjection[PartitionOperation]):
    """Request an election, and wait until another broker shows its result in a newer leader epoch.

    A preferred election is confirmed when the preferred replica leads. `FaultNotConfirmed` is raised if that replica
    leads already or is not in the ISR. An unclean election is confirmed when a replica outside the previous ISR leads.
    `FaultNotConfirmed` is raised if the partition has a leader, or if a member of that ISR is elected. Healing does
    nothing; it is confirmed when the partition's leader answers.
    """

    @property
    def election(self) -> Election:
        return Election.UNCLEAN if isinstance(self.fault, ElectUnclean) else Election.PREFERRED

    def inject(self) -> str:
        self._look()
        self._must_change_something()
        asked = ask_for_one(
            self.context, lambda link: admin.elect(link, self.place, self.election), _ELECTION_NOT_NEEDED
        )
        return f"asked broker {asked} for a {self.election.name.lower()} election of {self.place}"

    def _must_change_something(self) -> None:
        before = self.state_before
        preferred = before.replicas[0]
        if self.election is Election.UNCLEAN:
            if before.leader >= 0:
                raise FaultNotConfirmed(
                    f"broker {before.leader} leads {self.place}: an unclean election takes a leaderless partition"
                )
        elif before.leader == preferred:
            raise FaultNotConfirmed(
                f"broker {preferred}, the preferred leader, leads {self.place} already: nothing to elect"
            )
        elif preferred not in before.isr:
            raise FaultNotConfirmed(
                f"broker {preferred}, the preferred leader of {self.place}, is not in sync {list(before.isr)}"
            )

    def _find_elected(self) -> PartitionState | None:
        state, before = self._witness(), self.state_before
        if state is None or state.leader_epoch <= before.leader_epoch:
            return None
        if self.election is Election.PREFERRED:
            return state if state.leader == before.replicas[0] else None
        if state.leader in before.isr:
            raise FaultNotConfirmed(
                f"broker {state.leader} came to lead {self.place} and was in sync {list(before.isr)}: "
                "that election was clean"
            )
        return state if state.leader >= 0 else None

    def confirm(self) -> str:
        before = self.state_before
        after = self.wait_for(
            self._find_elected,
            f"another broker to show a new leader of {self.place}",
            state=lambda: str(self._witness()),
        )
        return (
            f"metadata of {views(self.context).name}: leader of {self.place} {before.leader} → {after.leader}, "
            f"epoch {before.leader_epoch} → {after.leader_epoch}, ISR before {list(before.isr)}"
        )

    def confirm_healed(self) -> str:
        ends = self.wait_for(
            lambda: self.context.cluster.partition_ends([self.place.topic]).get(self.place),
            f"the leader of {self.place} to answer for it",
        )
        return (
            f"protocol: broker {ends.leader} answers as leader of {self.place} in epoch {ends.leader_epoch}"
        )


MOVED_WITHIN_S: Final = 60.0


class MoveLogDir(FaultSpec):
    """Replicas of a partition move to another log dir of their brokers (JBOD), while they lead or follow."""

    KIND = "move_log_dir"
    PER_NODE = NOTHING
    SUMMARY = "Move replicas of a partition to another log dir of the same broker."
    ASKS = frozenset({Ability.DISKS})
    OVER = WHERE_IT_RUNS

    partition: PartitionField
    target: RoleField

    @field_validator("target")
    @classmethod
    def _brokers_only(cls, value: Role) -> Role:
        return refuse_controllers(value, "holds no partitions")

    @property
    def targets(self) -> tuple[Role, ...]:
        return (self.target,)

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        if spec.cluster.log_dirs < 2 and say.sound(("target",), cluster=True):
            say.report(("target",), "its brokers have one log dir", "cluster.log_dirs: 2 gives them two")

    def __str__(self) -> str:
        return f"{self.kind} {self.partition} of {self.target}"

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        place = draw.other_place()
        return {"partition": place, "target": f"leader({place})"}


@injects(MoveLogDir)
class _LogDirMove(Injection[MoveLogDir]):
    """Move each replica to another log dir of its broker: the first, sorted by path, that does not have the partition.

    The witness is the disk: the partition's folder is then in one log dir only, another than before. Raises
    `FaultNotConfirmed` if a broker does not run, has no replica of the partition, or has no other log dir. Healing does
    nothing; it is confirmed when the moved replicas are in sync.
    """

    def __init__(self, fault: MoveLogDir, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.nodes: tuple[LocalNode, ...] = local(aim.nodes)
        self.place = fault.partition

    def inject(self) -> str:
        self._before: dict[int, tuple[Path, ...]] = {}
        did = []
        for node in self.nodes:
            link = self.context.cluster.running_links().get(node.id)
            if link is None:
                raise FaultNotConfirmed(f"broker {node.id} does not run: nothing to move")
            dirs = admin.log_dirs(link)
            holding = [path for path, replicas in dirs.items() if self.place in replicas]
            others = sorted(path for path in dirs if path not in holding)
            if not holding or not others:
                raise FaultNotConfirmed(f"broker {node.id} holds no replica of {self.place} that could move")
            before = self._on_disk(node)
            admin.move_log_dir(link, self.place, others[0])
            self._before[node.id] = before
            did.append(f"broker {node.id}: {Path(holding[0]).name} → {Path(others[0]).name}")
        return f"asked for the move of {self.place} at {', '.join(did)}"

    def confirm(self) -> str:
        said = []
        for node in self.nodes:
            before = self._before[node.id]
            now = self.wait_for(
                lambda node=node, before=before: (  # type: ignore[misc]
                    found if len(found := self._on_disk(node)) == 1 and found != before else None
                ),
                f"the folder of {self.place} to be in another log dir of broker {node.id}",
                state=lambda node=node: str(list(map(str, self._on_disk(node)))),  # type: ignore[misc]
                within_s=MOVED_WITHIN_S,
            )
            said.append(f"broker {node.id}: {now[0].parent.name}, before {before[0].parent.name}")
        return f"disk: the folder of {self.place} is at " + "; ".join(said)

    def confirm_healed(self) -> str:
        moved = {node.id for node in self.nodes}
        self.wait_for(
            lambda: (
                (state := self.context.cluster.topic_state([self.place.topic]).get(self.place)) is not None
                and moved <= set(state.isr)
            ),
            f"the replicas of {self.place} that moved to be in sync",
        )
        return f"metadata: broker {', '.join(map(str, sorted(moved)))} in the ISR of {self.place}"

    def _on_disk(self, node: LocalNode) -> tuple[Path, ...]:
        name = f"{self.place.topic}-{self.place.partition}"
        return tuple(folder / name for folder in node.disk.log_dirs if (folder / name).is_dir())
