"""Producers in virtual time, as librdkafka sends: a batch per partition and linger, retries, time-outs, idempotence.

A producer numbers its records from 0: the number is the record's seq. Only batches are simulated; their records become
rows when a ledger is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ackproof.experiment.spec import ProducerSpec
from ackproof.rundir.guarantees import LIBRDKAFKA, classify_report
from ackproof.rundir.outcome import Outcome
from ackproof_model.predict.cases import ACKS
from ackproof_reference.messages import Error, Produce
from ackproof_reference.metadata import NO_LEADER
from ackproof_simulator.clock import MS, SECOND, seconds
from ackproof_simulator.network import TO_ACCEPTOR, Connection, Host, Network, PendingProduce, Scene
from ackproof_simulator.partition import REQUEST_BYTES, PartitionRun

FULL_RATE = 50_000.0
"""Records per second of all producers for `rate: full`, about what a cluster of this harness handles."""
MOST_RECORDS = 10_000
"""batch.num.messages of librdkafka: the most records in a batch."""
REQUEST_TIMEOUT_S = 30.0
TRANSPORT, TIMED_OUT, PURGED = -195, -192, -152
"""librdkafka's codes: _TRANSPORT, _MSG_TIMED_OUT, _PURGE_QUEUE."""
IDEMPOTENT_IN_FLIGHT = 5
_UNCOUNTED = frozenset({Error.NOT_LEADER_OR_FOLLOWER})
_RETRIABLE = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.REQUEST_TIMED_OUT,
    }
)


@dataclass(slots=True, eq=False)
class ClientBatch:
    """Records of one producer for one partition, sent together, with their outcome. Times in nanoseconds.

    Its records have seqs `first`, `first + step`, …, `count` in all. `place`: index in `Producer.lines`. `number`:
    position among the producer's batches, from 0. `offset`: offset of the first record, -1 if not acknowledged or
    unknown (acks=0). `error`: error code of Kafka or librdkafka, 0: none. `done`: when the outcome was known, -1
    before. `sends`: how often it was sent; `tries`: failures that count towards `retries`. `epoch`, `sequence`:
    producer epoch (-1: not sent yet, or no idempotence) and sequence number of its first record."""

    producer: int
    place: int
    first: int
    step: int
    count: int
    made: int
    """Time in ns at which its first record was passed to the client library."""
    number: int
    outcome: Outcome | None = None
    error: int = 0
    offset: int = -1
    done: int = -1
    sends: int = 0
    tries: int = 0
    connection: Connection | None = None
    epoch: int = -1
    sequence: int = 0
    txn: int = -1
    """Number of its transaction among its producer's, from 0; -1: not transactional."""


@dataclass
class Line:
    """A producer's queue and requests for one partition. `place`: the partition's index in `World`. `leader`: the
    leader that the producer knows.

    `flying`: requests in flight, by the batch's number. `next_sequence`, `epoch`: sequence number of the next record,
    and the producer epoch to which it belongs. `waits_until`: time in ns before which nothing is sent; `armed`: True if
    a call at that time is scheduled. `asking`: True if `ask_soon` has scheduled a request for metadata."""

    partition: PartitionRun
    place: int
    leader: int
    queue: deque[ClientBatch] = field(default_factory=deque)
    flying: dict[int, ClientBatch] = field(default_factory=dict)
    next_sequence: int = 0
    epoch: int = -1
    waits_until: int = 0
    armed: bool = False
    asking: bool = False


Tell: TypeAlias = Callable[[ClientBatch, PartitionRun], None]
"""Called with a batch, once its outcome is known, and the batch's partition."""


class Producer:
    """One simulated producer process with the behaviour of librdkafka.

    `lines`: its queue for each of n partitions; the record with seq s goes to `lines[(s + first_place) % n]`.
    `tell(batch, partition)` is called with every batch once its outcome is known."""

    def __init__(
        self,
        number: int,
        host: Host,
        spec: ProducerSpec,
        lines: list[Line],
        first_place: int,
        scene: Scene,
        tell: Tell,
    ) -> None:
        self.number, self.host, self.spec, self.lines = number, host, spec, lines
        self.pid = number
        """Producer id as stored in record batches."""
        self.clock, self.network = scene.clock, scene.network
        self.timing, self.random, self.tell = scene.timing, scene.random, tell
        self.acks = ACKS[spec.acks]
        self.retries = 2**31 if spec.retries is None else spec.retries
        self.in_flight = spec.in_flight or 1_000_000
        if spec.idempotence:
            self.in_flight = min(self.in_flight, IDEMPOTENT_IN_FLIGHT)
            self.retries = 2**31
        self.record_bytes = spec.value_size + 12
        self.linger = max(seconds(spec.linger), MS)
        own = spec.config.get("topic.metadata.refresh.interval.ms")
        self.refresh = self.timing.refresh if own is None else int(float(own) * MS)
        self.delivery = seconds(spec.delivery_timeout)
        self.request_timeout = seconds(
            REQUEST_TIMEOUT_S if spec.request_timeout is None else spec.request_timeout
        )
        self.resend_after = 0 if self.retries else int(0.08 * SECOND)
        rate = FULL_RATE if spec.rate is None else spec.rate
        self.gap = SECOND * spec.count / rate
        self.first_place = first_place
        self.began = 0
        self.made = 0
        self.batches: list[ClientBatch] = []
        self.stopping = False
        self.closed = False
        host.broken = self._broken
        if spec.idempotence:
            for line in lines:
                line.epoch = 0
        self._next = 0
        self._least = max(self.linger, int(self.gap * len(lines)) + 1)

    # -- making records -----------------------------------------------------------------------------------------

    def start(self) -> None:
        self.began = self.clock.now
        self.clock.call_after(int(self.random.random() * self._least) + 1, self.host.do, self._make)
        self.clock.call_after(SECOND, self._watch)

    def sent_times(self, seq: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the virtual time in ns at which each of these seqs was passed to the client library."""
        return (self.began + seq * self.gap).astype(np.int64)

    def sent_ns(self, seq: int) -> int:
        return self.began + int(seq * self.gap)

    def _make(self) -> None:
        """Create the records that are due since the last call, and send them in batches. Calls itself again after one
        linger. At a low rate, the interval is longer: the time in which each partition gets a record. Ends when the
        producer stops."""
        if self.stopping:
            return
        due = int((self.clock.now - self.began) / self.gap)
        while self.made < due:
            self._deal(due)
        self._drain_all()
        self.clock.call_after(self._least, self.host.do, self._make)

    def _deal(self, due: int) -> None:
        """Create the records with seqs below `due`, at most `MOST_RECORDS` per partition, and put them round-robin into
        the partitions' queues."""
        start, places = self.made, len(self.lines)
        self.made = stop = min(due, start + MOST_RECORDS * places)
        for place, line in enumerate(self.lines):
            first = start + (place - self.first_place - start) % places
            if first < stop:
                self._put(line, place, first, (stop - first + places - 1) // places)

    def _drain_all(self) -> None:
        for line in self.lines:
            if line.queue:
                self._drain(line)

    def _put(self, line: Line, place: int, first: int, count: int) -> None:
        """Add `count` records (every nth seq from `first` on, with n partitions) to a partition's queue: to its last
        batch if that has room and was not sent, else as a new batch. `place`: index of `line` in `lines`."""
        if line.queue:
            last = line.queue[-1]
            if not last.sends and last.count + count <= MOST_RECORDS:
                last.count += count
                return
        batch = ClientBatch(
            self.number, place, first, len(self.lines), count, self.sent_ns(first), len(self.batches)
        )
        self.batches.append(batch)
        line.queue.append(batch)

    # -- sending ------------------------------------------------------------------------------------------------

    def _drain(self, line: Line) -> None:
        """Send a partition's queued batches in order, while fewer than `in_flight` are in flight. Without a reachable
        leader, try again later."""
        now = self.clock.now
        if now < line.waits_until:
            self._arm(line)
            return
        while line.queue and len(line.flying) < self.in_flight:
            if line.leader == NO_LEADER:
                self._backoff(line)
                return
            if not self._send(line, line.queue[0]):
                self._backoff(line)
                self.ask_soon(line)
                return
            line.queue.popleft()

    def _backoff(self, line: Line) -> None:
        spread = self.timing.reconnect_max - self.timing.reconnect
        line.waits_until = self.clock.now + self.timing.reconnect + int(self.random.random() * spread)
        self._arm(line)

    def _arm(self, line: Line) -> None:
        if not line.armed:
            line.armed = True
            self.clock.call_at(line.waits_until, self._armed, line)

    def _armed(self, line: Line) -> None:
        line.armed = False
        self.host.do(self._drain, line)

    def _send(self, line: Line, batch: ClientBatch) -> bool:
        connection = self.network.between(self.host.id, line.leader)
        if self.spec.idempotence and batch.epoch != line.epoch:
            batch.epoch, batch.sequence = line.epoch, line.next_sequence
            line.next_sequence += batch.count
        sequence = batch.sequence if self.spec.idempotence else batch.number
        request = self._request(batch, sequence)
        asked = PendingProduce(
            self, connection, connection.generation, batch, self.clock.now, self.request_timeout
        )
        size = REQUEST_BYTES + batch.count * self.record_bytes
        if not self.network.send(
            connection, TO_ACCEPTOR, size, line.partition.produce, line.leader, request, asked
        ):
            return False
        batch.sends += 1
        line.partition.written[self.pid, batch.epoch, sequence] = batch
        if self.acks == 0:
            self._done(line, batch, Outcome.ACKED, 0, -1)
            return True
        batch.connection = connection
        line.flying[batch.number] = batch
        return True

    def _request(self, batch: ClientBatch, sequence: int) -> Produce:
        return Produce(self.pid, sequence, self.acks, batch.count, batch.epoch)

    # -- answers ------------------------------------------------------------------------------------------------

    def answered(self, attempt: ClientBatch, error: Error, offset: int) -> None:
        line = self.lines[attempt.place]
        if line.flying.pop(attempt.number, None) is None:
            return
        if error is Error.NONE:
            self._done(line, attempt, Outcome.ACKED, 0, offset)
        elif error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._out_of_order(line, attempt)
        elif error in _RETRIABLE:
            self._retry(line, attempt, error.value, counted=error not in _UNCOUNTED)
        else:
            self._fail(line, attempt, error.value)
        if line.queue:
            self._drain(line)

    def _out_of_order(self, line: Line, batch: ClientBatch) -> None:
        """Handle the answer OUT_OF_ORDER_SEQUENCE_NUMBER to a batch, which is sent again later. If no earlier batch of
        its partition is queued or in flight, the leader lost one: the epoch is raised (KIP-360)."""
        line.queue.append(batch)
        if not any(other.number < batch.number for other in line.flying.values()):
            earlier = any(other.number < batch.number for other in line.queue)
            if not earlier:
                line.epoch += 1
                line.next_sequence = 0
        self._sort(line)
        line.waits_until = self.clock.now + self.timing.retry

    def _retry(self, line: Line, batch: ClientBatch, code: int, *, counted: bool = True) -> None:
        if counted:
            batch.tries += 1
        if batch.tries > self.retries:
            self._fail(line, batch, code)
            return
        backoff = min(self.timing.retry << min(batch.tries, 10), self.timing.retry_max)
        line.queue.append(batch)
        self._sort(line)
        line.waits_until = self.clock.now + int(backoff * (0.8 + 0.4 * self.random.random()))
        self._arm(line)
        self.ask_soon(line)

    def _sort(self, line: Line) -> None:
        line.queue = deque(sorted(line.queue, key=lambda batch: batch.number))

    def _fail(self, line: Line, batch: ClientBatch, code: int) -> None:
        once = batch.sends <= 1 and self.clock.now - batch.made < self.resend_after
        self._done(line, batch, classify_report(code, LIBRDKAFKA, may_resend=not once), code, -1)

    def _done(self, line: Line, batch: ClientBatch, outcome: Outcome, error: int, offset: int) -> None:
        batch.outcome, batch.error, batch.offset, batch.done = outcome, error, offset, self.clock.now
        batch.connection = None
        self.tell(batch, line.partition)

    def _broken(self, connection: Connection) -> None:
        """Handle a lost connection: its batches in flight are sent again, or fail if no retry is left."""
        for line in self.lines:
            lost = [b for b in line.flying.values() if b.connection is connection]
            for batch in lost:
                del line.flying[batch.number]
                self._retry(line, batch, TRANSPORT)
            if line.leader == connection.acceptor.id:
                self.ask_soon(line)

    # -- metadata -----------------------------------------------------------------------------------------------

    def ask_soon(self, line: Line) -> None:
        """Schedule a request for metadata at a random time within one refresh interval, unless `Line.asking` is set."""
        if not line.asking:
            line.asking = True
            self.clock.call_after(int(self.random.random() * self.timing.refresh), self._ask, line)

    def ask_in_turn(self, line: Line) -> None:
        """Schedule a request for metadata at the next regular refresh, for a client that has noticed no problem."""
        self.clock.call_after(int(self.random.random() * self.refresh), self._ask, line)

    def _ask(self, line: Line) -> None:
        line.asking = False
        self.host.do(self._find_leader, line)

    def _find_leader(self, line: Line) -> None:
        """Take a partition's leader from the newest metadata among the brokers that the producer reaches, and send what
        waits if the leader is another one. If it reaches none, ask again soon."""
        newest = newest_known(self.network, self.host, line.partition)
        if newest is None:
            self.ask_soon(line)
            return
        if newest == line.leader:
            return
        line.leader = newest
        line.waits_until = min(line.waits_until, self.clock.now)
        self._drain(line)

    # -- ends ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self.closed or not self.host.up:
            return
        limit = self.clock.now - self.delivery
        for line in self.lines:
            for batch in [*line.flying.values(), *line.queue]:
                if batch.made < limit:
                    self._give_up(line, batch, TIMED_OUT)
        self.clock.call_after(SECOND, self._watch)

    def _give_up(self, line: Line, batch: ClientBatch, code: int) -> None:
        if line.flying.pop(batch.number, None) is None:
            line.queue.remove(batch)
        self._fail(line, batch, code)

    @property
    def idle(self) -> bool:
        return not any(line.queue or line.flying for line in self.lines)

    def purge(self) -> None:
        for line in self.lines:
            for batch in [*line.flying.values(), *line.queue]:
                self._give_up(line, batch, PURGED)


def newest_known(network: Network, client: Host, partition: PartitionRun) -> int | None:
    """Return the partition's leader (or NO_LEADER) in the newest metadata among the brokers that this client reaches.
    None if it reaches no broker that has metadata of the partition."""
    best, leader = -1, None
    for number, broker in partition.brokers.items():
        metadata = broker.process.metadata
        if (
            metadata is not None
            and metadata.partition.epoch > best
            and network.between(client.id, number).usable
        ):
            best, leader = metadata.partition.epoch, metadata.partition.leader
    return leader
