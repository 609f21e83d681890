"""A disk that stands still again and again, in the model. The witness is a write of ours there, timed, too."""

from __future__ import annotations

from typing import ClassVar

from ackproof.base.errors import FaultNotConfirmed
from ackproof.faults.disks.slow_disk import SlowDisk
from ackproof_simulator.clock import SECOND
from ackproof_simulator.faults.disks import in_sync, which_dir
from ackproof_simulator.faults.virtual import Virtual, does


@does(SlowDisk)
class SlowDiskRun(Virtual[SlowDisk]):
    """Frozen for `stall`, then 50 ms in which all goes through that has waited, and so on. Nothing ends."""

    LET_THROUGH_S: ClassVar[float] = 0.05
    WITHIN_S: ClassVar[float] = 93.0
    """Three times the longest stall, and the time of a first freeze, as for the real one."""

    over = is_still = False
    error = ""

    def inject(self) -> str:
        self.must_run()
        self.folders = {node: which_dir(self.fault, self.world, node) for node in self.nodes}
        self.probing: dict[int, int] = {}
        self.longest = dict.fromkeys(self.nodes, 0)
        self._freeze()
        if self.error:
            raise FaultNotConfirmed(f"slow_disk: {self.error}")
        return f"{self.names()}: the log's file system stands still for {self.fault.stall:g} s at a time"

    def _freeze(self) -> None:
        if self.over:
            return
        disks = self.world.control.disks
        if any(disks.still(node, folder) for node, folder in self.folders.items()):
            # FIFREEZE says EBUSY.
            self.over, self.error = True, "another fault has frozen the file system"
            return
        self.is_still = True
        quorum = self.world.control.quorum
        for node, folder in self.folders.items():
            disks.freeze(node, folder, quorum.known)
        self.world.control.look()
        self.later(self.fault.stall, self._let_through)

    def _let_through(self) -> None:
        if not self.over:
            self._thaw()
            self.later(self.LET_THROUGH_S, self._freeze)

    def _thaw(self) -> None:
        if not self.is_still:
            return
        self.is_still = False
        for node, folder in self.folders.items():
            self.world.control.disks.thaw(node, folder)
        self.world.control.look()

    def _probe(self) -> None:
        """A write of ours at each node that has none under way."""
        for node, folder in self.folders.items():
            if node not in self.probing:
                self.probing[node] = self.world.clock.now
                self.world.control.disks.probe(node, folder, self._written, node)

    def _written(self, node: int) -> None:
        took = self.world.clock.now - self.probing.pop(node)
        self.longest[node] = max(self.longest[node], took)

    def bites(self) -> bool:
        """A write of ours has waited, too."""
        self._probe()
        self.witness = "; ".join(
            f"a write and fsync where node {node} has its log took {took / SECOND:.2f} s"
            for node, took in self.longest.items()
        )
        return all(2 * took >= self.fault.stall * SECOND for took in self.longest.values())

    def heal(self) -> str:
        if self.error:
            raise FaultNotConfirmed(f"slow_disk did not last: {self.error}")
        self.over = True
        self._thaw()
        self.longest = dict.fromkeys(self.nodes, 0)
        return "thawed for good"

    def abandon(self) -> None:
        self.over = True
        self._thaw()

    def healed(self) -> bool:
        """A write of ours does not wait, and the nodes' replicas are in sync."""
        self._probe()
        self.witness = "a write and fsync took 0 ms; in the ISR of all its partitions"
        fast = not self.probing and all(
            2 * took < self.fault.stall * SECOND for took in self.longest.values()
        )
        return fast and self.answer() and in_sync(self.world, self.nodes)
