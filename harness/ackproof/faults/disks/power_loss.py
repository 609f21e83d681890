"""Power loss: all data that was not fsynced is lost.

With root, the ext4 below the node's data is shut down without a flush of its journal. The witness is a canary file,
written just before and not synced: its content is missing after the next mount. Without root, the logs are cut after a
SIGKILL. In both cases the timeline states the ends, before and after, of up to six logs that became shorter; internal
topics are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from ackproof.base.advice import Advice
from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.units import wrong
from ackproof.cluster.disks.file_systems import FileSystem
from ackproof.cluster.disks.log import CLEAN_SHUTDOWN, checkpoint, cut, log_end
from ackproof.cluster.protocol import LocalNode, NodeState
from ackproof.experiment.backends import Need
from ackproof.experiment.base import Whole
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.exposure import Incidents
from ackproof.faults.context import FaultContext
from ackproof.faults.disks.disk import _START, DiskFault, DiskInjection
from ackproof.faults.injection import Aim, injects
from ackproof.faults.processes import GONE_WITHIN_S
from ackproof.rundir.partition import TopicPartition, internal

FLUSH_SETTINGS: Final = frozenset(
    {"log.flush.interval.messages", "log.flush.interval.ms", "flush.messages", "flush.ms"}
)
CANARY: Final = ".ackproof-canary"
_CANARY_BYTES: Final = 4096
_SHOWN: Final = 6
Ends = dict[TopicPartition, int]


class PowerLoss(DiskFault):
    """The process ends, and all data that was not fsynced is lost.

    `how: device` (root): the ext4 below the node's data is shut down without a flush of its journal, the process is
    killed, and the file system is mounted again. `how: cut`: SIGKILL, and each log is cut before the batch that
    contains its recovery point on disk; with `keep`, a log of the experiment's topics is cut before the batch that
    contains that offset. Stale indexes and the mark of a clean shutdown are removed. `auto`: device if possible, else
    cut; the timeline states which.
    """

    KIND = "power_loss"
    DONE = "cut off from power"
    PER_NODE = Incidents(power_losses=1)
    ENDS_NODES = True
    SUMMARY = "Cut the power: everything that was not fsynced is lost (`how: device`, root; or `cut`)."
    HEALING = _START
    HOLD_KEY = "restart_after"
    NEEDS = frozenset({Need.DISKS_WHERE_ROOT})

    how: Literal["auto", "device", "cut"] = Field("auto", description="Way of losing power.")
    keep: Whole | None = Field(
        None, ge=0, description="how: cut only. The first offset that is lost; by default the recovery point."
    )

    @property
    def needs(self) -> frozenset[Need]:
        kinds = {"auto": {Need.DISKS_WHERE_ROOT}, "device": {Need.DISKS}, "cut": set[Need]()}
        return frozenset(kinds[self.how])

    def misfits(self, experiment: ExperimentSpec) -> Iterator[tuple[str, str]]:
        """Yield a conflict (name of a field, sentence) for `how: cut` without `keep`, if settings make Kafka fsync its
        logs.

        A cut removes everything after the recovery point on disk. That point may be older than the last fsync. The cut
        would then remove records that a real power loss leaves.
        """
        flushed = flush_settings(experiment)
        if self.how == "cut" and self.keep is None and flushed:
            why = "the recovery point on disk does not show what that made safe"
            yield "how", Advice(f"a cut cannot honour {flushed[0]}: {why}", "use how: device, or say keep")

    @model_validator(mode="after")
    def _keep_is_for_cuts(self) -> Self:
        if self.keep is not None and self.how != "cut":
            raise wrong("'keep' goes with how: cut only, as a device keeps what was fsynced")
        return self


def flush_settings(experiment: ExperimentSpec) -> list[str]:
    """Return the names of the experiment's settings, of brokers and topics, that make Kafka fsync its logs; empty if it
    has none."""
    cluster = experiment.cluster
    given = [cluster.config, *cluster.broker_config.values()]
    given += [topic.config for topic in experiment.topics.values()]
    return [name for config in given for name in config if name in FLUSH_SETTINGS]


@dataclass(frozen=True)
class Canary:
    """A file that is written and not synced, to confirm a power loss. `name`: the node on whose disk it is."""

    name: str
    path: Path
    content: bytes

    @classmethod
    def write(cls, name: str, system: FileSystem) -> Self:
        """Write a canary into a file system of the node `name`, and return it. Raises `FaultNotConfirmed` if the file
        cannot be written."""
        made = cls(name, system.at / CANARY, os.urandom(_CANARY_BYTES))
        try:
            made.path.write_bytes(made.content)
        except OSError as error:
            why = f"{name}'s disk takes no file by which a loss of power could be seen: {error.strerror}"
            raise FaultNotConfirmed(why) from error
        return made

    def lives(self) -> bool:
        """Return True if the disk still has the canary's content. Raises OSError if the disk cannot be read.

        The file's name may have survived: ext4 commits its journal, which holds names, every 5 s and on every fsync.
        The file is then empty, because its blocks are allocated only when its content is written out.
        """
        try:
            return self.path.read_bytes() == self.content
        except FileNotFoundError:
            return False


@injects(PowerLoss)
class PowerLossInjection(DiskInjection[PowerLoss]):
    """Cut the power of one, several or all nodes at once. If all have their own file systems and `how` is not `cut`,
    these are shut down; else the logs are cut. With `how: device`, a node without its own file system is refused.

    Confirmed when the processes are gone and, if file systems were shut down, the content of each canary is missing. A
    cut is not confirmed if no log became shorter, or if settings make Kafka fsync and `keep` is missing.
    """

    def __init__(self, fault: PowerLoss, aim: Aim, context: FaultContext) -> None:
        super().__init__(fault, aim, context)
        self._before: dict[int, Ends] = {}
        self._down: set[int] = set()
        self._canaries: list[Canary] = []

    @property
    def _by_device(self) -> bool:
        return self.fault.how != "cut" and all(node.disk.file_systems for node in self.nodes)

    def inject(self) -> str:
        self._strike(lambda _: None, "an end to come")  # claims the nodes; their processes end below
        if self._by_device:
            with self._lock_nodes():  # other faults that heal on these nodes need the disk mounted
                return self._lose_power()
        if self.fault.how == "device":
            raise self.not_confirmed(f"{self._name_nodes()} has no file system of its own")
        return self._cut()

    def confirm(self) -> str:
        witness = self._await_state(NodeState.GONE, GONE_WITHIN_S)
        if self._by_device:
            for canary in self._canaries:
                if canary.lives():
                    raise self.not_confirmed(
                        f"a file that {canary.name}'s disk had not synced is still there"
                    )
            witness += "; a file written just before and not synced is gone from every disk"
        shrunk, lines = self._shrunk()
        if not shrunk and not self._by_device:
            raise self.not_confirmed(
                "nothing lay behind the recovery point, so this was a kill: nothing was lost"
            )
        return f"{witness}; {lines}"

    def _mend(self, node: LocalNode) -> str:
        if node.id not in self._down:
            return ""
        for system in node.disk.file_systems:
            system.remount()
        self._down.discard(node.id)
        return f"mounted {node.name}'s disk again"

    # -- the true way -------------------------------------------------------------------------------------------

    def _lose_power(self) -> str:
        for node in self.nodes:
            node.pause()
        # Nothing is written from now on: a log read here combines the page cache and the disk.
        self._await_state(NodeState.STOPPED, GONE_WITHIN_S)
        self._before = {node.id: _ends(node) for node in self.nodes}
        self._canaries = [
            Canary.write(node.name, system) for node in self.nodes for system in node.disk.file_systems
        ]
        for node in self.nodes:
            self._down.add(node.id)
            for system in node.disk.file_systems:
                system.lose_power()
        for node in self.nodes:
            node.kill()
        self._await_state(NodeState.GONE, GONE_WITHIN_S)
        for node in self.nodes:
            for system in node.disk.file_systems:
                system.remount()
            self._down.discard(node.id)
        return f"true power loss of {self._name_nodes()}: ext4 shut down without a log flush, SIGKILL, mounted again"

    # -- the way without root -----------------------------------------------------------------------------------

    def _cut(self) -> str:
        case = self.context.case
        flushed = flush_settings(case.experiment) if case is not None else []
        if flushed and self.fault.keep is None:
            raise self.not_confirmed(
                f"without root only a cut at the recovery point on disk is possible, and that does "
                f"not show what {flushed[0]} made safe"
            )
        for node in self.nodes:
            node.kill()
        self._await_state(NodeState.GONE, GONE_WITHIN_S)
        topics = set(case.experiment.topics) if case is not None else set()
        self._before = {node.id: _ends(node) for node in self.nodes}
        for node in self.nodes:
            for log_dir in node.disk.log_dirs:
                (log_dir / CLEAN_SHUTDOWN).unlink(missing_ok=True)
            safe = {place: at for folder in node.disk.log_dirs for place, at in checkpoint(folder).items()}
            for place, replica in node.disk.partitions().items():
                stated = self.fault.keep if place[0] in topics or not topics else None
                cut(replica, safe.get(place, 0) if stated is None else stated)
        where = "the recovery point" if self.fault.keep is None else f"offset {self.fault.keep}"
        return (
            f"emulated power loss of {self._name_nodes()}: SIGKILL, logs cut at {where} (at a batch boundary)"
        )

    def _shrunk(self) -> tuple[int, str]:
        """Return the number of offsets that are missing from the disks in all, and a text about the shortened logs. The
        text gives the old and new end of the first `_SHOWN` of these logs; logs of internal topics are left out of
        it."""
        gone = 0
        lines = []
        for node in self.nodes:
            after = _ends(node)
            for place, end in self._before.get(node.id, {}).items():
                now = after.get(place, 0)
                if now < end:
                    gone += end - now
                    if not internal(place[0]):
                        lines.append(f"{place[0]}/{place[1]} on {node.name} ended at {end}, now at {now}")
        if not gone:
            return 0, "no log lost anything: all of it had been fsynced"
        more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        return gone, f"{gone} offsets are gone from the disks: {'; '.join(lines[:_SHOWN])}{more}"


def _ends(node: LocalNode) -> Ends:
    return {place: log_end(replica) for place, replica in node.disk.partitions().items()}
