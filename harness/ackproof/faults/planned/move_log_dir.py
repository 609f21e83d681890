"""Replicas move to another log dir of their brokers.

Asked for through the protocol, witnessed on the disk: the partition's folder is in another log dir, and in no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import field_validator

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster import admin
from ackproof.cluster.protocol import LocalNode, local
from ackproof.experiment.backends import Ability
from ackproof.experiment.exposure import NOTHING, Draw
from ackproof.experiment.fault import WHERE_IT_RUNS, Complaints, FaultSpec
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import PartitionField, Role, RoleField, refuse_controllers
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.injection import Aim, FaultContext, Injection, injects
from ackproof.rundir.partition import TopicPartition

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

    def check(self, spec: SystemUnderTest, say: Complaints) -> None:
        """There is another log dir."""
        if spec.cluster.log_dirs < 2 and say.sound(("target",), cluster=True):
            say.report(("target",), "its brokers have one log dir; cluster.log_dirs: 2 gives them two")

    def __str__(self) -> str:
        return f"{self.kind} {self.partition} of {self.target}"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Of a replica, where there are several log dirs."""
        place = draw.other_place()
        return {"partition": place, "target": f"leader({place})"}


@injects(MoveLogDir)
class LogDirMove(Injection[MoveLogDir]):
    """Each replica goes from the log dir that holds it to the next."""

    def __init__(self, fault: MoveLogDir, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self.nodes: tuple[LocalNode, ...] = local(aim.nodes)
        self.place = TopicPartition(*fault.partition)
        self._before: dict[int, tuple[Path, ...]] = {}

    def inject(self) -> str:
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
        """The partition's folder is in another log dir."""
        said = []
        for node in self.nodes:
            before = self._before[node.id]
            now = self.seen(
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
        """The replicas that moved are in sync."""
        moved = {node.id for node in self.nodes}
        self.seen(
            lambda: (
                (state := self.context.cluster.topic_state([self.place.topic]).get(self.place)) is not None
                and moved <= set(state.isr)
            ),
            f"the replicas of {self.place} that moved to be in sync",
        )
        return f"metadata: broker {', '.join(map(str, sorted(moved)))} in the ISR of {self.place}"

    def _on_disk(self, node: LocalNode) -> tuple[Path, ...]:
        """The folders of the partition on this broker, in whatever log dir."""
        name = f"{self.place.topic}-{self.place.partition}"
        return tuple(folder / name for folder in node.disk.log_dirs if (folder / name).is_dir())
