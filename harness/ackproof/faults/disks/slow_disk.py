"""Slow disks: writes and fsyncs are delayed repeatedly.

The file system is frozen (FIFREEZE) for `stall`, then lets writes pass for a moment, in a loop. The witness
is a timed write and fsync by the harness. A process that waits for a frozen file system cannot be killed:
other faults act on the node only while it is thawed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import Field

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import Duration
from ackproof.cluster.disks.file_systems import DiskError, FileSystem, thaw
from ackproof.cluster.protocol import LocalNode
from ackproof.experiment.backends import Need
from ackproof.experiment.exposure import LAG, Draw, Exposure, Incidents
from ackproof.experiment.problems import Data
from ackproof.experiment.roles import RoleKind
from ackproof.faults.disks.disk import in_sync_again
from ackproof.faults.disks.log_dirs import LogDirFault, LogDirInjection
from ackproof.faults.injection import injects

SLOW_WITHIN_S: Final = 3.0
"""Seconds, in addition to three stalls, until slow writes must be observed. The first freeze takes longer,
because it writes out dirty pages."""
PROBE: Final = ".ackproof-fsync"
LET_THROUGH_S: Final = 0.05
_FAST_WITHIN_S: Final = 10.0


class SlowDisk(LogDirFault):
    """The file system of a log dir is frozen for `stall`, thawed for 50 ms, frozen again, and so on. Every write and
    every fsync there waits up to `stall`, as on an overloaded or dying disk."""

    KIND = "slow_disk"
    DONE = "slowed down at the disk"
    GRIP = None
    SUMMARY = "Make every write and fsync of the node wait up to `stall` (root)."
    HEALING = "thaw the file system"
    HOLD_KEY = "for"

    stall: Duration = Field(
        0.5, ge=0.05, le=30, description="Time for which the file system is frozen at a time."
    )

    NEEDS = frozenset({Need.DISKS})

    @property
    def spoils(self) -> bool:
        return False

    @classmethod
    def draw_fields(cls, draw: Draw) -> Mapping[str, Data] | None:
        return {**(super().draw_fields(draw) or {}), "stall": f"{draw.between(300, 900)}ms"}

    def planned(self, exposure: Exposure) -> Incidents:
        """Return the followers that may leave the ISR (`shrinks`), and the brokers that may be fenced (`cuts`).

        A follower that cannot append lags, and a slow leader removes all its followers from the ISR. Either takes
        replica.lag.time.max.ms. The disk is slow for longer than `for`: `for` counts from the confirmation, which first
        has to observe slow writes.

        A slow disk alone does not fence a broker, because heartbeats write nothing. Brokers may be fenced in two cases,
        both only if `stall` is at least the session time-out. A ZooKeeper server answers no ping while a write waits. A
        KRaft controller that cannot append to the metadata log does not learn that another controller is active. The
        second case needs combined nodes, or other faults, and metadata in the same log dir as the topics.
        """
        cluster, roles = exposure.experiment.cluster, self.target.roles
        stalls_past_session = self.stall * 1000 >= exposure.time_out(exposure.session)
        servers = any(
            role.kind is RoleKind.ZOOKEEPER
            or (role.kind is RoleKind.RACK and cluster.metadata.broker_controls)
            for role in roles
        )
        silent = Incidents(cuts=exposure.replicas if servers and stalls_past_session else 0)
        nodes = exposure.aimed_at(self.targets)
        most = None if self.hold is None else self.hold + 3 * self.stall + SLOW_WITHIN_S
        if not nodes or (most is not None and most * 1000 < exposure.time_out(LAG)):
            return silent
        alone = exposure.faults == 1
        only_follows = (
            alone
            and all(role.kind in (RoleKind.FOLLOWER, RoleKind.FOLLOWERS) for role in roles)
            and self.target.topic == exposure.topic
            and exposure.experiment.topics[exposure.topic].partitions == 1
        )
        may_move = (cluster.combined or not alone) and cluster.mode == "kraft" and cluster.log_dirs == 1
        return Incidents(
            shrinks=nodes if only_follows else max(nodes, exposure.replicas - 1),
            cuts=nodes if may_move and stalls_past_session else 0,
        ).most(silent)


class FreezeLoop:
    """Thread that freezes file systems (`systems`: node → file system) for `stall_s` seconds, then thaws them for a
    moment, in a loop.

    `at(node)` returns the lock of a node's disk. The loop holds the locks of all nodes from each freeze to the thaw, so
    that no other fault unmounts a file system. `others(node)` is True if another fault holds the node. If the file
    system of such a node cannot be frozen, it is skipped. If any other file system cannot be frozen, the loop ends,
    with the exception in `error`.
    """

    def __init__(
        self,
        systems: Mapping[int, FileSystem],
        stall_s: float,
        at: Callable[[int], AbstractContextManager[None]],
        others: Callable[[int], bool],
    ) -> None:
        self._systems = systems
        self._stall_s = stall_s
        self._at = at
        self._others = others
        self._stop = threading.Event()
        self.frozen = threading.Event()
        """Set while all file systems are frozen, except those that were skipped."""
        self.error: DiskError | None = None
        self._thread = threading.Thread(target=self._run, name="slow-disk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop the loop and thaw all file systems. A second call does no harm."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for system in self._systems.values():
            thaw(system.at)

    def _run(self) -> None:
        while not self._stop.is_set() and self.error is None:
            with ExitStack() as nodes:
                for node in sorted(self._systems):
                    nodes.enter_context(self._at(node))
                try:
                    for node, system in self._systems.items():
                        self._freeze(node, system)
                    self.frozen.set()
                    self._stop.wait(self._stall_s)
                except DiskError as error:
                    self.error = error
                finally:
                    self.frozen.clear()
                    for system in self._systems.values():
                        thaw(system.at)
            self._stop.wait(LET_THROUGH_S)

    def _freeze(self, node: int, system: FileSystem) -> None:
        try:
            system.freeze()
        except DiskError:
            if not self._others(node):
                raise


@injects(SlowDisk)
class _SlowDiskInjection(LogDirInjection[SlowDisk]):
    """Slow down the nodes' disks by freezing their file systems repeatedly. No process ends. Healing thaws them. It is
    confirmed when a write and fsync is fast again, the nodes answer, and their replicas are in sync."""

    _loop: FreezeLoop | None = None

    def inject(self) -> str:
        self._require_breakable()
        for node in self.nodes:
            self._dirs[node.id] = self._dir_of(node)
        self._loop = FreezeLoop(
            {node.id: self._system(node) for node in self.nodes},
            self.fault.stall,
            self.holds.acting_on,
            lambda node: bool(self.holds.others(node, self.fault.number)),
        )
        self._loop.start()
        return (
            f"{self._name_nodes()}: the log's file system stands still for {self.fault.stall:g} s at a time"
        )

    def confirm(self) -> str:
        """Confirm that writes and fsyncs on the slowed file system wait; return the measured seconds, in words. Raises
        `FaultNotConfirmed` if too few wait.

        A write is slow if it takes at least half a `stall` longer than one on another disk at the same time. Single
        writes may be slow by chance, so two of four consecutive writes must be slow. Each write begins while the file
        system is frozen, because a write between two freezes is fast.
        """
        if self._loop is None:
            raise self.not_confirmed("nothing was frozen")
        return "; ".join(self._await_slow_write(node, self._loop) for node in self.nodes)

    def _await_slow_write(self, node: LocalNode, loop: FreezeLoop) -> str:
        last: deque[float] = deque(maxlen=4)
        longest = 0.0

        def waits() -> bool:
            nonlocal longest
            if not loop.frozen.wait(self.fault.stall):
                return False
            with ThreadPoolExecutor(1) as pool:
                control = pool.submit(timed_fsync, self._system(node).image.parent)
                took = timed_fsync(self._dirs[node.id])
            last.append(took - control.result())
            longest = max(longest, last[-1])
            return sum(longer >= self.fault.stall / 2 for longer in last) >= 2

        self.wait_for(
            waits,
            f"a write and fsync where {node.name} has its log to wait",
            3 * self.fault.stall + SLOW_WITHIN_S,
            state=lambda: (
                f"the longest took {longest:.3f} s longer than on a disk nearby"
                f"{f': {loop.error}' if loop.error else ''}"
            ),
        )
        return f"a write and fsync where {node.name} has its log took {longest:.2f} s longer than on a disk nearby"

    def heal(self) -> str:
        if self._loop is None:
            return "nothing was slowed"
        self._loop.end()
        if self._loop.error is not None:
            raise FaultNotConfirmed(f"slow_disk did not last: {self._loop.error}")
        return "thawed for good"

    def confirm_healed(self) -> str:
        if self._loop is None:
            return "nothing was slowed"
        took = max(self._await_fast_write(node) for node in self.nodes)
        ready = self._await_ready()
        return (
            f"a write and fsync took {took * 1000:.0f} ms; {ready}; {in_sync_again(self.context, self.nodes)}"
        )

    def _await_fast_write(self, node: LocalNode) -> float:
        took = 0.0

        def fast() -> bool:
            nonlocal took
            took = timed_fsync(self._dirs[node.id])
            return took < self.fault.stall / 2

        what = f"the disk of {node.name} to be fast again"
        said = "a write and fsync took {:.3f} s"
        see = partial(self.wait_for, fast, what, _FAST_WITHIN_S, state=lambda: said.format(took))
        self._when_free(node, see)
        return took


def timed_fsync(folder: Path) -> float:
    """Write a probe file into the folder, fsync and remove it; return the seconds until the fsync was done.

    Raises `FaultNotConfirmed` if the folder cannot be written to.
    """
    probe = folder / PROBE
    start = time.monotonic()
    try:
        file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(file, b"1")
            os.fsync(file)
        finally:
            os.close(file)
        took = time.monotonic() - start
        probe.unlink()
    except OSError as error:
        raise FaultNotConfirmed(f"nothing could be written to {folder}: {error.strerror}") from error
    return took
