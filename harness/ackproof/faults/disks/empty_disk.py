"""A node comes back with an empty disk. The witness is the list of its folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from ackproof.base.errors import AckproofError
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.experiment.drawing import Draw
from ackproof.experiment.incidents import Incidents
from ackproof.experiment.nodes import Data
from ackproof.experiment.roles import RoleKind
from ackproof.experiment.spec import SystemUnderTest
from ackproof.faults.disks.disk import _START, DiskFault, DiskInjection
from ackproof.faults.injection import Aim, FaultContext, injects
from ackproof.faults.processes import GONE_WITHIN_S


class EmptyDisk(DiskFault):
    """SIGKILL, and the node comes back under the same id with an empty disk, formatted as on its first day."""

    KIND = "empty_disk"
    DONE = "left without data"
    # Taken as a loss of power that nothing survived.
    PER_NODE = Incidents(power_losses=1)
    ENDS_NODES = True
    SUMMARY = "End the process and empty its disk; it returns under the same id."
    HEALING = _START
    HOLD_KEY = "restart_after"

    def misfits(self, experiment: SystemUnderTest) -> Iterator[tuple[str, str]]:
        """A cluster forgets everything with its only controller."""
        cluster = experiment.cluster
        lone = cluster.controller_ids[0] if len(cluster.controller_ids) == 1 else None
        role = self.target
        if lone is not None and (
            role.kind in (RoleKind.CONTROLLER, RoleKind.CONTROLLERS) or role.node == lone
        ):
            yield "target", f"{role} is the only controller: without its disk there is no cluster any more"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """A broker: two controllers without a disk could be the end of the cluster."""
        target = draw.role()
        return {"target": "broker" if target.startswith("controller") else target}


@injects(EmptyDisk)
class EmptyDiskInjection(DiskInjection[EmptyDisk]):
    """All that the node ever stored is gone. It is formatted again before its start, as a replaced machine would."""

    def __init__(self, fault: EmptyDisk, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._emptied: dict[int, int] = {}

    def inject(self) -> str:
        self._strike(lambda node: node.kill(), "SIGKILL")
        self._until(NodeState.GONE, GONE_WITHIN_S)
        for node in self.nodes:
            self._emptied[node.id] = sum(1 for folder in node.disk.folders for _ in folder.rglob("*.log"))
            for folder in node.disk.folders:
                empty_folder(folder)
        return f"SIGKILL to {self._names()}, and its disk emptied"

    def confirm(self) -> str:
        """Its process is gone and its folders hold nothing."""
        witness = self._until(NodeState.GONE, GONE_WITHIN_S)
        for node in self.nodes:
            left = [entry.name for folder in node.disk.folders for entry in os.scandir(folder)]
            if left and set(left) - {folder.name for folder in node.disk.folders}:
                raise self.unseen(f"{node.name} still has {', '.join(sorted(left)[:5])}")
            if not self._emptied.get(node.id):
                raise self.unseen(f"there was no log on {node.name}'s disk before")
        counts = ", ".join(f"{node.name} had {self._emptied[node.id]} segments" for node in self.nodes)
        return f"{witness}; its folders are empty ({counts})"

    def _mend(self, node: LocalNode) -> str:
        if node.id not in self._emptied:
            return ""
        node.disk.lay()
        return f"formatted {node.name}"


def empty_folder(folder: Path) -> None:
    """Remove what is in a folder. Raises `AckproofError`."""
    try:
        for path in folder.iterdir():
            if path.is_dir() and not os.path.ismount(path):
                shutil.rmtree(path)
            elif not path.is_dir():
                path.unlink()
    except OSError as error:
        raise AckproofError(f"{folder} could not be emptied: {error}") from error
