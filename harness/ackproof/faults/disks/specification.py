"""Faults of disks and of power: full, failing, slow, empty, rotten or truncated disks; power loss.

A fault of one partition's files names it as `partition: orders/0`, or by a role of that partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from ackproof.experiment.backends import Ability
from ackproof.experiment.base import Whole
from ackproof.experiment.fault import Complaints, HoldKey, NodeFault
from ackproof.experiment.incidents import LAG, NOTHING, Incidents
from ackproof.experiment.needs import Need
from ackproof.experiment.partitions import PartitionField
from ackproof.experiment.quantities import Duration, Size, wrong
from ackproof.experiment.roles import RoleKind
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from ackproof.experiment.drawing import Draw
    from ackproof.experiment.incidents import Exposure
    from ackproof.experiment.nodes import Data
    from ackproof.experiment.spec import Surroundings


_BYTES: Final = "it knows batches and offsets, no files and no bytes"
SLOW_WITHIN_S: Final = 3.0
"""The first freeze writes out what is dirty."""
SegmentField: TypeAlias = Literal["active", "closed"]
_START: Final = "start again"
FLUSH_SETTINGS: Final = frozenset(
    {"log.flush.interval.messages", "log.flush.interval.ms", "flush.messages", "flush.ms"}
)


class DiskFault(NodeFault):
    """What all of them have in common."""

    ASKS: ClassVar[frozenset[Ability]] = frozenset({Ability.DISKS})

    def misfits(self, experiment: Surroundings) -> Iterable[tuple[str, str]]:
        """What does not fit together with the rest of the experiment: one of its fields, and a sentence, each."""
        del experiment
        return ()

    def check(self, spec: Surroundings, say: Complaints) -> None:
        """Say what does not fit."""
        for name, message in self.misfits(spec):
            if say.sound((name,), cluster=True):
                say.report((name,), message)


class LogDirFault(DiskFault):
    """A fault of one log dir: that of the role's partition, the only one, or `dir: 2`."""

    dir: Whole | None = Field(
        None, ge=1, le=8, description="Which log dir, from 1; by default that of the role's partition."
    )

    def misfits(self, experiment: Surroundings) -> Iterator[tuple[str, str]]:
        """A log dir that does not exist, or none where there are several."""
        there = experiment.cluster.log_dirs
        if self.dir is None and self.target.topic is None and there > 1:
            yield "target", f"which of the {there} log dirs? {self.target} has no partition: add dir: 1"
        if self.dir is not None and self.dir > there:
            yield "dir", f"log dir {self.dir} does not exist; cluster.log_dirs is {there}"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """With several log dirs one of them, where the role is that of no partition."""
        target = draw.role()
        dirs = draw.experiment.cluster.log_dirs
        return {"target": target} | ({} if "/" in target or dirs < 2 else {"dir": draw.between(1, dirs)})


class FullDisk(LogDirFault):
    """The file system of a log dir is filled until nothing more fits.

    A broker whose only log dir is full exits, and exits again on each start while it is full; with several only the
    partitions of the full one go offline. Healing frees the space and starts the node anew.
    """

    KIND: ClassVar[str] = "full_disk"
    # A broker whose only log dir fails ends itself (LogManager.handleLogDirFailure).
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(kills=1)
    SUMMARY: ClassVar[str] = "Fill the node's file system (root; `leave` says how much stays free)."
    HEALING: ClassVar[str] = "free the space and start again"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"

    leave: Size = Field(0, ge=0, description="Bytes that stay free.")

    @property
    def needs(self) -> frozenset[Need]:
        """File systems of their own."""
        return frozenset({Need.DISKS})

    def not_simulated(self, spec: Surroundings) -> tuple[str, str] | None:
        return ("leave", _BYTES) if self.leave else None


class FailLogDir(LogDirFault):
    """One log dir fails: every access gives an I/O error, or nothing new can be made in it.

    With several (`cluster.log_dirs`) only its partitions go
    offline; with one the broker exits. Freeing it does not bring it back: healing starts the node anew.
    """

    KIND: ClassVar[str] = "fail_log_dir"
    # A broker whose only log dir fails ends itself (LogManager.handleLogDirFailure).
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(kills=1)
    SUMMARY: ClassVar[str] = "Let one log dir fail: `how: io_error` (root) or `read_only`."
    HEALING: ClassVar[str] = "mend it and start again"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"

    how: Literal["io_error", "read_only"] = Field("io_error", description="How it fails.")

    @property
    def needs(self) -> frozenset[Need]:
        """File systems of their own, for errors of the device."""
        return frozenset({Need.DISKS} if self.how == "io_error" else ())

    def not_simulated(self, spec: Surroundings) -> tuple[str, str] | None:
        return ("how", _BYTES) if self.how == "read_only" else None


class SlowDisk(LogDirFault):
    """The file system of a log dir is frozen for `stall`, lets 50 ms through, is frozen again, and so on.

    Every write and every fsync of the node waits that long, as on a disk that is overloaded or about to die.
    """

    KIND: ClassVar[str] = "slow_disk"
    UNPREDICTABLE: ClassVar[str] = ""
    SUMMARY: ClassVar[str] = "Let each write and each fsync of the node wait up to `stall` (root)."
    HEALING: ClassVar[str] = "let it write freely"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"

    stall: Duration = Field(
        0.5, ge=0.05, le=30, description="How long the file system stands still at a time."
    )

    @property
    def needs(self) -> frozenset[Need]:
        """File systems of their own."""
        return frozenset({Need.DISKS})

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Long enough to be seen, shorter than a session."""
        return {**(super().drawn(draw) or {}), "stall": f"{draw.between(300, 900)}ms"}

    def planned(self, exposure: Exposure) -> Incidents:
        """A follower that cannot append lags; a leader that serves nobody drops all its followers.

        It lasts longer than `for`, which counts from its confirmation: that waits for a write of ours. Nobody is
        fenced for a slow disk, for heartbeats write nothing; but who cannot append to the metadata log for a whole
        session does not learn that another controller is the active one. A ZooKeeper server answers no ping behind a
        write that waits.
        """
        case, role = exposure.case, self.target
        cluster = case.experiment.cluster
        stalls_past_session = self.stall * 1000 >= exposure.time_out(exposure.session)
        if role.kind is RoleKind.ZOOKEEPER:
            return Incidents(cuts=exposure.replicas if stalls_past_session else 0)
        nodes = exposure.aimed_at(self)
        most = None if self.hold is None else self.hold + 3 * self.stall + SLOW_WITHIN_S
        if not nodes or (most is not None and most * 1000 < exposure.time_out(LAG)):
            return NOTHING
        alone = len(case.faults) == 1
        only_follows = (
            alone
            and role.kind in (RoleKind.FOLLOWER, RoleKind.FOLLOWERS)
            and role.topic == exposure.topic
            and case.experiment.topics[exposure.topic].partitions == 1
        )
        may_move = (cluster.combined or not alone) and cluster.mode == "kraft" and cluster.log_dirs == 1
        return Incidents(
            shrinks=nodes if only_follows else max(nodes, exposure.replicas - 1),
            cuts=nodes if may_move and stalls_past_session else 0,
        )


class EmptyDisk(DiskFault):
    """SIGKILL, and the node comes back under the same id with an empty disk, formatted as on its first day."""

    KIND: ClassVar[str] = "empty_disk"
    # Taken as a loss of power that nothing survived.
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(power_losses=1)
    SUMMARY: ClassVar[str] = "End the process and empty its disk; it returns under the same id."
    HEALING: ClassVar[str] = _START
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"

    def misfits(self, experiment: Surroundings) -> Iterator[tuple[str, str]]:
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


class PowerLoss(DiskFault):
    """What was not fsynced is gone, and so is the process.

    `how: device` (root): the ext4 below the node's data is shut down without a flush of its journal, the process
    killed, the file system mounted anew. `how: cut`: SIGKILL, and everything after the recovery point on disk (or
    after offset `keep`) is cut from the logs at a batch boundary, with stale indexes and the mark of a clean
    shutdown. `auto`: device where it can be had, else cut; the timeline says which.
    """

    KIND: ClassVar[str] = "power_loss"
    UNPREDICTABLE: ClassVar[str] = ""
    PER_NODE: ClassVar[Incidents] = Incidents(power_losses=1)
    SUMMARY: ClassVar[str] = "Cut the power: what was not fsynced is lost (`how: device`, root; or `cut`)."
    HEALING: ClassVar[str] = _START
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"

    how: Literal["auto", "device", "cut"] = Field("auto", description="How it is done.")
    keep: Whole | None = Field(
        None, ge=0, description="how: cut only. The first offset that is lost; by default the recovery point."
    )

    @property
    def needs(self) -> frozenset[Need]:
        """File systems of their own."""
        kinds = {"auto": {Need.DISKS_WHERE_ROOT}, "device": {Need.DISKS}, "cut": set[Need]()}
        return frozenset(kinds[self.how])

    def misfits(self, experiment: Surroundings) -> Iterator[tuple[str, str]]:
        """A cut knows the recovery point on disk, which is as old as the last checkpoint of it."""
        flushed = flush_settings(experiment)
        if self.how == "cut" and self.keep is None and flushed:
            why = "the recovery point on disk does not show what that made safe"
            yield "how", f"a cut cannot honour {flushed[0]}: {why}; use how: device, or say keep"

    @model_validator(mode="after")
    def _keep_is_for_cuts(self) -> Self:
        if self.keep is not None and self.how != "cut":
            raise wrong("'keep' goes with how: cut only; a device keeps what was fsynced")
        return self


class PartitionFault(DiskFault):
    """A fault of one partition's files on the nodes of a role."""

    UNPREDICTABLE: ClassVar[str] = "files of a log that rot are not in the model"
    ROTS: ClassVar[bool] = True

    partition: PartitionField | None = Field(
        None, title="Partition", description="Whose files; by default those of the role's partition."
    )

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        if self.partition is not None:
            return self.partition
        return TopicPartition(self.target.topic or "", self.target.partition or 0)

    @model_validator(mode="after")
    def _of_some_partition(self) -> Self:
        if self._needs_partition and self.partition is None and self.target.topic is None:
            raise wrong(f"which partition? The role {self.target} names none: add partition: orders/0")
        return self

    @property
    def _needs_partition(self) -> bool:
        return True

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Files of the role's partition, or of another where it has none."""
        target = draw.role()
        return _with_files_of(draw, "broker" if target.startswith("controller") else target)


class FlipBits(PartitionFault):
    """One bit of a record batch is flipped in the segment of a broker that goes on running.

    Kafka does not look for that by itself: a reader of the leader finds it, or a recovery after an unclean
    shutdown. Nothing mends it but replication anew: healing kills the broker, removes that replica, and starts it.
    """

    KIND: ClassVar[str] = "flip_bits"
    NOT_SIMULATED: ClassVar[str] = (
        "what a broker does about a batch whose checksum is wrong is no part of the protocol"
    )
    SUMMARY: ClassVar[str] = "Flip a bit of a record batch on disk (`segment: active` or `closed`)."
    HEALING: ClassVar[str] = "replicate anew"
    HOLD_KEY: ClassVar[HoldKey | None] = "for"

    segment: SegmentField = Field("active", description="In which segment.")

    def misfits(self, experiment: Surroundings) -> Iterator[tuple[str, str]]:
        """Without another replica nothing mends it."""
        topic = experiment.topics.get(self.place.topic)
        if topic is not None and topic.replication_factor < 2:
            name = "target" if self.partition is None else "partition"
            yield name, f"{self.place} has one replica only: nothing could mend it"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """A follower: what a leader has is what clients read."""
        place = draw.other_place()
        return {"target": f"follower({place})"}


class TruncateSegment(PartitionFault):
    """SIGKILL, and the end of a segment is missing, in the middle of a batch or not.

    Of the active segment the broker fetches the rest from the leader. In a closed one Kafka does not look: the hole
    stays until the replica is made anew.
    """

    KIND: ClassVar[str] = "truncate_segment"
    SUMMARY: ClassVar[str] = "End the process and cut `bytes` off a segment of its log."
    HEALING: ClassVar[str] = _START
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"

    segment: SegmentField = Field("active", description="Which segment.")
    bytes: Size = Field(1024, ge=1, description="How much is cut off its end.")

    def not_simulated(self, spec: Surroundings) -> tuple[str, str] | None:
        return ("segment", "its logs are one segment each") if self.segment == "closed" else None


class DeleteCheckpoint(PartitionFault):
    """SIGKILL, and a checkpoint file is gone when the node returns."""

    KIND: ClassVar[str] = "delete_checkpoint"
    SUMMARY: ClassVar[str] = "End the process and delete a checkpoint file."
    HEALING: ClassVar[str] = _START
    HOLD_KEY: ClassVar[HoldKey | None] = "restart_after"

    file: Literal["recovery-point", "replication-offset", "log-start-offset", "leader-epoch"] = Field(
        description="Which: one of the log dir's, or leader-epoch, which is the partition's."
    )

    @property
    def _needs_partition(self) -> bool:
        return self.file == "leader-epoch"

    @classmethod
    def drawn(cls, draw: Draw) -> Mapping[str, Data] | None:
        """Any of the files."""
        files = ("recovery-point", "replication-offset", "log-start-offset", "leader-epoch")
        return {**(super().drawn(draw) or {}), "file": draw.more.choice(files)}


def _with_files_of(draw: Draw, target: str) -> Mapping[str, Data]:
    return {"target": target} | ({} if "/" in target else {"partition": draw.other_place()})


def flush_settings(experiment: Surroundings) -> list[str]:
    """Settings of the experiment that make Kafka fsync what it writes, as they are named there."""
    cluster = experiment.cluster
    given = [cluster.config, *cluster.broker_config.values()]
    given += [topic.config for topic in experiment.topics.values()]
    return [name for config in given for name in config if name in FLUSH_SETTINGS]
