"""The transaction coordinator in virtual time. It runs on the leader of the transaction log's partition.

The steps are the reference's (`ackproof_reference.transactions`). A decision survives the death of its coordinator: the
next leader of the transaction log goes on with it. Only the coordinator itself can be missing: the partition has no
leader, its ISR is below min.insync.replicas, or the client cannot reach the leader. `slot` numbers a transactional id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.timing import configured
from ackproof_reference.broker import Leader
from ackproof_reference.messages import Error, Produce, WriteMarker
from ackproof_reference.transactions import (
    State,
    Transaction,
    add_partition,
    end_transaction,
    init_producer,
    marker_for,
    marker_written,
    verified,
)
from ackproof_simulator.clock import MS, seconds
from ackproof_simulator.network import TO_ACCEPTOR, TO_OPENER, Host, Scene
from ackproof_simulator.partition import REQUEST_BYTES, PartitionRun
from ackproof_simulator.producers import newest_known

WRITE_NS: Final = 2 * MS
"""Nanoseconds to write a decision to the transaction log and replicate it, before the client is answered."""
SWEEP: Final = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
AGAIN_NS: Final = 20 * MS
"""Nanoseconds between two attempts to send markers while none is in flight, and until a client is answered
`NOT_COORDINATOR` because it cannot reach a coordinator."""
Step: TypeAlias = Callable[[Transaction], tuple[Transaction, Error]]
"""Function that applies a client's request to a transaction; returns the transaction after it, and the error for
the client."""
Answer: TypeAlias = Callable[[Error, int], None]
"""Callback of a client: called with the error and the current producer epoch; with `NOT_COORDINATOR` and -1 if no
coordinator answers."""
NOT_COORDINATOR: Final = Error.NOT_LEADER_OR_FOLLOWER


@dataclass
class _Known:
    """The coordinator's memory of one transactional id: its transaction, and the markers that are in flight."""

    transaction: Transaction
    """State of the present transaction. librdkafka speaks the first transaction protocol (before KIP-890), in which one
    producer epoch spans many transactions.
    """
    decided: tuple[int, bool] | None = None
    """(producer epoch, True for a commit) of the last decided transaction, by which a repeated EndTxn is answered;
    None: none was decided."""
    since: int = 0
    """Number of the present transaction, from 1, so that a time-out of an earlier one is ignored."""
    driving: bool = False
    """True if the next check of the markers is scheduled."""
    sent: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Markers in flight, by partition: leader, its leader epoch, and the offset that the high watermark must reach."""


class Coordinator:
    """The transaction coordinator. `log`: partition of the transaction log. `partitions`: data partitions, by
    index.

    `slot` in its methods is the number of a transactional id. `answer(error, epoch)` is called when the client has the
    answer. If no coordinator answered, the error is NOT_COORDINATOR and the epoch -1: the client must ask again.
    """

    def __init__(
        self, experiment: ExperimentSpec, scene: Scene, log: PartitionRun, partitions: Sequence[PartitionRun]
    ) -> None:
        self._clock, self._network, self._random = scene.clock, scene.network, scene.random
        self.log, self._partitions = log, partitions
        cluster = experiment.cluster
        self._timeout = seconds(experiment.workload.producers.transaction_timeout)
        self._sweep = int(configured(cluster, cluster.broker_ids[0]).get(SWEEP, "10000")) * MS
        self._known: dict[int, _Known] = {}

    # -- requests -----------------------------------------------------------------------------------------------

    def init(self, client: Host, slot: int, answer: Answer) -> None:
        """Handle InitProducerId of transactional id number `slot`: raise the producer epoch, which fences the id's
        present producer.

        An open transaction is aborted first; until its markers are written the error is INVALID_TXN_STATE, and the
        client must repeat the request.
        """
        self._ask(client, slot, init_producer, answer)

    def add(self, client: Host, slot: int, epoch: int, place: int, answer: Answer) -> None:
        """Handle AddPartitionsToTxn for the data partition with index `place`. Answers with the errors of
        `add_partition`."""
        self._ask(client, slot, lambda one: add_partition(one, epoch, place), answer)

    def end(self, client: Host, slot: int, epoch: int, answer: Answer, *, commit: bool) -> None:
        """Handle EndTxn from a producer with this `epoch`: commit, or abort. A repeated request for the last decided
        transaction is answered again. Answers with the errors of `end_transaction`."""

        def step(one: Transaction) -> tuple[Transaction, Error]:
            known = self._known[slot]
            if one.epoch == epoch and one.state is not State.ONGOING and known.decided == (epoch, commit):
                return one, Error.NONE  # asked again: the answer was lost
            decided, error = end_transaction(one, epoch, commit=commit)
            if error is Error.NONE:
                known.decided = (epoch, commit)
            return decided, error

        self._ask(client, slot, step, answer)

    def verified(self, partition: PartitionRun, request: Produce) -> bool:
        """Return True if the partition is in the open transaction of the request's producer. The partition's
        leader asks before it appends (KIP-890).
        """
        known = self._known.get(request.producer)
        place = next(at for at, one in enumerate(self._partitions) if one is partition)
        return known is not None and verified(known.transaction, request.producer_epoch, place)

    def _ask(self, client: Host, slot: int, step: Step, answer: Answer) -> None:
        # The coordinator as a client knows it: the leader that an answering broker names.
        node = newest_known(self._network, client, self.log)
        if node is None or node < 0 or not self._network.between(client.id, node).usable:
            self._clock.call_after(AGAIN_NS, client.do, answer, NOT_COORDINATOR, -1)
            return
        connection = self._network.between(client.id, node)
        generation = connection.generation
        told = [False]

        def tell(error: Error, epoch: int) -> None:
            if not told[0]:
                told[0] = True
                answer(error, epoch)

        def lost() -> None:
            # The connection broke under way, or nobody answers: the client asks again.
            if not told[0] and (connection.generation != generation or not connection.usable):
                client.do(tell, NOT_COORDINATOR, -1)
            elif not told[0]:
                self._clock.call_after(5 * AGAIN_NS, lost)

        def reply(error: Error, epoch: int) -> None:
            self._network.send(connection, TO_OPENER, REQUEST_BYTES, tell, error, epoch)

        self._network.send(connection, TO_ACCEPTOR, REQUEST_BYTES, self._handle, node, slot, step, reply)
        self._clock.call_after(5 * AGAIN_NS, lost)

    def _handle(self, node: int, slot: int, step: Step, reply: Answer) -> None:
        if not self._coordinates(node):
            self._clock.call_after(WRITE_NS, self._if_up, node, reply, NOT_COORDINATOR, -1)
            return
        known = self._known.setdefault(slot, _Known(Transaction(slot)))
        before = known.transaction.state
        known.transaction, error = step(known.transaction)
        if before is not State.ONGOING and known.transaction.state is State.ONGOING:
            known.since += 1
            # The coordinator looks for expired transactions periodically.
            wait = self._timeout + int(self._random.random() * self._sweep)
            self._clock.call_after(wait, self._expire, slot, known.since)
        self._drive(slot)
        self._clock.call_after(WRITE_NS, self._if_up, node, reply, error, known.transaction.epoch)

    def _if_up(self, node: int, reply: Answer, error: Error, epoch: int) -> None:
        self.log.host(node).do(reply, error, epoch)

    def _coordinates(self, node: int) -> bool:
        state = self.log.image.partition
        role = self.log.brokers[node].process.role
        rules = self.log.rules
        return (
            state.leader == node
            and isinstance(role, Leader)
            and len(state.isr) >= rules.effective_min_isr(len(state.replicas))
        )

    def _expire(self, slot: int, since: int) -> None:
        """Abort transaction number `since` (`_Known.since`) of an id, and fence its producer, because
        transaction.timeout.ms has passed. Does nothing if this transaction has ended; tries again later if
        there is no coordinator."""
        known = self._known[slot]
        if known.since != since or known.transaction.state is not State.ONGOING:
            return
        if not self._somebody_coordinates():
            self._clock.call_after(5 * AGAIN_NS, self._expire, slot, since)
            return
        known.transaction, _ = init_producer(known.transaction)
        self._drive(slot)

    # -- markers ------------------------------------------------------------------------------------------------

    def _somebody_coordinates(self) -> bool:
        node = self.log.image.partition.leader
        return node >= 0 and self.log.host(node).running and self._coordinates(node)

    def _drive(self, slot: int) -> None:
        known = self._known[slot]
        if not known.driving and known.transaction.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            known.driving = True
            self._clock.call_after(WRITE_NS, self._go_on, slot)

    def _go_on(self, slot: int) -> None:
        """Send the missing markers of a decided transaction. A marker is written once it is below the high watermark of
        its partition. Calls itself again until all are written."""
        known = self._known[slot]
        known.driving = False
        if self._somebody_coordinates():
            for place in known.transaction.partitions:
                self._look_at_marker(known, place)
        if known.transaction.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            known.driving = True
            self._clock.call_after(MS if known.sent else AGAIN_NS, self._go_on, slot)

    def _look_at_marker(self, known: _Known, place: int) -> None:
        partition = self._partitions[place]
        sent = known.sent.get(place)
        if sent is not None:
            leader, epoch, until = sent
            role = partition.brokers[leader].process.role
            if isinstance(role, Leader) and role.epoch == epoch:
                if partition.log(leader).high_watermark >= until:
                    del known.sent[place]
                    known.transaction = marker_written(known.transaction, place)
                return
            del known.sent[place]
        marker = marker_for(known.transaction, place)
        node, leader = self.log.image.partition.leader, partition.image.partition.leader
        if marker is None or leader < 0:
            return
        if node == leader:
            self.write(known, place, leader, marker)
            return
        connection = self._network.between(node, leader)
        if connection.usable:
            self._network.send(
                connection, TO_ACCEPTOR, REQUEST_BYTES, self.write, known, place, leader, marker
            )

    def write(self, known: _Known, place: int, leader: int, marker: WriteMarker) -> None:
        partition = self._partitions[place]
        role = partition.brokers[leader].process.role
        if (
            place in known.sent
            or not isinstance(role, Leader)
            or marker_for(known.transaction, place) != marker
        ):
            return
        until = partition.mark(leader, marker)
        known.sent[place] = (leader, role.epoch, until)
