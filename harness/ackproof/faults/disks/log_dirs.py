"""Full and failing log dirs.

The witness of the fault is the file system itself (statvfs, a probe file). The broker shows that it noticed: its
process ended, or it logged that the log dir failed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import Field

from ackproof.base.advice import Advice
from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import Size, size_text
from ackproof.cluster.disks.file_systems import FileSystem, make_writable, set_immutable
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.experiment.backends import Need
from ackproof.experiment.base import Whole
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Draw, Incidents
from ackproof.experiment.fault import WHERE_IT_RUNS, FaultSpec, Grip
from ackproof.experiment.problems import Data
from ackproof.faults.context import FaultContext
from ackproof.faults.disks.disk import DiskFault, DiskInjection
from ackproof.faults.injection import Aim, injects

_BYTES: Final = "it knows batches and offsets, no files and no bytes"
REACTS_WITHIN_S: Final = 40.0
"""Seconds for a broker to react. Without load it notices a failing log dir at its next checkpoint, every 5 s."""
SLACK: Final = 64 << 10
"""Bytes that a file system may show as free although nothing more fits."""
_LINES: Final = 400
_SIGNS: Final = (
    "No space left on device",
    "Stopping serving logs in dir",
    "all log dirs in",
    "Input/output error",
)


class LogDirFault(DiskFault):
    """Base of faults of one log dir. `dir`: its number, from 1; None: the only log dir, or that of the partition that
    the role names."""

    OVER = WHERE_IT_RUNS
    IN_FORCE_S = 60.0
    dir: Whole | None = Field(
        None,
        ge=1,
        le=8,
        description="Number of the log dir, from 1; by default that of the role's partition.",
    )

    @property
    def spoils(self) -> bool:
        """Return True if the fault makes the log dir unusable for writes."""
        return True

    def keeps(self, spec: ExperimentSpec) -> Grip | None:
        ends = self.spoils and spec.cluster.log_dirs == 1 and True not in self.target.sides()
        return Grip.DOWN if ends else None

    def at_odds(self, first: FaultSpec, spec: ExperimentSpec) -> str:
        spoilt = isinstance(first, LogDirFault) and first.spoils and None is not self.dir == first.dir
        met = self.meets(first, spec) if spoilt else ""
        return super().at_odds(first, spec) or (f"leaves {met} without log dir {self.dir}" if met else "")

    def misfits(self, experiment: ExperimentSpec) -> Iterator[tuple[str, str]]:
        there = experiment.cluster.log_dirs
        if self.dir is None and self.target.topic is None and there > 1:
            yield "target", f"which of the {there} log dirs? {self.target} has no partition: add dir: 1"
        if self.dir is not None and self.dir > there:
            yield "dir", Advice(f"log dir {self.dir} does not exist", f"cluster.log_dirs is {there}")

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        target = draw.role()
        dirs = draw.experiment.cluster.log_dirs
        if "/" in target or dirs < 2:
            return {"target": target}
        # A node that is only a controller has one log dir.
        return {"target": target, "dir": draw.between(1, dirs) if target.startswith("broker") else 1}


class FullDisk(LogDirFault):
    """The file system of a log dir is filled until nothing more fits, or only `leave` bytes stay free.

    A broker whose only log dir is full exits, and exits again on each start while it is full. With several
    log dirs only the partitions of the full one go offline. Healing frees the space and restarts the node.
    """

    KIND = "full_disk"
    DONE = "left without disk space"
    # A broker whose only log dir fails ends itself (LogManager.handleLogDirFailure).
    PER_NODE = Incidents(kills=1)
    SUMMARY = "Fill the node's file system (root; `leave` bytes stay free)."
    HEALING = "free the space and start again"
    HOLD_KEY = "for"

    leave: Size = Field(0, ge=0, description="Bytes that stay free.")

    NEEDS = frozenset({Need.DISKS})

    @property
    def spoils(self) -> bool:
        return not self.leave

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        return ("leave", _BYTES) if self.leave else None


class FailLogDir(LogDirFault):
    """One log dir fails: every access gives an I/O error (`how: io_error`), or nothing new can be created in it
    (`read_only`). With several log dirs (`cluster.log_dirs`) only its partitions go offline; with one the broker exits.
    A repaired log dir does not come back by itself: healing restarts the node."""

    KIND = "fail_log_dir"
    DONE = "robbed of a log dir"
    # A broker whose only log dir fails ends itself (LogManager.handleLogDirFailure).
    PER_NODE = Incidents(kills=1)
    SUMMARY = "Let one log dir fail: `how: io_error` (root) or `read_only`."
    HEALING = "mend it and start again"
    HOLD_KEY = "for"
    NEEDS = frozenset({Need.DISKS})

    how: Literal["io_error", "read_only"] = Field("io_error", description="Way of failing.")

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Need.DISKS} if self.how == "io_error" else ())

    def not_simulated(self, spec: ExperimentSpec) -> tuple[str, str] | None:
        return ("how", _BYTES) if self.how == "read_only" else None


LogDirT = TypeVar("LogDirT", bound=LogDirFault)


class LogDirInjection(DiskInjection[LogDirT]):
    """Base of injections that break one log dir of each target node, and confirm that the broker notices."""

    def __init__(self, fault: LogDirT, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._dirs: dict[int, Path] = {}
        self._logged: dict[int, set[str]] = {}
        """The last `_LINES` lines that each node had logged before the fault."""

    def _choose(self) -> Mapping[int, Path]:
        """Choose the log dir of each node, record the log lines that the node has so far, and claim the node. From now
        on the node may end. Return the dirs by node. Raises `FaultNotConfirmed` if a node cannot be broken, or has no
        such log dir."""
        self._require_breakable()
        for node in self.nodes:
            self._dirs[node.id] = self._dir_of(node)
        for node in self.nodes:
            self._logged[node.id] = set(node.log_tail(_LINES).splitlines())
            node.expect_end()
        self._strike(lambda _: None, "an end to come")
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
        """Wait until the broker's process ends, or its log says that the log dir failed; return that in words. Raises
        `FaultNotConfirmed` if the broker did not react."""

        def find_reaction() -> str | None:
            if node.state() is NodeState.GONE:
                return f"{node.name}: its process ended"
            for line in node.log_tail(_LINES).splitlines():
                if line not in self._logged[node.id] and any(sign in line for sign in _SIGNS):
                    return f'{node.name} logged "{line.strip()[:160]}"'
            return None

        return self.wait_for(
            find_reaction,
            f"{node.name} to notice that it lost {self._dirs[node.id].name}",
            REACTS_WITHIN_S,
            state=lambda: f"it is {node.state().value}",
        )

    def _system(self, node: LocalNode) -> FileSystem:
        system = node.disk.system_of(self._dirs[node.id])
        if system is None:
            raise FaultNotConfirmed(f"{node.name}: its data has no file system of its own")
        return system


@injects(FullDisk)
class _FullDiskInjection(LogDirInjection[FullDisk]):
    """Fill the file system of each node's log dir with one large file. Confirmed when at most `leave` + `SLACK` bytes
    are free, and the broker has ended or logged the failure."""

    def inject(self) -> str:
        self._choose()
        for node in self.nodes:
            self._system(node).fill(self.fault.leave)
        return f"filled the file system of {self._name_nodes()}"

    def confirm(self) -> str:
        said = []
        for node in self.nodes:
            folder = self._dirs[node.id]
            there = os.statvfs(folder)
            free, size = there.f_bavail * there.f_frsize, there.f_blocks * there.f_frsize
            if free > self.fault.leave + SLACK:
                raise self.not_confirmed(
                    f"statvfs says that {size_text(free)} of {size_text(size)} are free "
                    f"where {node.name} has its log"
                )
            said.append(f"statvfs: {free} of {size} B free under {node.name}'s log; {self._reaction(node)}")
        return "; ".join(said)

    def _mend(self, node: LocalNode) -> str:
        folder = self._dirs.get(node.id)
        system = None if folder is None else node.disk.system_of(folder)
        return f"freed {node.name}'s file system" if system is not None and system.unfill() else ""


@injects(FailLogDir)
class _FailLogDirInjection(LogDirInjection[FailLogDir]):
    """Make a log dir fail. With `io_error`, shut its file system down. Otherwise make its folders read-only:
    by the immutable flag as root, else by the folders' mode. Confirmed when no file can be created in the log dir, and
    the broker has ended or logged the failure."""

    def inject(self) -> str:
        self._choose()
        if self.fault.how == "io_error":
            for node in self.nodes:
                self._system(node).fail()
            return f"EXT4_IOC_SHUTDOWN of the file system under {self._name_nodes()}"
        for folder in self._dirs.values():
            for path in (*filter(Path.is_dir, folder.iterdir()), folder):
                if os.geteuid() == 0:
                    set_immutable(path, True)
                else:
                    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)
        way = "chattr +i" if os.geteuid() == 0 else "chmod a-w"
        return f"{way} on a log dir of {self._name_nodes()} and the folders in it"

    def confirm(self) -> str:
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
            raise self.not_confirmed(f"{node.name}'s log dir still takes a new file")
        return "; ".join(said)

    def _mend(self, node: LocalNode) -> str:
        folder = self._dirs.get(node.id)
        if folder is None:
            return ""
        system = node.disk.system_of(folder)
        if system is not None and self.fault.how == "io_error":
            system.remount()
            return f"mounted {node.name}'s file system again"
        make_writable(folder)
        return f"{node.name}'s log dir can be written again"
