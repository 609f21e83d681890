"""A cluster with its clients in virtual time, at its start: everybody is there, every ISR is full."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from ackproof.model.simulate.clock import Clock
from ackproof.model.simulate.control import Control
from ackproof.model.simulate.network import Connection, Host, Network
from ackproof.model.simulate.partition import PartitionRun, Surroundings
from ackproof.model.simulate.producers import ClientBatch, Line, Producer
from ackproof.model.simulate.readers import Reader, Reset
from ackproof.model.simulate.timing import Timing
from ackproof.plan.cases import Case
from ackproof_reference.broker import Broker, Process
from ackproof_reference.log import Log
from ackproof_reference.metadata import Metadata, Partition, Registration
from ackproof_reference.placement import Place, place
from ackproof_reference.rules import Rules

CLIENTS_FROM = -2
"""Clients are hosts with numbers below zero: -2 is the first of them."""


@dataclass(frozen=True)
class Setting:
    """What of a case does not change from seed to seed: worked out once for many runs."""

    case: Case
    timing: Timing
    rules: dict[str, Rules]


@dataclass(frozen=True)
class Change:
    """A partition has another leader, epoch or ISR."""

    at_ns: int
    place: int
    image: Partition
    before: Partition


@dataclass
class World:
    """Everything that there is. `lines` are the partitions in the order of `places`."""

    setting: Setting
    case: Case
    random: Random
    clock: Clock
    network: Network
    control: Control
    partitions: list[PartitionRun]
    producers: list[Producer] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    resets: list[tuple[Reader, Reset]] = field(default_factory=list)
    acked: int = 0
    acked_at: dict[int, int] = field(default_factory=dict)
    last_ack: dict[int, int] = field(default_factory=dict)
    gaps: dict[int, int] = field(default_factory=dict)
    holds: set[tuple[int, int]] = field(default_factory=set)
    """Which fault wants which node dead."""
    killed: set[int] = field(default_factory=set)
    """Clients that a fault has killed, by their host's number."""
    next_client: int = CLIENTS_FROM
    of_readers: Random = field(default_factory=Random)
    """Readers draw apart: whether somebody reads changes nothing of what is written."""

    @property
    def timing(self) -> Timing:
        """How long things take."""
        return self.setting.timing

    def index(self, topic: str, number: int) -> int:
        """The place of a partition among all."""
        return next(i for i, p in enumerate(self.partitions) if p.place == (topic, number))

    def partition(self, topic: str, number: int) -> PartitionRun:
        """A partition by its name."""
        return self.partitions[self.index(topic, number)]

    def held_down(self, node: int) -> bool:
        """Whether some fault wants a node dead."""
        return any(held == node for _, held in self.holds)

    # -- clients ------------------------------------------------------------------------------------------------

    def client_host(self) -> Host:
        """A new client process."""
        host = self.network.join(Host(self.next_client))
        self.next_client -= 1
        return host

    def add_producer(self) -> Producer:
        """Another producer, with the next free number."""
        spec = self.case.experiment.workload.producers
        written = self.case.experiment.topic_names()
        number = len(self.producers)
        lines = [
            Line(partition, at, partition.image.partition.leader)
            for at, partition in enumerate(self.partitions)
            if partition.topic in written
        ]
        producer = Producer(
            number, self.client_host(), spec, lines, (self.case.seed + number) % len(lines),
            self.clock, self.network, self.timing, self.random, self._told,
        )  # fmt: skip
        self.producers.append(producer)
        return producer

    def add_reader(self) -> Reader:
        """Another live reader."""
        host = self.client_host()
        reader = Reader(
            len(self.readers), host, self.clock, self.network, self.timing, self.of_readers, self._was_reset
        )
        host.broken = reader.broken
        for at, partition in enumerate(self.partitions):
            reader.follow(partition, at)
        self.readers.append(reader)
        for partition in self.partitions:
            partition.around.advanced = self._advanced
        return reader

    def _was_reset(self, reader: Reader, reset: Reset) -> None:
        self.resets.append((reader, reset))

    def _advanced(self, partition: PartitionRun, leader: int) -> None:
        if partition.leads(leader):
            for reader in self.readers:
                reader.nudge(partition, leader)

    def _told(self, batch: ClientBatch, partition: PartitionRun) -> None:
        if batch.outcome == 0:
            now = self.clock.now
            at = self.place_of(batch)
            self.acked += batch.count
            self.acked_at[at] = self.acked_at.get(at, 0) + batch.count
            last = self.last_ack.get(at)
            if last is not None and now - last > self.gaps.get(at, 0):
                self.gaps[at] = now - last
            self.last_ack[at] = now

    def place_of(self, batch: ClientBatch) -> int:
        """The index among all partitions of the one that a batch was sent to."""
        return self.producers[batch.producer].lines[batch.place].place

    def heard(self, partition: PartitionRun, broker: int) -> None:
        """A broker has learned something new of a partition: clients will hear of another leader."""
        del broker
        for producer in self.producers:
            for line in producer.lines:
                if line.partition is partition and line.leader != partition.image.partition.leader:
                    producer.ask_in_turn(line)
        for reader in self.readers:
            reader.ask_soon(partition)


def make_world(setting: Setting, case: Case) -> World:
    """The world of one case at time 0. All that is random follows from the case's seed."""
    experiment = case.experiment
    random = Random(f"{case.seed}/simulate")
    timing, clock = setting.timing, Clock()
    network = Network(clock, random, timing.hop, timing.jitter)
    brokers, controllers = experiment.cluster.broker_ids, experiment.cluster.controller_ids
    for node in dict.fromkeys((*brokers, *controllers)):
        network.join(Host(node))
    changes: list[Change] = []
    zookeeper = experiment.cluster.mode == "zookeeper"
    control = Control(
        clock, network, timing, random, brokers, controllers, lambda p, before: None, zookeeper=zookeeper
    )
    world = World(setting, case, random, clock, network, control, [], changes=changes)
    world.of_readers = Random(f"{case.seed}/simulate/readers")

    def changed(partition: PartitionRun, before: Metadata) -> None:
        changes.append(
            Change(clock.now, world.index(*partition.place), partition.image.partition, before.partition)
        )

    control.changed = changed
    around = Surroundings(
        clock,
        network,
        timing,
        experiment.workload.producers.value_size + 12,
        alter=control.alter,
        learned=world.heard,
    )
    registrations = tuple(Registration(broker, 1) for broker in brokers)
    for topic, spec in experiment.topics.items():
        places = [Place(broker, experiment.cluster.rack_of(broker) or "") for broker in brokers]
        rows = spec.assignment or place(places, spec.partitions, spec.replication_factor, random)
        for number, replicas in enumerate(rows):
            partition = PartitionRun(
                topic,
                number,
                setting.rules[topic],
                Metadata(Partition(tuple(replicas), replicas[0], 0, 0, tuple(replicas)), registrations),
                {broker: Broker(broker, Log(), Process(True, 1)) for broker in brokers},
                around,
                int(spec.config.get("flush.messages", timing.flush_every)),
            )
            world.partitions.append(partition)
            control.partitions.append(partition)
    for node in brokers:
        network.hosts[node].broken = _Lost(control, node)
    for partition in world.partitions:
        # The leader first, so that the followers' first fetches find it.
        leader = partition.image.partition.leader
        for broker in (leader, *(b for b in brokers if b != leader)):
            partition.learn(broker, partition.image)
    return world


class _Lost:
    """What a broker does about a lost connection."""

    def __init__(self, control: Control, broker: int) -> None:
        self._control, self._broker = control, broker

    def __call__(self, connection: Connection) -> None:
        """Fetches that were under way are tried again."""
        self._control.follow_broken(self._broker, connection)
