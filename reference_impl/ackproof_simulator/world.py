"""All parts of a simulated run, and their state at its start: all nodes are up, every ISR is full, no client runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final

from ackproof.experiment.case import Case
from ackproof.experiment.timing import configured
from ackproof.rundir.observed import Sample
from ackproof.rundir.timeline import ClientReset
from ackproof_reference.broker import Broker, Process
from ackproof_reference.log import Log
from ackproof_reference.metadata import NO_LEADER, Metadata, Partition, Registration
from ackproof_reference.placement import Broker as PlacedBroker
from ackproof_reference.placement import place
from ackproof_reference.rules import Rules
from ackproof_reference.transactions import last_stable_offset
from ackproof_simulator.clock import Clock, Timing
from ackproof_simulator.control import Control
from ackproof_simulator.coordinator import Coordinator
from ackproof_simulator.disks import Disks
from ackproof_simulator.journal import Change, Journal
from ackproof_simulator.network import Host, Network, Scene
from ackproof_simulator.partition import PartitionRun
from ackproof_simulator.producers import ClientBatch, Line, Producer
from ackproof_simulator.readers import Reader
from ackproof_simulator.transactional import TransactionalProducer

TRANSACTIONS: Final = "__transaction_state"
ANOTHER_NS: Final = 500_000_000
"""Nanoseconds from the end of a client process until its replacement runs."""
CLIENTS_FROM = -2
"""Host number of the first client; further clients count down from it. Host numbers of nodes are their ids.
"""


@dataclass(frozen=True)
class Setting:
    """The parts of a case that are the same for every seed: computed once for many runs. `rules`: protocol rules of the
    Kafka release (`ackproof_reference.rules`), by topic."""

    timing: Timing
    rules: dict[str, Rules]


@dataclass
class World:
    """All parts of a simulated run: the cluster, its clients, and what has been observed of them.

    `acked`: number of acknowledged records. By index of the partition: `acked_at`, number of acknowledged records;
    `last_ack`, time of the last acknowledgement; `gaps`, longest time between two. Times in ns."""

    setting: Setting
    case: Case
    scene: Scene
    control: Control
    journal: Journal
    partitions: list[PartitionRun] = field(default_factory=list)
    producers: list[Producer] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    resets: list[tuple[int, int, int, ClientReset]] = field(default_factory=list)
    """Resets of all readers in order: time in ns, reader, index of the partition, event."""
    acked: int = 0
    acked_at: dict[int, int] = field(default_factory=dict)
    last_ack: dict[int, int] = field(default_factory=dict)
    gaps: dict[int, int] = field(default_factory=dict)
    holds: set[tuple[int, int]] = field(default_factory=set)
    """Pairs (fault number, node): the fault keeps the node down, so that no other fault starts it."""
    killed: set[int] = field(default_factory=set)
    """Clients that a fault has killed, by host number."""
    hidden: list[PartitionRun] = field(default_factory=list)
    """Partitions of Kafka's internal topics, which no reader reads and no ledger has."""
    coordinator: Coordinator | None = None
    """Transaction coordinator; None if producers write without transactions."""
    settings: dict[str | int, dict[str, str]] = field(default_factory=dict)
    """Present settings of topics, and dynamic settings of all brokers ('') and of single brokers (by number)."""
    next_client: int = CLIENTS_FROM
    of_readers: Random = field(default_factory=Random)
    """Random source for readers only: the written records do not depend on whether readers are simulated."""

    @property
    def changes(self) -> list[Change]:
        """Changes of partitions by the controller, in order, except those of internal topics."""
        mine = len(self.partitions)
        return [change for change in self.journal.changes if change.place < mine]

    def __post_init__(self) -> None:
        self.clock, self.network = self.scene.clock, self.scene.network
        self.timing, self.random = self.scene.timing, self.scene.random

    def index(self, topic: str, number: int) -> int:
        """Return a partition's index in the order of all partitions; internal topics come last. Raises StopIteration
        for an unknown partition."""
        return next(i for i, p in enumerate(self._all) if p.place == (topic, number))

    @property
    def _all(self) -> tuple[PartitionRun, ...]:
        return (*self.partitions, *self.hidden)

    def partition(self, topic: str, number: int) -> PartitionRun:
        return self._all[self.index(topic, number)]

    def held_down(self, node: int) -> bool:
        return any(held == node for _, held in self.holds)

    def in_force(self, topic: str, broker: int | None) -> dict[str, str]:
        """Return the settings of a topic on a broker, or at the active controller (`broker` None), without Kafka's
        defaults. The topic's own settings override the brokers'."""
        cluster, node = self.case.experiment.cluster, self.control.active if broker is None else broker
        return {
            **cluster.config,
            **cluster.broker_config.get(node, {}),
            **self.settings.get("", {}),
            **({} if broker is None else self.settings.get(broker, {})),
            **self.settings.get(topic, {}),
        }

    def flush_every(self, topic: str) -> int:
        """Return the number of records between two fsyncs of the topic's logs (flush.messages)."""
        found = self.in_force(topic, None)
        return int(
            found.get("flush.messages", found.get("log.flush.interval.messages", self.timing.flush_every))
        )

    def settled(self, rules: Rules, topic: str, broker: int | None) -> Rules:
        """Return `rules` with the values of min.insync.replicas and unclean.leader.election.enable that are in force
        for a topic on a broker; `broker` None: at the controller."""
        found = self.in_force(topic, broker)
        return replace(
            rules,
            min_insync=int(found.get("min.insync.replicas", "1")),
            unclean_election=found.get("unclean.leader.election.enable", "false").lower() == "true",
        )

    # -- clients ------------------------------------------------------------------------------------------------

    def client_host(self) -> Host:
        host = self.network.join(Host(self.next_client))
        self.next_client -= 1
        return host

    def add_producer(self, slot: int | None = None) -> Producer:
        """Add a producer with the next free number, not started yet, and return it. `slot`: number of the transactional
        id of an earlier producer that it takes over; None: a new id."""
        spec = self.case.experiment.workload.producers
        written = self.case.experiment.topic_names()
        number = len(self.producers)
        lines = [
            Line(partition, at, partition.image.partition.leader)
            for at, partition in enumerate(self.partitions)
            if partition.topic in written
        ]
        kind = Producer if self.coordinator is None else TransactionalProducer
        producer = kind(
            number, self.client_host(), spec, lines, (self.case.seed + number) % len(lines),
            self.scene, self._count_ack,
        )  # fmt: skip
        if isinstance(producer, TransactionalProducer) and self.coordinator is not None:
            seed = f"{self.case.seed}/transactions/{number}"
            producer.join(number if slot is None else slot, self.coordinator, seed, self._ended_by_itself)
        self.producers.append(producer)
        return producer

    def _ended_by_itself(self, producer: TransactionalProducer) -> None:
        """Start a new producer with the transactional id of one that has ended by itself, half a second later
        (`ANOTHER_NS`). Start none if the load has ended by then."""

        def another() -> None:
            if not producer.closed and not producer.stopping:
                self.add_producer(producer.slot).start()

        self.clock.call_after(ANOTHER_NS, another)

    def slot_of(self, number: int) -> int | None:
        producer = self.producers[number]
        return producer.slot if isinstance(producer, TransactionalProducer) else None

    def add_reader(self) -> Reader:
        host = self.client_host()
        reader = Reader(len(self.readers), host, self.scene, self.of_readers, self.resets)
        isolation = self.case.experiment.workload.consumers.isolation
        reader.committed = self.coordinator is not None and isolation == "read_committed"
        host.broken = reader.broken
        for at, partition in enumerate(self.partitions):
            reader.follow(partition, at)
        self.readers.append(reader)
        self.scene.advanced = self._advanced
        return reader

    def _advanced(self, partition: PartitionRun, leader: int) -> None:
        if partition.leads(leader):
            for reader in self.readers:
                reader.nudge(partition, leader)

    def _count_ack(self, batch: ClientBatch, partition: PartitionRun) -> None:
        if batch.outcome == 0:
            now = self.clock.now
            at = self.producers[batch.producer].lines[batch.place].place
            self.acked += batch.count
            self.acked_at[at] = self.acked_at.get(at, 0) + batch.count
            last = self.last_ack.get(at)
            if last is not None and now - last > self.gaps.get(at, 0):
                self.gaps[at] = now - last
            self.last_ack[at] = now

    def look(self, partition: PartitionRun) -> Sample:
        state = partition.image.partition
        leads = state.leader >= 0 and partition.leads(state.leader)
        mark = partition.log(state.leader).high_watermark if leads else -1
        return Sample(
            t_ns=self.clock.now,
            topic=partition.topic,
            partition=partition.number,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            replicas=state.replicas,
            isr=state.isr,
            high_watermark=mark,
            last_stable=mark
            if self.coordinator is None or not leads
            else last_stable_offset(partition.log(state.leader)),
            log_ends={
                broker: partition.log(broker).end
                for broker in state.replicas
                if self.network.hosts[broker].running
            },
            eligible=state.elr,
        )

    def make_topic(
        self,
        topic: str,
        registrations: tuple[Registration, ...],
        processes: Mapping[int, Process],
    ) -> list[PartitionRun]:
        """Create a topic, and return its partitions, which the caller adds to the world.

        `registrations`, `processes`: present state of all brokers. The replicas are those of the experiment's
        `assignment`; without one they are placed at random. The ISR is all active replicas, of which the first one
        leads (buildPartitionRegistration).
        """
        experiment = self.case.experiment
        spec, cluster = experiment.topics[topic], experiment.cluster
        self.settings[topic] = dict(spec.config)  # the settings of a deleted topic are gone
        places = [PlacedBroker(broker, cluster.rack_of(broker)) for broker in cluster.broker_ids]
        rows = spec.assignment or place(places, spec.partitions, spec.replication_factor, self.random)
        active = {entry.broker for entry in registrations if not entry.fenced and not entry.stopping}
        found = []
        for number, row in enumerate(rows):
            replicas = tuple(row)
            isr = tuple(broker for broker in replicas if broker in active)
            code = self.setting.rules[topic]
            run = PartitionRun(
                topic,
                number,
                self.settled(code, topic, None),
                Metadata(Partition(replicas, isr[0] if isr else -1, 0, 0, isr), registrations),
                {
                    broker: Broker(broker, Log(), Process(one.up, one.epoch, clean=one.clean))
                    for broker, one in processes.items()
                },
                self.scene,
                self.flush_every(topic),
            )
            for broker in processes:
                own = self.settled(code, topic, broker)
                if own != run.rules:
                    run.own[broker] = own
            found.append(run)
        return found

    def make_anew(self, topic: str) -> None:
        """Create a deleted topic again, with new logs. Producers continue with the new topic; readers start
        from offset 0.
        """
        places = [at for at, partition in enumerate(self.partitions) if partition.topic == topic]
        old = [self.partitions[at] for at in places]
        processes = {broker: one.process for broker, one in old[0].brokers.items()}
        made = self.make_topic(topic, old[0].image.brokers, processes)
        for at, before, after in zip(places, old, made, strict=True):
            after.written, after.folder, after.moved = before.written, before.folder, before.moved
            self.partitions[at] = after
            self.control.partitions[self.control.partitions.index(before)] = after
            for producer in self.producers:
                for line in producer.lines:
                    if line.partition is before:
                        line.partition, line.leader = after, NO_LEADER
            for reader in self.readers:
                reader.begin_again(before, after)
        self.journal.created(topic, self.case.experiment.topics[topic].config)
        for partition in made:
            self.journal.partition(partition)
        for partition in made:
            self.control.publish(partition)

    def heard(self, partition: PartitionRun) -> None:
        """Let clients ask for metadata, because a broker has newer metadata of the partition. Readers ask soon, and
        producers that know another leader at their next regular refresh."""
        for producer in self.producers:
            for line in producer.lines:
                if line.partition is partition and line.leader != partition.image.partition.leader:
                    producer.ask_in_turn(line)
        for reader in self.readers:
            reader.ask_soon(partition)


def make_world(setting: Setting, case: Case, wall_ns: int) -> World:
    """Return the simulated cluster with its topics at virtual time 0, which is `wall_ns` on the wall clock; the caller
    adds the clients. All randomness follows from the case's seed."""
    experiment = case.experiment
    random = Random(f"{case.seed}/simulate")
    timing, clock = setting.timing, Clock()
    network = Network(clock, random, timing.hop, timing.jitter)
    brokers, controllers = experiment.cluster.broker_ids, experiment.cluster.controller_ids
    for node in dict.fromkeys((*brokers, *controllers)):
        network.join(Host(node))
    journal = Journal(clock, wall_ns, experiment.cluster.log_dirs)
    zookeeper = experiment.cluster.metadata.broker_controls
    disks = Disks(network, timing.handlers, experiment.cluster.log_dirs, brokers, zookeeper=zookeeper)
    scene = Scene(clock, network, disks, timing, random, experiment.workload.producers.value_size + 12)
    control = Control(
        scene, brokers, controllers, lambda p, before: None, journal, zookeeper=zookeeper,
    )  # fmt: skip
    disks.partitions = control.partitions
    world = World(setting, case, scene, control, journal)
    world.of_readers = Random(f"{case.seed}/simulate/readers")

    def changed(partition: PartitionRun, before: Metadata) -> None:
        journal.changed(world.index(*partition.place), partition, before.partition)

    control.changed = changed
    scene.alter, scene.learned = control.alter, world.heard
    registrations = tuple(Registration(broker, 1) for broker in brokers)
    processes = {broker: Process(True, 1) for broker in brokers}
    for topic in experiment.topics:
        made = world.make_topic(topic, registrations, processes)
        world.partitions += made
        control.partitions += made
    if experiment.workload.producers.transaction_size is not None:
        log = _transaction_log(world, registrations, processes)
        world.hidden.append(log)
        control.partitions.append(log)
        world.coordinator = Coordinator(experiment, scene, log, world.partitions)
        scene.verified = world.coordinator.verified
    everything = (*world.partitions, *world.hidden)
    for number, partition in enumerate(everything):
        # Every broker has its partitions dealt to its log dirs in turn.
        partition.folder = number % experiment.cluster.log_dirs
    configs = {topic: spec.config for topic, spec in experiment.topics.items()}
    configs.update({one.topic: {"min.insync.replicas": str(one.rules.min_insync)} for one in world.hidden})
    elr = any(rules.elr for rules in setting.rules.values())
    journal.begin(brokers, configs, everything, elr=elr)
    for node in brokers:
        network.hosts[node].broken = partial(control.follow_broken, node)
    for partition in everything:
        # The leader first, so that the followers' first fetches find it.
        leader = partition.image.partition.leader
        for broker in (leader, *(b for b in brokers if b != leader)):
            partition.learn(broker, partition.image)
    return world


def _transaction_log(
    world: World,
    registrations: tuple[Registration, ...],
    processes: Mapping[int, Process],
) -> PartitionRun:
    """Return Kafka's transaction log as a new partition; it is reduced to one partition, as on the clusters of this
    harness."""
    cluster = world.case.experiment.cluster
    settings = configured(cluster, cluster.broker_ids[0])
    places = [PlacedBroker(broker, cluster.rack_of(broker)) for broker in cluster.broker_ids]
    (row,) = place(places, 1, int(settings["transaction.state.log.replication.factor"]), world.random)
    return PartitionRun(
        TRANSACTIONS,
        0,
        replace(
            next(iter(world.setting.rules.values())),
            min_insync=int(settings["transaction.state.log.min.isr"]),
        ),
        Metadata(Partition(tuple(row), row[0], 0, 0, tuple(row)), registrations),
        {broker: Broker(broker, Log(), process) for broker, process in processes.items()},
        world.scene,
        world.timing.flush_every,
    )
