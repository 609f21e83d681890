"""Controllers and broker processes in virtual time: sessions, fencing, registration, propagation of metadata.

Heartbeats are not simulated one by one. A session runs out when a broker has not reached an active controller for a
session's length. That is counted from the last heartbeat that it can have sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ackproof.rundir.metadata import BrokerChanged
from ackproof.rundir.timeline import NodeEnded, NodeStarted
from ackproof_reference.broker import kill, power_off, start, stop_cleanly
from ackproof_reference.controller import (
    alter_partition,
    begin_shutdown,
    fence,
    may_register,
    register,
    unfence,
)
from ackproof_reference.messages import Altered, AlterPartition
from ackproof_reference.metadata import Metadata
from ackproof_reference.rules import Rules
from ackproof_simulator.clock import MS, SECOND
from ackproof_simulator.journal import Journal
from ackproof_simulator.network import TO_ACCEPTOR, TO_OPENER, Connection, Host, Scene
from ackproof_simulator.partition import REQUEST_BYTES, PartitionRun
from ackproof_simulator.quorum import NOBODY, Quorum

RETRY = 100 * MS


class Control:
    """The controllers (KRaft or ZooKeeper), their state of brokers and partitions, and starts and ends of processes.
    `changed(partition, before)` is called after each change of a partition's state by `apply`; `before`: the image
    before."""

    def __init__(
        self,
        scene: Scene,
        brokers: Sequence[int],
        controllers: Sequence[int],
        changed: Callable[[PartitionRun, Metadata], None],
        journal: Journal,
        *,
        zookeeper: bool = False,
    ) -> None:
        self.clock, self.network, self.disks = scene.clock, scene.network, scene.disks
        self.timing, self.random = scene.timing, scene.random
        self.brokers, self.controllers = tuple(brokers), tuple(controllers)
        self.changed = changed
        self.journal = journal
        self.partitions: list[PartitionRun] = []
        self.newer: set[int] = set()
        """Controllers that run the newer release of an upgrade. While one of them is active, the rules are those that
        `by_newer` returns."""
        self.by_newer: Callable[[Rules], Rules] | None = None
        self.quorum = Quorum(scene, controllers, self._elected, zookeeper=zookeeper)
        self.holder = brokers[0] if zookeeper else NOBODY
        """In ZooKeeper mode: the broker that is the controller. `controllers` are the ZooKeeper servers then."""
        self._lost: dict[int, int] = {}
        """By broker: time in ns since which the active controller has not heard from it."""
        self._told: dict[tuple[int, int], int] = {}
        """By broker and partition: time in ns at which the newest image arrives there, after all older images."""
        self._episode = dict.fromkeys(brokers, 0)
        """By broker: a number that rises whenever its heartbeats begin or cease to arrive, and when a new controller is
        elected. A scheduled call with an older number is dropped."""
        self.fenced: set[int] = set()
        self.joined: set[int] = set(brokers)
        """Brokers that have registered since their last start, and have not ended."""
        self.starting: set[int] = set()
        """Nodes whose process runs but does not answer yet, such as brokers before their registration."""
        self.born = dict.fromkeys((*brokers, *controllers), 0)
        """By node: how often its process was started or ended. A delayed action is dropped if the number has
        changed."""

    # -- reaching each other ------------------------------------------------------------------------------------

    def _host(self, node: int) -> Host:
        return self.network.hosts[node]

    @property
    def active(self) -> int:
        return self.quorum.active

    @property
    def acting(self) -> int:
        """Node that acts as controller: the quorum's leader, or in ZooKeeper mode the controller broker; NOBODY if
        there is none."""
        return self.active if self.holder == NOBODY else self.holder

    def reaches(self, broker: int) -> bool:
        """Return True if a broker's heartbeats arrive at the active controller. False also if no controller is active,
        or if the broker knows only an earlier one, because its metadata log is on a frozen disk."""
        if self.active == NOBODY or self.disks.knew.get(broker, self.active) != self.active:
            return False
        if broker == self.active:
            return self._host(broker).running
        return self.network.between(broker, self.active).usable

    def look(self) -> None:
        """Update the active controller and the sessions of all brokers; call it after a change of a process or a
        link."""
        self.quorum.look()
        self._look_at_sessions()

    def _elected(self) -> None:
        # A new controller gives every broker a whole session.
        for broker in self._lost:
            self._lost[broker] = self.clock.now
            self._await_end_of(broker)
        self._look_at_sessions()
        for partition in self.partitions:
            self.publish(partition)

    def _look_at_sessions(self) -> None:
        for broker in self.brokers:
            reached = broker in self.joined and self.reaches(broker)  # nobody else sends heartbeats
            if reached and broker in self._lost:
                del self._lost[broker]
                self._episode[broker] += 1
                wait = 0 if self.timing.heartbeat < MS else int(self.random.random() * self.timing.heartbeat)
                self.clock.call_after(min(wait, 200 * MS), self._back, broker, self._episode[broker])
            elif not reached and broker not in self._lost:
                self._lost[broker] = self.clock.now - int(self.random.random() * self.timing.heartbeat)
                self._await_end_of(broker)

    def _await_end_of(self, broker: int) -> None:
        self._episode[broker] += 1
        # The controller looks eight times a session (QuorumController, maybeFenceStaleBroker).
        look = int(self.random.random() * (self.timing.session >> 3))
        ends = self._lost[broker] + self.timing.session + look
        self.clock.call_at(ends, self._expire, broker, self._episode[broker])

    def _expire(self, broker: int, episode: int) -> None:
        if self._episode[broker] != episode or broker in self.fenced:
            return
        if self.active == NOBODY:
            if self.quorum.standing_still != NOBODY:  # when it goes on it sees whose session is over
                self.clock.call_after(10 * MS, self._expire, broker, episode)
            return
        if self.holder not in (NOBODY, broker) and not self._host(self.holder).running:
            # The broker that would have to act is itself gone, and nobody has taken its place yet.
            self.clock.call_after(RETRY, self._expire, broker, episode)
            return
        self.fence(broker)

    def _back(self, broker: int, episode: int) -> None:
        if self._episode[broker] != episode or not self._host(broker).running or not self.reaches(broker):
            return
        for partition in self.partitions:
            self._publish_to(broker, partition)
            asked = partition.proposed.get(broker)
            if asked is not None:
                self.alter(partition, broker, asked)
        if broker in self.fenced and broker in self.joined:
            self.unfence(broker)

    def rules(self, partition: PartitionRun) -> Rules:
        if self.active in self.newer and self.by_newer is not None:
            return self.by_newer(partition.rules)
        return partition.rules

    # -- decisions ----------------------------------------------------------------------------------------------

    def apply(self, partition: PartitionRun, image: Metadata) -> None:
        if image is partition.image:
            return
        before, partition.image = partition.image, image
        if before.partition != image.partition:
            self.changed(partition, before)
        self.publish(partition)

    def publish(self, partition: PartitionRun) -> None:
        for broker in self.brokers:
            self._publish_to(broker, partition)

    def _publish_to(self, broker: int, partition: PartitionRun) -> None:
        if broker in self.joined and self.active != NOBODY and self.reaches(broker):
            delay = self.timing.metadata + int(self.random.random() * self.timing.metadata_jitter)
            # In the order of the metadata log: an older image must not come after a newer one.
            at = max(self.clock.now + delay, self._told.get((broker, id(partition)), 0) + 1)
            self._told[broker, id(partition)] = at
            self.clock.call_at(at, self._hand, broker, self.born[broker], partition, partition.image)

    def _hand(self, broker: int, born: int, partition: PartitionRun, image: Metadata) -> None:
        if born != self.born[broker]:
            return
        host = self._host(broker)
        if host.up and (host.paused or self.reaches(broker)):
            host.do(partition.learn, broker, image)

    def fence(self, broker: int) -> None:
        """Fence a broker after its session has ended: it leaves ISRs, and partitions that it led elect other leaders if
        they can. In ZooKeeper mode, if the broker was the controller, another running broker becomes controller, if an
        unfenced one is left."""
        self.fenced.add(broker)
        if broker == self.holder:
            able = [one for one in self.brokers if one not in self.fenced and self._host(one).running]
            self.holder = able[0] if able else broker
        for partition in self.partitions:
            self.apply(partition, fence(partition.image, broker, self.rules(partition)))
        self._stands(broker, fenced=True)

    def unfence(self, broker: int) -> None:
        self.fenced.discard(broker)
        self._stands(broker, fenced=False)
        for partition in self.partitions:
            if partition.image.partition.replicas:
                self.apply(partition, unfence(partition.image, broker, self.rules(partition)))
            else:
                active = partition.image.registration(broker)._replace(fenced=False)
                partition.image = partition.image.with_broker(active)

    def _stands(self, broker: int, **changed: bool) -> None:
        epoch = self.partitions[0].image.registration(broker).epoch
        self.journal.note(BrokerChanged, node=broker, broker_epoch=epoch, **changed)

    def alter(self, partition: PartitionRun, leader: int, request: AlterPartition) -> None:
        """Send a leader's ISR proposal to the active controller. If it cannot be sent, try again every 100 ms (`RETRY`)
        while the proposal is unanswered."""
        if self.active == NOBODY or not self._host(leader).running:
            self.clock.call_after(RETRY, self._alter_again, partition, leader, request)
            return
        if leader == self.active:
            self._altered(partition, request, None)
            return
        connection = self.network.between(leader, self.active)
        sent = self.network.send(
            connection, TO_ACCEPTOR, REQUEST_BYTES, self._altered, partition, request, connection
        )
        if not sent or not connection.usable:
            self.clock.call_after(RETRY, self._alter_again, partition, leader, request)

    def _alter_again(self, partition: PartitionRun, leader: int, request: AlterPartition) -> None:
        if partition.proposed.get(leader) is request and self._host(leader).up:
            self._host(leader).do(self.alter, partition, leader, request)

    def _altered(
        self, partition: PartitionRun, request: AlterPartition, connection: Connection | None
    ) -> None:
        if self.quorum.standing_still != NOBODY:
            return  # it is sent again when the controller goes on
        image, answer = alter_partition(partition.image, request, self.rules(partition))
        self.apply(partition, image)
        if connection is None:
            self._take_altered(partition, request, answer)
        else:
            self.network.send(
                connection, TO_OPENER, REQUEST_BYTES, self._take_altered, partition, request, answer
            )

    def _take_altered(self, partition: PartitionRun, request: AlterPartition, answer: Altered) -> None:
        if self.disks.frozen and self.disks.holds_step(
            partition, request.leader, None, None, self._take_altered, partition, request, answer
        ):
            return
        if partition.proposed.get(request.leader) is request:
            del partition.proposed[request.leader]
        partition.step(request.leader, answer)
        partition.renew(request.leader)

    # -- lives --------------------------------------------------------------------------------------------------

    def kill(self, node: int, *, power: Callable[[PartitionRun], int] | None = None) -> None:
        """Kill a node's process (SIGKILL), or with `power` cut its machine's power.

        `power` returns the offset up to which a partition's log survives; flushed records survive in any case.
        """
        self.born[node] += 1
        self.journal.lived(node, NodeEnded())
        self._down(node)
        self.joined.discard(node)
        self.starting.discard(node)
        if node in self.brokers:
            for partition in self.partitions:
                broker = partition.brokers[node]
                left = kill(broker) if power is None else power_off(broker, power(partition))
                partition.stop_replica(node, left)
        self.look()

    def terminate(self, node: int, ended: Callable[[], None]) -> None:
        """Stop a node with SIGTERM: a broker gives up its leaderships, if it reaches the controller, and flushes its
        logs. `ended` is called when the process is gone; never if it is killed before."""
        born = self.born[node]
        if node in self.brokers and self.reaches(node):
            self._stands(node, controlled_shutdown=True)
            for partition in self.partitions:
                self.apply(partition, begin_shutdown(partition.image, node, self.rules(partition)))
        wait = self.timing.shutdown + int(self.random.random() * self.timing.shutdown_jitter)
        self.clock.call_after(wait, self._end, node, born, ended)

    def _end(self, node: int, born: int, ended: Callable[[], None]) -> None:
        if self.born[node] != born or self.disks.holds(node, 0, self._end, node, born, ended):
            return  # gone already, or it must flush its logs first
        self.born[node] += 1
        self.journal.lived(node, NodeEnded())
        if node in self.brokers:
            if self.reaches(node):
                self.fence(node)
            for partition in self.partitions:
                partition.stop_replica(node, stop_cleanly(partition.brokers[node]))
        self.joined.discard(node)
        self._down(node)
        self.look()
        ended()

    def _down(self, node: int) -> None:
        self.quorum.votes_already.discard(node)
        self.network.down(self._host(node))
        self.disks.ended(node)

    def start(self, node: int) -> None:
        self.born[node] += 1
        self.starting.add(node)
        self.journal.lived(node, NodeStarted())
        wait = self.timing.boot + int(self.random.random() * self.timing.boot_jitter)
        if node not in self.brokers:
            wait //= 2  # a controller is there sooner: it asks nobody
            self.clock.call_after(wait, self._controller_up, node, self.born[node])
            return
        self.clock.call_after(wait, self._register, node, self.born[node], RETRY)

    def _controller_up(self, node: int, born: int) -> None:
        if self.born[node] == born and not self.disks.holds(node, 0, self._controller_up, node, born):
            self.starting.discard(node)
            self._host(node).up = True
            self.look()

    def _register(self, node: int, born: int, backoff: int) -> None:
        """Request the registration of a broker that has started. If no controller is reached or the controller refuses,
        try again after `backoff` ns, which doubles up to 1 s. The controller refuses while the session of the broker's
        last incarnation lives.

        `born`: the value of `Control.born`, a count of the node's starts and ends, at the start of the process. If the
        count has changed, the process has ended, and nothing happens."""
        if self.born[node] != born or self.disks.holds(node, 0, self._register, node, born, backoff):
            return
        host = self._host(node)
        host.up = True
        if node in self.controllers and node not in self.quorum.votes_already:
            self.quorum.votes_already.add(node)
            self.look()  # not again and again: each look without an active controller restarts the time-out
        if (
            host.paused
            or not self.reaches(node)
            or not all(may_register(p.image, node) for p in self.partitions)
        ):
            if not host.paused and self.reaches(node) and node not in (*self.fenced, *self._lost):
                # It does not heartbeat under its old incarnation: that session goes on running out.
                self._lost[node] = self.clock.now
                self._await_end_of(node)
            host.up = False
            self.clock.call_after(backoff, self._register, node, born, min(backoff * 2, SECOND))
            return
        self.journal.registered(node, self.partitions[0].image.registration(node).epoch + 1)
        for partition in self.partitions:
            broker = partition.brokers[node]
            clean = broker.process.epoch if broker.process.clean else NOBODY
            image, registered = register(partition.image, node, clean, self.rules(partition))
            partition.brokers[node] = start(broker, registered)
            partition.failed.discard(node)
            self.apply(partition, image)
        self.joined.add(node)
        self.starting.discard(node)
        self.quorum.votes_already.discard(node)
        self.look()
        for partition in self.partitions:
            self._publish_to(node, partition)
        wait = self.timing.join + int(self.random.random() * self.timing.join_jitter)
        self.clock.call_after(wait, self._caught_up, node, born)

    def _caught_up(self, node: int, born: int) -> None:
        if self.born[node] == born and node in self.fenced and self.reaches(node):
            self.unfence(node)

    def ready(self, node: int) -> bool:
        host = self._host(node)
        return host.running and (
            node not in self.brokers or (node in self.joined and node not in self.fenced)
        )

    def follow_broken(self, broker: int, connection: Connection) -> None:
        """Handle the loss of a connection that a broker had opened: repeat the fetches that were in flight on it, after
        replica.fetch.backoff.ms."""
        for partition in self.partitions:
            if partition.follows(broker, connection.acceptor.id):
                partition.fetch_broken(broker)
