"""One partition in virtual time: brokers of `ackproof_reference`, and the times at which each takes its steps.

A follower fetches again as soon as it has an answer. A leader without new records lets the fetch wait (`parked`); it
answers on the next append, or after replica.fetch.wait.max.ms if its high watermark has moved. While nothing happens no
event is simulated, which makes a run cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ackproof.rundir.partition import TopicPartition
from ackproof_reference.broker import Broker, Follower, Leader, Message, with_role
from ackproof_reference.follower import next_request
from ackproof_reference.leader import may_shrink, propose_shrink, resign, time_out
from ackproof_reference.log import Log, flush
from ackproof_reference.messages import (
    AlterPartition,
    AskEpochEnd,
    EpochEnd,
    Error,
    Fetch,
    Fetched,
    Produce,
    Produced,
    WriteMarker,
)
from ackproof_reference.metadata import Metadata
from ackproof_reference.node import Event, step
from ackproof_reference.rules import Rules
from ackproof_reference.transactions import needs_verification
from ackproof_simulator.clock import SECOND
from ackproof_simulator.network import (
    TO_ACCEPTOR,
    TO_OPENER,
    Caught,
    Connection,
    Host,
    PendingFetch,
    PendingProduce,
    Scene,
)

if TYPE_CHECKING:
    from ackproof_simulator.producers import ClientBatch

REQUEST_BYTES = 120
"""Bytes of a request, and of a response without records."""


@dataclass
class PartitionRun:
    """One simulated partition on all its brokers. `image`: the controller's state; brokers learn of it later. `around`:
    the objects that all parts of the run share. In the methods, `at` is the id of a broker.

    By follower: `tokens`, number of its newest fetch; `parked`, its fetch that waits at the leader; `caught`, the
    leader's record of its fetches. `proposed`: by leader, its unanswered ISR proposal. `timed`: leaders that will
    check for timed-out requests. `asked`: produce requests that wait at a leader, by (leader, producer, sequence)."""

    topic: str
    number: int
    rules: Rules
    image: Metadata
    brokers: dict[int, Broker]
    around: Scene
    flush_every: int
    """Records between two fsyncs of a log (flush.messages, log.flush.interval.messages)."""
    tokens: dict[int, int] = field(default_factory=dict)
    parked: dict[int, PendingFetch] = field(default_factory=dict)
    caught: dict[int, Caught] = field(default_factory=dict)
    asked: dict[tuple[int, int, int], PendingProduce] = field(default_factory=dict)
    proposed: dict[int, AlterPartition] = field(default_factory=dict)
    timed: set[int] = field(default_factory=set)
    own: dict[int, Rules] = field(default_factory=dict)
    """By broker: its rules, if they may differ from `rules`, for another release or a setting not learned yet."""
    failed: set[int] = field(default_factory=set)
    """Brokers whose log dir with this partition has failed. Each serves the partition again only after a restart."""
    folder: int = 0
    """Number of the log dir (from 0) that has the partition on every broker that is not in `moved`. `moved`: by
    broker, the log dir to which a fault has moved its replica."""
    moved: dict[int, int] = field(default_factory=dict)
    synced: dict[int, int] = field(default_factory=dict)
    """By broker: log end at the last sync of its file system, independent of Kafka's own flushes."""
    throttle: int = 0
    """Bytes per second that replicas outside the ISR may copy; 0: no limit."""
    written: dict[tuple[int, int, int], ClientBatch] = field(default_factory=dict)
    """The client's batch, by its identity in a log: (producer id, producer epoch, sequence)."""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    def log(self, broker: int) -> Log:
        return self.brokers[broker].log

    def host(self, broker: int) -> Host:
        return self.around.network.hosts[broker]

    def folder_at(self, broker: int) -> int:
        """Return the log dir (from 0) in which a broker has the partition."""
        return self.moved.get(broker, self.folder)

    # -- steps --------------------------------------------------------------------------------------------------

    def step(self, at: int, event: Event) -> tuple[Message, ...]:
        """Apply an event to broker `at` by the reference's rules. Send the resulting messages to clients and the
        controller, and return all of them."""
        before = self.brokers[at]
        broker, messages = step(before, event, self.own.get(at, self.rules))
        self.brokers[at] = broker
        self._apply_step(at, before, broker, messages)
        return messages

    def _apply_step(self, at: int, before: Broker, broker: Broker, messages: tuple[Message, ...]) -> None:
        for message in messages:
            if type(message) is Produced:
                self._answer(at, message)
            elif type(message) is AlterPartition:
                self.proposed[at] = message
                self.around.alter(self, at, message)
        if broker.log.end - broker.log.flushed >= self.flush_every:
            self.brokers[at] = broker._replace(log=flush(broker.log))
        if self.around.advanced is not None and broker.log.high_watermark != before.log.high_watermark:
            self.around.advanced(self, at)

    def _answer(self, at: int, said: Produced) -> None:
        asked = self.asked.pop((at, said.producer, said.sequence), None)
        if asked is None or asked.connection.generation != asked.generation:
            return
        self.around.network.send(
            asked.connection,
            TO_OPENER,
            REQUEST_BYTES,
            asked.client.answered,
            asked.attempt,
            said.error,
            said.offset,
        )

    # -- who leads ----------------------------------------------------------------------------------------------

    def learn(self, at: int, image: Metadata) -> None:
        if at in self.failed:
            return
        disks = self.around.disks
        if disks.frozen and disks.holds_news(self, at, image, self.learn, at, image):
            return
        before = self.brokers[at].process.role
        self.step(at, image)
        self.around.learned(self)
        broker = self.brokers[at]
        after = broker.process.role
        self.renew(at)
        if after is None or (
            before is not None and after.epoch == before.epoch and type(after) is type(before)
        ):
            return
        if isinstance(before, Leader):
            self._wake(at)
        if isinstance(after, Leader):
            now = self.around.network.wall(at)
            for other in broker.process.partition.replicas:
                in_sync = other in broker.process.partition.isr
                self.caught[other] = Caught(now if in_sync else 0, now if in_sync else 0, 0)
            self._look_for_slow(at, after.epoch)
        else:
            self.fetch(at)

    def _drop_slow(self, at: int, epoch: int) -> None:
        """Let a leader propose the removal of followers from the ISR that lag for longer than replica.lag.time.max.ms;
        runs every half of that time. Does nothing once `at` does not lead in `epoch` any more."""
        role = self.brokers[at].process.role
        if not isinstance(role, Leader) or role.epoch != epoch:
            return
        disks, lag_max = self.around.disks, self.around.timing.lag_max
        now = self.around.network.wall(at)
        slow = tuple(
            replica
            for replica in may_shrink(self.brokers[at])
            if now - self.caught[replica].caught_up > lag_max
        )
        if slow:
            if disks.frozen and disks.holds_step(self, at, None, None, self._drop_slow, at, epoch):
                return
            before = self.brokers[at]
            broker, messages = propose_shrink(before, slow)
            self.brokers[at] = broker
            self._apply_step(at, before, broker, messages)
        self._look_for_slow(at, epoch)

    def _look_for_slow(self, at: int, epoch: int) -> None:
        self.around.clock.call_after(
            self.around.timing.lag_max // 2, self.host(at).do, self._drop_slow, at, epoch
        )

    # -- following ----------------------------------------------------------------------------------------------

    def fetch(self, at: int) -> None:
        """Let a follower send its next request (Fetch, or OffsetForLeaderEpoch) to its leader, if it has one; answers
        to its earlier ones are dropped from now on. If the connection is refused or the leader has ended, retry after
        replica.fetch.backoff.ms."""
        token = self.tokens[at] = self.tokens.get(at, 0) + 1
        if not self.host(at).running:
            self.host(at).do(self.fetch, at)
            return
        request = next_request(self.brokers[at])
        if request is None:
            return
        around = self.around
        connection = around.network.between(at, request.leader)
        serve = self._serve_fetch if type(request) is Fetch else self._serve_end
        if not around.network.send(
            connection, TO_ACCEPTOR, REQUEST_BYTES, serve, request.leader, request, connection, token
        ):
            around.clock.call_after(around.timing.fetch_backoff, self._again, at, token)

    def _again(self, at: int, token: int) -> None:
        if self.tokens.get(at) == token:
            self.host(at).do(self.fetch, at)

    def fetch_broken(self, at: int) -> None:
        self.around.clock.call_after(
            self.around.timing.fetch_backoff, self._again, at, self.tokens.get(at, 0)
        )

    def _serve_end(self, leader: int, request: AskEpochEnd, connection: Connection, token: int) -> None:
        disks, again = self.around.disks, (leader, request, connection, token)
        if disks.frozen and disks.holds_step(self, leader, request, connection, self._serve_end, *again):
            return
        for message in self.step(leader, request):
            if type(message) is EpochEnd:
                self._reply(request.follower, message, connection, token, 0)

    def _serve_fetch(self, leader: int, request: Fetch, connection: Connection, token: int) -> None:
        disks, again = self.around.disks, (leader, request, connection, token)
        if disks.frozen and disks.holds_step(self, leader, request, connection, self._serve_fetch, *again):
            return
        end = self.brokers[leader].log.end
        reply = self._served(leader, request)
        if reply.error is Error.NONE and reply.diverging is None:
            seen = self.caught.setdefault(request.follower, Caught(0, 0, 0))
            seen.note(request.offset, end, self.around.network.wall(leader))
            if not reply.batches:
                self.parked[request.follower] = PendingFetch(request, connection, token)
                if (
                    self.brokers[leader].log.high_watermark > reply.high_watermark
                    or reply.high_watermark > end
                ):
                    self.around.clock.call_after(
                        self.around.timing.fetch_wait, self._expire, leader, request.follower, token
                    )
                return
        self._reply(request.follower, reply, connection, token, sum(b.length for b in reply.batches))

    def _served(self, leader: int, request: Fetch) -> Fetched:
        return next(message for message in self.step(leader, request) if type(message) is Fetched)

    def _expire(self, leader: int, follower: int, token: int) -> None:
        parked = self.parked.get(follower)
        if parked is not None and parked.token == token:
            self.host(leader).do(self._answer_parked, leader, follower)

    def renew(self, leader: int) -> None:
        """Answer the waiting fetches of followers outside the leader's ISR after replica.fetch.wait.max.ms: they fetch
        again, as real followers do, and the leader may then propose that they join."""
        role = self.brokers[leader].process.role
        if not self.parked or not isinstance(role, Leader):
            return
        isr = self.brokers[leader].process.partition.isr
        for follower, parked in self.parked.items():
            if follower not in isr:
                self.around.clock.call_after(
                    self.around.timing.fetch_wait, self._expire, leader, follower, parked.token
                )

    def _wake(self, leader: int) -> None:
        for follower in tuple(self.parked):
            self._answer_parked(leader, follower)

    def _answer_parked(self, leader: int, follower: int) -> None:
        parked = self.parked.get(follower)
        if parked is None or parked.request.leader != leader:
            return
        del self.parked[follower]
        reply = self._served(leader, parked.request)
        records = sum(b.length for b in reply.batches)
        self._reply(follower, reply, parked.connection, parked.token, records)

    def _reply(
        self, follower: int, reply: Fetched | EpochEnd, connection: Connection, token: int, records: int
    ) -> None:
        size = REQUEST_BYTES + records * self.around.record_bytes
        send = (connection, TO_OPENER, size, self._take, follower, reply, token)
        if self.throttle and records and follower not in self.image.partition.isr:
            # Its share of the rate has yet to come (ReplicationQuotaManager).
            wait = size * SECOND // self.throttle
            self.around.clock.call_after(wait, self.host(reply.leader).do, self.around.network.send, *send)
        else:
            self.around.network.send(*send)

    def _take(self, follower: int, reply: Fetched | EpochEnd, token: int) -> None:
        if self.tokens.get(follower) != token:
            return
        disks, again = self.around.disks, (follower, reply, token)
        if disks.frozen and disks.holds_step(self, follower, reply, reply.leader, self._take, *again):
            return
        self.step(follower, reply)
        if reply.error in (Error.NONE, Error.OFFSET_OUT_OF_RANGE):
            self.fetch(follower)
        else:
            self.around.clock.call_after(self.around.timing.fetch_backoff, self._again, follower, token)

    # -- producing ----------------------------------------------------------------------------------------------

    def produce(self, leader: int, request: Produce, asked: PendingProduce) -> None:
        disks, lane = self.around.disks, asked.connection
        if disks.frozen and disks.holds_step(
            self, leader, request, lane, self.produce, leader, request, asked
        ):
            return
        if request.acks != 0:
            self.asked[leader, request.producer, request.sequence] = asked
        end = self.brokers[leader].log.end
        rules = self.own.get(leader, self.rules)
        if needs_verification(self.log(leader), request, rules) and not self.around.verified(self, request):
            self._answer(leader, Produced(request.producer, request.sequence, Error.INVALID_TXN_STATE, -1))
            return
        messages = self.step(leader, request)
        broker = self.brokers[leader]
        if request.acks == 0 and any(type(m) is Produced and m.error is not Error.NONE for m in messages):
            # Without an answer to give, the connection is closed so that the client looks for the leader.
            self.around.network.reset(asked.connection)
        role = broker.process.role
        if isinstance(role, Leader) and role.waiting and leader not in self.timed:
            self.timed.add(leader)
            timeout = asked.request_timeout
            self.around.clock.call_after(timeout, self.host(leader).do, self._end_waiting, leader, timeout)
        if broker.log.end > end and self.parked:
            self._wake(leader)

    def mark(self, leader: int, marker: WriteMarker) -> int:
        self.step(leader, marker)
        if self.parked:
            self._wake(leader)
        return self.log(leader).end

    def _end_waiting(self, leader: int, timeout: int) -> None:
        """Answer the producers whose acks=all requests have waited at the leader for `timeout` ns (request.timeout.ms),
        and schedule the next check if other producers wait."""
        self.timed.discard(leader)
        clock = self.around.clock
        role = self.brokers[leader].process.role
        waiting = role.waiting if isinstance(role, Leader) else ()
        later = 0
        for one in waiting:
            asked = self.asked.get((leader, one.producer, one.sequence))
            since = asked.since if asked is not None else 0
            if clock.now - since < timeout:
                later = since + timeout
                break
            before = self.brokers[leader]
            broker, messages = time_out(before, one)
            self.brokers[leader] = broker
            self._apply_step(leader, before, broker, messages)
        if later:
            self.timed.add(leader)
            clock.call_at(later, self.host(leader).do, self._end_waiting, leader, timeout)

    # -- life of a broker ---------------------------------------------------------------------------------------

    def stop_replica(self, at: int, left: Broker) -> None:
        """Replace a broker's state by `left`, the state that its ended process left on disk. Requests that waited at
        the broker, and its own fetch that waited at the leader, are dropped."""
        self.brokers[at] = left
        self.tokens[at] = self.tokens.get(at, 0) + 1
        self.proposed.pop(at, None)
        self.timed.discard(at)
        for follower in [f for f, parked in self.parked.items() if at in (f, parked.request.leader)]:
            del self.parked[follower]
        for key in [key for key in self.asked if key[0] == at]:
            del self.asked[key]

    def lose_log(self, at: int) -> None:
        """Let a broker stop serving its replica, because it cannot write the log any more
        (ReplicaManager.handleLogDirFailure)."""
        before = self.brokers[at]
        self.failed.add(at)
        self.brokers[at] = with_role(before, None)
        self.tokens[at] = self.tokens.get(at, 0) + 1
        self.proposed.pop(at, None)
        self._apply_step(at, before, self.brokers[at], resign(before))
        self._wake(at)

    def leads(self, at: int) -> bool:
        return at in self.brokers and isinstance(self.brokers[at].process.role, Leader)

    def follows(self, at: int, leader: int) -> bool:
        role = self.brokers[at].process.role
        return isinstance(role, Follower) and role.leader == leader
