"""Stage of a script: its gates at the request proxy, and the observation of disks and brokers.

Observations never ask the proxy. The controller's metadata log has the leader and the ISR. The brokers' logs have
their log ends, whether the processes run or not. A broker's answer to ListOffsets with a leader epoch shows the epoch
of its own replica (Partition.checkCurrentLeaderEpoch).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster import queries
from ackproof.cluster.disks.log import log_end
from ackproof.cluster.metadata.protocol import NotDecoded
from ackproof.cluster.protocol import Cluster, LocalNode, NodeState, local
from ackproof.experiment.spec import ClusterSpec
from ackproof.faults.script.spec import Gate
from ackproof.network.mesh import Link, LinkError
from ackproof.network.requests.contents import ERRORS, read_partition_errors
from ackproof.network.requests.frames import UnreadableFrame
from ackproof.network.requests.links import RequestLinks
from ackproof.network.requests.rules import FrameSide, Rule, RuleKind
from ackproof.network.wire import Connection, Question, WireError
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    EligibleCleared,
    MetadataRecord,
    PartitionChanged,
)
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.script_state import ScriptState

_ASK_S: Final = 1.0
_WRITTEN_WITHIN_S: Final = 2.0
_DELIVERED_WITHIN_S: Final = 10.0
"""Seconds for the answer to a copied Fetch, which may wait for records."""
_ERROR_NAMES: Final = {code: name for name, code in ERRORS.items()}


@dataclass(frozen=True)
class ControllerState:
    """Decisions of the controller so far, from its metadata log.

    `records`: all metadata records, in order. `partition`: the last decision about the observed partition, None before
    the first. `fenced`: ids of the fenced brokers. `registered`: id of each broker that registered → broker epoch of
    its newest registration.
    """

    records: tuple[MetadataRecord, ...] = ()
    partition: PartitionChanged | None = None
    fenced: frozenset[int] = frozenset()
    registered: dict[int, int] = field(default_factory=dict)


class PartitionObserver:
    """Reads the state of the partition `place` from the disks of controllers and brokers, which must be on this
    machine, and from the brokers' answers.

    `base`: the state from which `read_state` counts epochs, offsets and acks; all 0 until the script sets it,
    before its first step.
    """

    def __init__(self, cluster: Cluster, place: TopicPartition) -> None:
        self._cluster = cluster
        self.place = place
        self._brokers: tuple[LocalNode, ...] = local(cluster.brokers())
        self._folders = [node.disk.metadata_dir for node in local(cluster.controllers())]
        self.base = ScriptState()

    def read_decisions(self) -> ControllerState:
        """Return the decisions in the controller's log. Waits at most `_WRITTEN_WITHIN_S` seconds while the end of the
        log is being written. Raises `NotDecoded` or OSError if the log cannot be read after that."""
        with contextlib.suppress(WaitTimeout):
            return wait_until(
                self.try_decisions, what="the controller's log to be written", timeout_s=_WRITTEN_WITHIN_S
            )
        return self._decode()

    def _decode(self) -> ControllerState:
        from ackproof.cluster.metadata import metadata_of  # reading a file imports no ZooKeeper client

        fenced: set[int] = set()
        registered: dict[int, int] = {}
        partition: PartitionChanged | None = None
        records = tuple(metadata_of(self._cluster.spec).decode(self._folders))
        for record in records:
            match record:
                case PartitionChanged(topic=self.place.topic, partition=self.place.partition):
                    partition = record
                case BrokerRegistered():
                    registered[record.node] = record.broker_epoch
                    (fenced.add if record.fenced else fenced.discard)(record.node)
                case BrokerChanged(fenced=bool(now)):
                    (fenced.add if now else fenced.discard)(record.node)
                case EligibleCleared() if partition is not None and record.topic in ("", self.place.topic):
                    partition = partition.model_copy(update={"elr": ()})
                case _:
                    pass
        brokers = set(self._cluster.spec.broker_ids)
        return ControllerState(records, partition, frozenset(fenced & brokers), registered)

    def try_decisions(self) -> ControllerState | None:
        """Return the decisions in the controller's log; None if it cannot be read or decoded.

        The log is unreadable for a moment while its end is being written. If every call returns None, the decoder does
        not know the log: `read_decisions` raises the reason.
        """
        try:
            return self._decode()
        except (NotDecoded, OSError):
            return None

    def read_state(self, acked: int) -> ScriptState | None:
        """Return the state relative to the beginning of the script. None if the controller's log cannot be
        read, or has no decision about the partition yet. Raises OSError if a broker's log cannot be read.

        `acked`: number of records acknowledged so far, since the run's start. Log ends, epochs and counts in the
        result are differences to `base`.
        """
        decided = self.try_decisions()
        if decided is None or (partition := decided.partition) is None:
            return None
        base = self.base
        epoch = partition.leader_epoch
        ends, marks, believed, down = {}, {}, {}, []
        for node in self._brokers:
            if (folder := node.disk.partition(*self.place)) is not None:
                ends[node.id] = log_end(folder) - base.ends.get(node.id, 0)
            if node.state() is NodeState.GONE:
                down.append(node.id)
        for broker, link in self._cluster.running_links().items():
            with contextlib.suppress(WireError):
                own, mark = self._read_epoch(link, epoch, base.epoch)
                if own is not None:
                    believed[broker] = own - base.epoch
                if mark is not None:
                    marks[broker] = mark - max(base.high_watermarks.values(), default=0)
        return ScriptState(
            leader=partition.leader,
            epoch=epoch - base.epoch,
            partition_epoch=partition.partition_epoch - base.partition_epoch,
            isr=partition.isr,
            elr=partition.elr,
            fenced=tuple(sorted(decided.fenced)),
            down=tuple(down),
            believed=believed,
            ends=ends,
            high_watermarks=marks,
            acked=acked - base.acked,
        )

    def knows(self, broker: int, decided: ControllerState) -> bool:
        """Return True if a broker shows the leader, ISR, eligible replicas and unfenced brokers of these decisions, and
        its replica has the partition's leader epoch. False also if the broker does not answer."""
        partition, link = decided.partition, self._cluster.running_links().get(broker)
        if partition is None or link is None:
            return False
        try:
            there = queries.partitions(link, [self.place.topic], _ASK_S).get(self.place)
            alive = queries.brokers(link, _ASK_S)
            own, _ = self._read_epoch(link, partition.leader_epoch, partition.leader_epoch)
        except WireError:
            return False
        return (
            there is not None
            and own == partition.leader_epoch
            and (there.leader, there.leader_epoch) == (partition.leader, partition.leader_epoch)
            and (set(there.isr), set(there.eligible)) == (set(partition.isr), set(partition.elr))
            and alive == frozenset(self._cluster.spec.broker_ids) - decided.fenced
        )

    def _read_epoch(self, link: Connection, newest: int, oldest: int) -> tuple[int | None, int | None]:
        """Ask a broker for the leader epoch and the high watermark of its own replica, and return both; None for each
        that is not known.

        A broker answers ListOffsets requests with a leader epoch only if its own replica has that epoch. Requests try
        the epochs from `newest` down to `oldest`; any other epoch stays unknown. Raises `WireError` if the broker gives
        no usable answer.
        """
        epochs = range(newest, max(oldest, 0) - 1, -1)
        questions = [
            Question(
                "ListOffsets",
                5,
                replica_id=queries.DEBUGGING_REPLICA,
                isolation_level=queries.READ_UNCOMMITTED,
                topics=[(self.place.topic, [(self.place.partition, epoch, queries.LATEST)])],
            )
            for epoch in epochs
        ]
        mark, *answers = link.ask_all([queries.ask_high_watermark(self.place), *questions], timeout_s=_ASK_S)
        own = next(
            (epoch for epoch, answer in zip(epochs, answers, strict=True) if queries.read_offsets(answer)),
            None,
        )
        return own, queries.read_high_watermark(mark)


def find_unexpected_decisions(
    records: Sequence[MetadataRecord], place: TopicPartition, fenced: Collection[int]
) -> Iterator[tuple[str, int, str]]:
    """Yield (subject, broker, words) for each decision in these records that a script must account for. Subject
    `partition`: about the observed partition `place`, with broker 0. Subject `broker`: about the registration or
    fencing of this broker.

    `fenced`: brokers that were fenced before these records. A broker that shut down is fenced, and again when its
    session ends: that second decision is ignored. So are changes of the replicas' log dirs alone.
    """
    now = set(fenced)
    for record in records:
        match record:
            case BrokerChanged(fenced=True, controlled_shutdown=None) if record.node in now:
                continue
            case BrokerRegistered() | BrokerChanged(fenced=bool()):
                (now.add if record.fenced else now.discard)(record.node)
            case _:
                pass
        match record:
            case PartitionChanged(topic=place.topic, partition=place.partition) if record.changed != (
                "directories",
            ):
                leader = f"broker {record.leader}" if record.leader >= 0 else "no broker"
                said = f"{leader} leads in epoch {record.leader_epoch}, ISR {list(record.isr)}, ELR {list(record.elr)}"
                yield "partition", 0, f"the controller decided: {said}"
            case BrokerRegistered():
                yield "broker", record.node, f"broker {record.node} registered"
            case BrokerChanged() if record.fenced is not None or record.controlled_shutdown is not None:
                word = {True: "was fenced", False: "was unfenced", None: "began to shut down"}[record.fenced]
                yield "broker", record.node, f"broker {record.node} {word}"
            case EligibleCleared(topic=place.topic):
                yield "partition", 0, f"the controller forgot who was eligible for {place.topic}"
            case _:
                pass


class Gates:
    """The gates of one script at the request proxy: each holds requests of one kind, or their responses, at one broker.

    `laid`: the cluster's links over the request proxy. `number`: number of the fault. Methods raise `LinkError` if the
    proxy does not carry out a request.
    """

    def __init__(self, laid: RequestLinks, cluster: ClusterSpec, number: int) -> None:
        self._laid = laid
        self._cluster = cluster
        self._number = number
        self._shut: dict[tuple[Gate, int, FrameSide], Rule] = {}
        self._aside: dict[int, tuple[str, bytes]] = {}
        """Route and frame of the Fetch request that `set_aside` copied, by broker."""

    def shut(self, gate: Gate, broker: int, side: FrameSide) -> None:
        """Hold the frames of this side (requests or responses) at a broker's gate, from the next frame on.
        Idempotent."""
        if (gate, broker, side) in self._shut:
            return
        ids = self._cluster.broker_ids if gate is Gate.FETCHES else self._cluster.controller_ids
        links = (Link(broker, target) for target in ids if gate is not Gate.FETCHES or target != broker)
        ways = tuple(way for link in links for way in self._laid.ways(link, gate.api))
        name = f"script-{self._number}-{gate}-{broker}-{side}"
        rule = Rule(name, RuleKind.HOLD, side, gate.api.key, ways)
        self._laid.lay(rule)
        self._shut[gate, broker, side] = rule

    def open(self, gate: Gate, broker: int) -> None:
        """Let all frames pass a broker's gate again, first those that are held there. Does nothing for an open gate."""
        for side in FrameSide:
            if (rule := self._shut.pop((gate, broker, side), None)) is not None:
                self._laid.lift(rule.name)

    def open_all(self) -> None:
        for gate, broker, _ in list(self._shut):
            self.open(gate, broker)

    def is_shut(self, gate: Gate, broker: int) -> bool:
        return (gate, broker, FrameSide.REQUEST) in self._shut

    def count_held(self, gate: Gate, broker: int, side: FrameSide) -> int:
        """Return the number of frames of this side (requests or responses) that wait at a broker's gate; 0 if the gate
        is open."""
        return sum(self._held_by_route(gate, broker, side).values())

    def release(self, gate: Gate, broker: int, side: FrameSide) -> bool:
        """Let one waiting frame of this side (requests or responses) pass a broker's gate. Of the proxy's routes
        through the gate, take the first with a waiting frame, and on it the frame that has waited longest. Return False
        if none waits, also because the gate is open."""
        return any(
            self._laid.proxy.release(self._shut[gate, broker, side].name, way)
            for way, held in self._held_by_route(gate, broker, side).items()
            if held
        )

    def set_aside(self, broker: int) -> bool:
        """Copy the Fetch request that waits at a broker's gate, for `deliver`. Return False if none has arrived
        completely, also because the gate is open."""
        gate = Gate.FETCHES, broker, FrameSide.REQUEST
        for way, held in self._held_by_route(*gate).items():
            if held and (frame := self._laid.proxy.copy(self._shut[gate].name, way)):
                self._aside[broker] = way, frame
                return True
        return False

    def deliver(self, broker: int) -> tuple[str, ...]:
        """Send the Fetch request that `set_aside` copied to the node for which it was meant, and drop the copy.

        Return the names of Kafka's errors in the response, one for each partition that has an error. Raises KeyError if
        there is no copy, `LinkError` also for a response that cannot be read.
        """
        way, frame = self._aside.pop(broker)
        answer = self._laid.proxy.send(way, frame, _DELIVERED_WITHIN_S)
        try:
            codes = read_partition_errors("Fetch", frame, answer)
        except UnreadableFrame as error:
            raise LinkError(f"the answer to a copied Fetch: {error}") from error
        return tuple(_ERROR_NAMES.get(code, str(code)) for code in codes if code)

    def _held_by_route(self, gate: Gate, broker: int, side: FrameSide) -> dict[str, int]:
        rule = self._shut.get((gate, broker, side))
        return {} if rule is None else dict(self._laid.proxy.state().held.get(rule.name, {}))
