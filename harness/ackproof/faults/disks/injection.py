"""Faults of disks: full, failing, or empty when the node returns.

A disk's state is seen through the file system itself (statvfs, a probe, the list of a folder); that it matters to
Kafka is seen at the broker: its process ended, or it logged that the log dir is lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from ackproof.base.errors import AckproofError, FaultNotConfirmed, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.disks.file_systems import FILLER, FileSystem
from ackproof.cluster.disks.flags import make_writable, set_immutable
from ackproof.cluster.protocol import LocalNode, NodeState, PartitionState
from ackproof.experiment.quantities import size_text
from ackproof.faults.disks.specification import EmptyDisk, FailLogDir, FullDisk, LogDirFault
from ackproof.faults.holds import Grip
from ackproof.faults.injection import Aim, FaultContext, SpecT, injects
from ackproof.faults.processes.injection import GONE_WITHIN_S, ProcessInjection
from ackproof.rundir.partition import TopicPartition

REACTS_WITHIN_S: Final = 40.0
"""A broker without load notices a failing log dir at its next checkpoint, every 5 s."""
BACK_WITHIN_S: Final = 60.0
SLACK: Final = 64 << 10
"""Bytes that a file system may show as free although nothing more fits."""
_LINES: Final = 400
_SIGNS: Final = (
    "No space left on device",
    "Stopping serving logs in dir",
    "all log dirs in",
    "Input/output error",
)


LogDirT = TypeVar("LogDirT", bound=LogDirFault)


class DiskInjection(ProcessInjection[SpecT]):
    """What all of them have in common: they heal by a start, after which each replica is in sync again."""

    def heal(self) -> str:
        """End what still runs, mend the disk, start all."""
        if self.refused:
            return "nothing to undo"
        running = [node for node in self.nodes if node.state() is not NodeState.GONE]
        for node in running:
            node.kill()
        self._until(NodeState.GONE, GONE_WITHIN_S)
        mended = "; ".join(word for node in self.nodes if (word := self._mend(node)))
        started = self._start_the_dead()
        return f"{mended}; {started}" if mended else started

    def _mend(self, node: LocalNode) -> str:
        """What the disk of one node needs before the node may start, in words."""
        del node
        return ""

    def confirm_healed(self) -> str:
        """The nodes are registered, and every replica of theirs is in its ISR."""
        if self.refused:
            return self._until_ready()
        return f"{self._until_ready()}; {in_sync_again(self.context, self.nodes)}"


def in_sync_again(context: FaultContext, nodes: tuple[LocalNode, ...]) -> str:
    """Wait until these nodes are in the ISR of all their partitions. Raises `FaultNotConfirmed`."""
    topics = list(context.case.experiment.topics) if context.case is not None else _topics_on(nodes)
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
        raise FaultNotConfirmed(f"healing: {error}") from error
    mine = [place for place, state in seen.items() if brokers & set(state.replicas)]
    return f"metadata: in the ISR of all its {len(mine)} partition(s)"


def _topics_on(nodes: tuple[LocalNode, ...]) -> list[str]:
    return sorted(
        {topic for node in nodes for topic, _ in node.disk.partitions() if not topic.startswith("__")}
    )


class _Logged:
    """The lines that a node logs from now on."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._before = set(node.log_tail(_LINES).splitlines())

    def sign(self) -> str | None:
        """The first new line by which a broker says that it lost a log dir."""
        for line in self._node.log_tail(_LINES).splitlines():
            if line not in self._before and any(sign in line for sign in _SIGNS):
                return line.strip()[:160]
        return None


class LogDirInjection(DiskInjection[LogDirT]):
    """One log dir of each node is broken, and the broker is to notice."""

    def __init__(self, fault: LogDirT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._dirs: dict[int, Path] = {}
        self._logged: dict[int, _Logged] = {}

    def _choose(self) -> Mapping[int, Path]:
        """The log dir of each node, and an ear at its log. Its end is expected from now on."""
        self._must_be(NodeState.RUNNING)
        for node in self.nodes:
            self._dirs[node.id] = self._dir_of(node)
        for node in self.nodes:
            self._logged[node.id] = _Logged(node)
            node.expect_end()
        self._strike(lambda _: None, "an end to come", Grip.DOWN, NodeState.RUNNING)
        return self._dirs

    def _dir_of(self, node: LocalNode) -> Path:
        role, number = self.fault.target, self.fault.dir
        dirs = node.disk.log_dirs
        if number is not None:
            if number > len(dirs):
                raise FaultNotConfirmed(f"{node.name} has {len(dirs)} log dir(s), not {number}")
            return dirs[number - 1]
        if len(dirs) == 1 or role.topic is None or role.partition is None:
            return dirs[0]
        replica = node.disk.partition(role.topic, role.partition)
        if replica is None:
            raise FaultNotConfirmed(
                f"{node.name} has no replica of {role.topic}/{role.partition} on its disk"
            )
        return replica.parent

    def _reaction(self, node: LocalNode) -> str:
        """What the broker did about it. Raises `FaultNotConfirmed` when it did nothing."""

        def seen() -> str | None:
            if node.state() is NodeState.GONE:
                return f"{node.name}: its process ended"
            sign = self._logged[node.id].sign()
            return f'{node.name} logged "{sign}"' if sign else None

        try:
            return wait_until(
                seen,
                what=f"{node.name} to notice that it lost {self._dirs[node.id].name}",
                timeout_s=REACTS_WITHIN_S,
                state=lambda: f"it is {node.state().value}",
                stop=self.context.stop,
            )
        except WaitTimeout as error:
            raise FaultNotConfirmed(f"{self.fault.kind}: {error}") from error

    def _system(self, node: LocalNode) -> FileSystem:
        system = node.disk.system_of(self._dirs[node.id])
        if system is None:
            raise FaultNotConfirmed(f"{node.name}: its data has no file system of its own")
        return system


@injects(FullDisk)
class FullDiskInjection(LogDirInjection[FullDisk]):
    """A file of ours takes all that is free."""

    def inject(self) -> str:
        """Allocate it."""
        self._choose()
        for node in self.nodes:
            self._system(node).fill(self.fault.leave)
        return f"filled the file system of {self._names()}"

    def confirm(self) -> str:
        """Nothing is free where the node's log is, and the broker noticed."""
        said = []
        for node in self.nodes:
            folder = self._dirs[node.id]
            there = os.statvfs(folder)
            free, size = there.f_bavail * there.f_frsize, there.f_blocks * there.f_frsize
            if free > self.fault.leave + SLACK:
                raise FaultNotConfirmed(
                    f"full_disk: statvfs says that {size_text(free)} of {size_text(size)} are free "
                    f"where {node.name} has its log"
                )
            said.append(f"statvfs: {free} of {size} B free under {node.name}'s log; {self._reaction(node)}")
        return "; ".join(said)

    def _mend(self, node: LocalNode) -> str:
        folder = self._dirs.get(node.id)
        if folder is None or not (folder / FILLER).exists():
            return ""
        (folder / FILLER).unlink()
        return f"freed {node.name}'s file system"


@injects(FailLogDir)
class FailLogDirInjection(LogDirInjection[FailLogDir]):
    """I/O errors by shutting the file system down; read-only by the immutable flag (root) or the folder's mode."""

    def inject(self) -> str:
        """Break it."""
        self._choose()
        if self.fault.how == "io_error":
            for node in self.nodes:
                self._system(node).fail()
            return f"EXT4_IOC_SHUTDOWN of the file system under {self._names()}"
        for folder in self._dirs.values():
            for path in _folders_of(folder):
                if os.geteuid() == 0:
                    set_immutable(path, True)
                else:
                    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)
        way = "chattr +i" if os.geteuid() == 0 else "chmod a-w"
        return f"{way} on a log dir of {self._names()} and the folders in it"

    def confirm(self) -> str:
        """No file can be made in it, and the broker noticed."""
        said = []
        for node in self.nodes:
            probe = self._dirs[node.id] / ".ackproof-probe"
            try:
                probe.write_bytes(b"1")
            except OSError as error:
                said.append(f"a probe of {node.name}'s log dir: {error.strerror}; {self._reaction(node)}")
                continue
            with contextlib.suppress(OSError):
                probe.unlink()
            raise FaultNotConfirmed(f"fail_log_dir: {node.name}'s log dir still takes a new file")
        return "; ".join(said)

    def _mend(self, node: LocalNode) -> str:
        folder = self._dirs.get(node.id)
        if folder is None:
            return ""
        system = node.disk.system_of(folder)
        if system is not None and self.fault.how == "io_error":
            system.remount()
            return f"mounted {node.name}'s file system anew"
        make_writable(folder)
        return f"{node.name}'s log dir can be written again"


@injects(EmptyDisk)
class EmptyDiskInjection(DiskInjection[EmptyDisk]):
    """All that the node ever stored is gone. It is formatted again before its start, as a replaced machine would."""

    def __init__(self, fault: EmptyDisk, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._emptied: dict[int, int] = {}

    def inject(self) -> str:
        """Kill it, and remove what is in its folders."""
        self._strike(lambda node: node.kill(), "SIGKILL", Grip.DOWN, NodeState.RUNNING, NodeState.STOPPED)
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
                raise FaultNotConfirmed(f"empty_disk: {node.name} still has {', '.join(sorted(left)[:5])}")
            if not self._emptied.get(node.id):
                raise FaultNotConfirmed(f"empty_disk: there was no log on {node.name}'s disk before")
        counts = ", ".join(f"{node.name} had {self._emptied[node.id]} segments" for node in self.nodes)
        return f"{witness}; its folders are empty ({counts})"

    def _mend(self, node: LocalNode) -> str:
        if node.id not in self._emptied:
            return ""
        node.disk.lay()
        return f"formatted {node.name}"


def _folders_of(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] + [folder]


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
