"""Base of disk faults, and the fault of emptied disks.

Most disk faults heal by a start of the node; a slow disk is thawed. Then each replica must be in sync again. The
witness of an emptied disk is a listing of the node's folders.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from ackproof.base.advice import Advice
from ackproof.base.errors import AckproofError, FaultNotConfirmed, WaitTimeout
from ackproof.base.units import Duration, wrong
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.backends import Ability
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw, Incidents
from ackproof.experiment.fault import WHERE_IT_LIVES, Complaints, Grip, NodeFault
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import RoleKind
from ackproof.faults.context import FaultContext
from ackproof.faults.injection import Aim, SpecT, injects
from ackproof.faults.processes import GONE_WITHIN_S, STOPPED_WITHIN_S, ProcessInjection
from ackproof.rundir.partition import TopicPartition, internal

_START: Final = "start again"
BACK_WITHIN_S: Final = 60.0


class DiskFault(NodeFault):
    """Base of faults of a node's disk, such as a power loss, a full or slow disk, or a damaged segment."""

    ASKS = frozenset({Ability.DISKS})
    GRIP: ClassVar[Grip | None] = Grip.DOWN
    OVER = WHERE_IT_LIVES
    IN_FORCE_S = 5.0

    def misfits(self, experiment: ExperimentSpec) -> Iterable[tuple[str, str]]:
        """Return conflicts of this fault with the rest of the experiment, each as (name of a field, sentence). Here:
        none."""
        return ()

    def check(self, spec: ExperimentSpec, say: Complaints) -> None:
        for name, message in self.misfits(spec):
            if say.sound((name,), cluster=True):
                say.report((name,), message)


class DiskInjection(ProcessInjection[SpecT]):
    """Base injection of disk faults. Healing kills nodes that run, repairs their disks, and starts the nodes that no
    other fault keeps down. The healing is confirmed when each replica of these nodes is in sync again."""

    def heal(self) -> str:
        if self.refused:
            return "nothing to undo"
        running = [node for node in self.nodes if node.state() is not NodeState.GONE]
        for node in running:
            node.kill()
        self._await_state(NodeState.GONE, GONE_WITHIN_S)
        words = []
        for node in self.nodes:
            with self.holds.acting_on(node.id):  # keep other faults away from its disk
                words.append(self._mend(node))
        mended = "; ".join(filter(None, words))
        started = self._start_dead_nodes()
        return f"{mended}; {started}" if mended else started

    def _mend(self, node: LocalNode) -> str:
        """Repair the disk of one node before the node starts; return what was done, in words. Here: nothing, ''."""
        return ""

    def confirm_healed(self) -> str:
        if self.refused:
            return self._await_ready()
        return f"{self._await_ready()}; {in_sync_again(self.context, self.nodes)}"


def in_sync_again(context: FaultContext, nodes: tuple[LocalNode, ...]) -> str:
    """Wait until these nodes are in the ISR of every partition of which they have a replica, and every partition has a
    leader. Return that in words. Do not wait if there is no topic, or if no node is a broker.

    The partitions are those of the experiment's topics. Without an experiment, they are those of all topics on the
    nodes' disks that are not internal. Raises `FaultNotConfirmed` after `BACK_WITHIN_S` seconds, `Interrupted` if the
    run is stopped.
    """
    if context.case is not None:
        topics = list(context.case.experiment.topics)
    else:
        topics = sorted(
            {topic for node in nodes for topic, _ in node.disk.partitions() if not internal(topic)}
        )
    brokers = {node.id for node in nodes if node.is_broker}
    if not topics or not brokers:
        return "no replicas to wait for"
    seen: dict[TopicPartition, PartitionState] = {}

    def behind() -> list[str]:
        return [
            f"{place} has {list(state.isr)} of {list(state.replicas)} in sync, leader {state.leader}"
            for place, state in seen.items()
            if state.leader < 0 or not brokers & set(state.replicas) <= set(state.isr)
        ]

    def all_in() -> bool:
        seen.clear()
        seen.update(context.cluster.topic_state(topics))
        return bool(seen) and not behind()

    try:
        wait_until(
            all_in,
            what=f"the replicas of {', '.join(map(str, sorted(brokers)))} to be in sync",
            timeout_s=BACK_WITHIN_S,
            state=lambda: "; ".join(behind()[:3]) or "no broker tells",
            stop=context.stop,
        )
    except WaitTimeout as error:
        raise FaultNotConfirmed(str(error)) from error
    mine = [place for place, state in seen.items() if brokers & set(state.replicas)]
    return f"metadata: in the ISR of all its {len(mine)} partition(s)"


class EmptyDisk(DiskFault):
    """SIGKILL, and the node returns under the same id with an empty disk that is formatted again.

    With `restore`, a copy of the node's folders is put back instead. The copy is made while the node runs,
    `age` seconds before its end (`live`), or after a controlled shutdown in place of the SIGKILL (`stopped`).
    """

    KIND = "empty_disk"
    DONE = "left without data"
    # Counts as a power loss after which nothing is left on disk.
    PER_NODE = Incidents(power_losses=1)
    ENDS_NODES = True
    SUMMARY = "End the process and empty its disk; it returns under the same id, with a copy if wanted."
    HEALING = _START
    HOLD_KEY = "restart_after"

    restore: Literal["nothing", "live", "stopped"] = Field(
        "nothing",
        description="Content on return: nothing, or a copy made while the node ran, or after it had stopped.",
    )
    age: Duration = Field(
        0.0, ge=0, le=60, description="Time for which the node runs on after the live copy was made."
    )

    @model_validator(mode="after")
    def _only_a_live_copy_is_older(self) -> Self:
        if self.age and self.restore != "live":
            raise wrong("'age' goes with restore: live only", "another copy is none of a running node")
        return self

    def misfits(self, experiment: ExperimentSpec) -> Iterator[tuple[str, str]]:
        """Yield conflicts with the experiment, each as (name of a field, sentence).

        The backend `model` cannot restore a copy, because its disks hold no files. The target must not be the only
        controller, because the cluster would lose all its metadata.
        """
        cluster = experiment.cluster
        if self.restore != "nothing" and experiment.backend == "model":
            yield "restore", "disks of the model can be emptied, and hold no copy"
        lone = cluster.controller_ids[0] if len(cluster.controller_ids) == 1 else None
        for role in self.target.roles if lone is not None else ():
            holds = role.kind is RoleKind.RACK and lone in role.reach(cluster.members)[0]
            if holds or role.kind in (RoleKind.CONTROLLER, RoleKind.CONTROLLERS) or role.node == lone:
                which = f"may have the only controller, {lone}" if holds else "is the only controller"
                yield (
                    "target",
                    Advice(
                        f"{role} {which}: without its disk there is no cluster any more", "aim at brokers"
                    ),
                )
                return

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Draw the field `target`. A role of controllers is replaced by `broker`, because two controllers with empty
        disks could end the cluster."""
        target = draw.role()
        return {"target": "broker" if target.startswith("controller") else target}


@injects(EmptyDisk)
class EmptyDiskInjection(DiskInjection[EmptyDisk]):
    """End the node and empty its folders. Before its start, format them again, as for a replaced machine, or put a copy
    back (`restore`).

    Confirmed when the process is gone and the folders are empty. Raises `FaultNotConfirmed` if they had no segment
    before, or if the copy has none or has changed."""

    def __init__(self, fault: EmptyDisk, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._emptied: dict[int, int] = {}
        self._copied: dict[int, _FolderContents] = {}

    def inject(self) -> str:
        if self.fault.restore == "live":
            with self._lock_nodes():
                self._require_breakable()
                for node in self.nodes:
                    self._copy(node)
            self.context.stop.wait(self.fault.age)
        if self.fault.restore == "stopped":
            how = self._strike(self._terminate, "SIGTERM")
        else:
            how = self._strike(lambda node: node.kill(), "SIGKILL")
        self._await_state(NodeState.GONE, STOPPED_WITHIN_S)
        for node in self.nodes:
            if self.fault.restore == "stopped":
                self._copy(node)
            self._emptied[node.id] = sum(1 for folder in node.disk.folders for _ in folder.rglob("*.log"))
            for folder in node.disk.folders:
                empty_folder(folder)
        return f"{how}, and its disk emptied"

    def _copy(self, node: LocalNode) -> None:
        for folder, copy in node.disk.copies.items():
            copy_folder(folder, copy)
        self._copied[node.id] = _count_contents(node.disk.copies.values())

    def confirm(self) -> str:
        witness = self._await_state(NodeState.GONE, GONE_WITHIN_S)
        for node in self.nodes:
            left = [entry.name for folder in node.disk.folders for entry in os.scandir(folder)]
            if left and set(left) - {folder.name for folder in node.disk.folders}:
                raise self.not_confirmed(f"{node.name} still has {', '.join(sorted(left)[:5])}")
            if not self._emptied.get(node.id):
                raise self.not_confirmed(f"there was no log on {node.name}'s disk before")
        counts = ", ".join(
            f"{node.name} had {self._emptied[node.id]} segments{self._of_the_copy(node)}"
            for node in self.nodes
        )
        return f"{witness}; its folders are empty ({counts})"

    def _of_the_copy(self, node: LocalNode) -> str:
        """Return in words what the restored copy holds, as the end of a sentence; '' if no copy is restored. Raises
        `FaultNotConfirmed` if the copy has no segment, or was changed."""
        if self.fault.restore == "nothing":
            return ""
        there = _count_contents(node.disk.copies.values())
        if not there.segments or there != self._copied.get(node.id):
            raise self.not_confirmed(f"there is no whole copy of {node.name}'s disk")
        return f", its copy has {there}"

    def _mend(self, node: LocalNode) -> str:
        if node.id not in self._emptied or (self.fault.restore != "nothing" and node.id not in self._copied):
            return ""
        if self.fault.restore == "nothing":
            node.disk.lay()
            return f"formatted {node.name}"
        for folder, copy in node.disk.copies.items():
            empty_folder(folder)  # the node may have run again in the meantime
            copy_folder(copy, folder)
        there, copied = _count_contents(node.disk.folders), self._copied.pop(node.id)
        if there != copied:
            raise self.not_confirmed(f"{node.name}'s disk has {there}, and its copy {copied}")
        node.disk.remove_copies()
        return f"put the copy of {node.name}'s disk back: {there}"


class _FolderContents(NamedTuple):
    """Number of segments below a node's data folders, and the total size of all files there."""

    segments: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.segments} segments, {self.bytes} bytes"


def _count_contents(folders: Iterable[Path]) -> _FolderContents:
    """Return the number of segments (`.log` files) below these folders, and the total bytes of all files there."""
    sizes = {path: path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()}
    return _FolderContents(sum(path.suffix == ".log" for path in sizes), sum(sizes.values()))


def copy_folder(source: Path, target: Path) -> None:
    """Copy everything below a folder to `target`: folders with their owners, files also with modes and times.
    Files of a running broker that vanish during the copy are skipped. Files that only `target` has stay there. Raises
    `AckproofError` if a file cannot be copied."""
    try:
        for path in sorted(source.rglob("*")):
            copy = target / path.relative_to(source)
            with suppress(FileNotFoundError):
                owner = path.stat()
                if path.is_dir():
                    copy.mkdir(parents=True, exist_ok=True)
                else:
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, copy)
                os.chown(copy, owner.st_uid, owner.st_gid)
    except OSError as error:
        raise AckproofError(f"{source} could not be copied: {error}") from error


def empty_folder(folder: Path) -> None:
    """Remove everything in a folder except its subfolders at which a file system is mounted. Raises `AckproofError` if
    something cannot be removed."""
    try:
        for path in folder.iterdir():
            if path.is_dir() and not os.path.ismount(path):
                shutil.rmtree(path)
            elif not path.is_dir():
                path.unlink()
    except OSError as error:
        raise AckproofError(f"{folder} could not be emptied: {error}") from error
