"""Steps of a leader: appends, fetches, the ISR, the high watermark, answers to producers (kafka.cluster.Partition)."""

from __future__ import annotations

from ackproof_reference.broker import (
    Broker,
    BrokerAndMessages,
    Follower,
    Leader,
    Message,
    Process,
    Progress,
    Waiting,
    with_role,
)
from ackproof_reference.log import UNKNOWN, Batch, append, begin_epoch, end_of_epoch
from ackproof_reference.messages import (
    Altered,
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
from ackproof_reference.metadata import Metadata, Partition
from ackproof_reference.producers import check_sequence
from ackproof_reference.rules import Rules, Truncation
from ackproof_reference.transactions import check_marker, marker_batch


def become_leader(broker: Broker, metadata: Metadata, rules: Rules) -> BrokerAndMessages:
    """Return the broker as leader of a new epoch, which begins at its log end, and its answers to waiting producers
    (Partition.makeLeader). Until the followers fetch, the leader has no knowledge of their logs.

    A leader that leads on in the next epoch keeps its knowledge and its waiting producers, because its log was not cut
    meanwhile (Replica.resetReplicaState). If it was deposed in between, it forgets both, and the producers are refused.
    Without the rule `notice_skipped_epochs` it keeps both also then. Without `reset_followers` a new leader keeps the
    knowledge from when it last led, in any case.
    """
    partition, old = metadata.partition, broker.process.role
    others = tuple(replica for replica in partition.replicas if replica != broker.id)
    waiting: tuple[Waiting, ...] = ()
    if isinstance(old, Leader) and (
        partition.leader_epoch == old.epoch + 1 or not rules.notice_skipped_epochs
    ):
        waiting, known = old.waiting, old.progress
    elif isinstance(old, Leader) and not rules.reset_followers:
        known = old.progress
    elif isinstance(old, Follower):
        known = old.remembered
    else:
        known = ()
    of = {entry.replica: entry for entry in known}
    progress = tuple(of.get(replica, Progress(replica)) for replica in others)
    log = begin_epoch(broker.log, partition.leader_epoch)
    role = Leader(partition.leader_epoch, log.end, progress, None, waiting)
    led = Broker(broker.id, log, Process(True, broker.process.epoch, metadata, role))
    # A leader that was deposed in between has refused its waiting producers.
    told = () if waiting else resign(broker)
    led, answers = advance_high_watermark(led, rules)
    return led, (*told, *answers)


def produce(broker: Broker, request: Produce, rules: Rules) -> BrokerAndMessages:
    """Append as leader (appendRecordsToLeader). acks=0 and 1 are answered at once, acks=all when the high watermark
    passes the batch. A duplicate is not appended again; its answer has the offset of the batch in the log.

    Refused, without an append: if the broker does not lead (NOT_LEADER_OR_FOLLOWER); acks=all while the ISR is
    below its minimum (NOT_ENOUGH_REPLICAS); with the errors of `check_sequence`.
    """
    leader = broker.process.role

    def answer(error: Error, offset: int = UNKNOWN) -> tuple[Message, ...]:
        return (Produced(request.producer, request.sequence, error, offset),)

    if not isinstance(leader, Leader):
        return broker, answer(Error.NOT_LEADER_OR_FOLLOWER)
    partition = broker.process.partition
    if request.acks == -1 and len(partition.isr) < rules.effective_min_isr(len(partition.replicas)):
        return broker, answer(Error.NOT_ENOUGH_REPLICAS)
    log = broker.log
    error, held = check_sequence(log, request, rules)
    if error is not Error.NONE:
        return broker, answer(error)
    if held is None:
        held = Batch(
            log.end,
            leader.epoch,
            request.producer,
            request.sequence,
            request.length,
            request.producer_epoch,
            key=request.key,
            transactional=request.transactional,
        )
        log = append(log, held)
    if request.acks == -1:
        waiting = Waiting(request.producer, request.sequence, held.base, held.next)
        leader = leader._replace(waiting=(*leader.waiting, waiting))
        return advance_high_watermark(with_role(broker._replace(log=log), leader), rules)
    appended, messages = advance_high_watermark(broker._replace(log=log), rules)
    return appended, (*messages, *answer(Error.NONE, held.base))


def write_marker(broker: Broker, marker: WriteMarker, rules: Rules) -> BrokerAndMessages:
    """Append a marker that ends a transaction in this log: a control batch that takes an offset of its own
    (EndTransactionMarker, KIP-98).

    A written marker is not answered. A refused marker is answered by a `Produced` with the error and sequence UNKNOWN:
    NOT_LEADER_OR_FOLLOWER, or what `check_marker` returns.
    """
    leader = broker.process.role
    error = Error.NOT_LEADER_OR_FOLLOWER
    if isinstance(leader, Leader):
        error = check_marker(broker.log, marker, rules)
    if not isinstance(leader, Leader) or error is not Error.NONE:
        return broker, (Produced(marker.producer, UNKNOWN, error, UNKNOWN),)
    log = append(broker.log, marker_batch(broker.log, leader.epoch, marker))
    return advance_high_watermark(broker._replace(log=log), rules)


def serve_fetch(broker: Broker, fetch: Fetch, rules: Rules) -> BrokerAndMessages:
    """Answer a follower's fetch, and record its offset as the follower's log end (`Progress`, Partition.fetchRecords).

    The answer has the high watermark from before this fetch, so the follower's high watermark lags by one more fetch. A
    fetch whose last epoch does not fit this log gets the offset of divergence (KIP-595). Then, and after an error, its
    offset is not recorded. Further messages: a proposal that the follower joins the ISR, and answers to producers that
    waited for it.
    """
    log = broker.log
    leader = broker.process.role

    def answer(error: Error, **found: object) -> Fetched:
        return Fetched(
            fetch.follower,
            broker.id,
            fetch.leader_epoch,
            fetch.offset,
            error,
            **found,  # type: ignore[arg-type]
        )

    error = _refused(leader, fetch.leader_epoch, rules)
    if error is not Error.NONE:
        return broker, (answer(error),)
    assert isinstance(leader, Leader)
    if rules.truncation is Truncation.ON_FETCH and fetch.last_epoch != UNKNOWN:
        end = end_of_epoch(log, fetch.last_epoch)
        if end.epoch != UNKNOWN and (end.epoch < fetch.last_epoch or end.start < fetch.offset):
            return broker, (answer(Error.NONE, diverging=end),)
        if end.epoch == UNKNOWN:
            return broker, (answer(Error.OFFSET_OUT_OF_RANGE, leader_start=log.start, leader_end=log.end),)
    if not log.start <= fetch.offset <= log.end:
        return broker, (answer(Error.OFFSET_OUT_OF_RANGE, leader_start=log.start, leader_end=log.end),)
    batches = log.read(fetch.offset, rules.max_fetch_batches)
    reply = answer(Error.NONE, batches=batches, high_watermark=log.high_watermark)
    replicated = fetch.offset
    if not rules.replicated_by_next_fetch and batches:
        replicated = batches[-1].next
    known = Progress(fetch.follower, replicated, fetch.broker_epoch)
    progress = tuple(known if entry.replica == fetch.follower else entry for entry in leader.progress)
    served, expansion = _propose_expansion(
        with_role(broker, leader._replace(progress=progress)), fetch.follower, rules
    )
    served, answers = advance_high_watermark(served, rules)
    return served, (reply, *expansion, *answers)


def answer_epoch_end(broker: Broker, asked: AskEpochEnd, rules: Rules) -> BrokerAndMessages:
    """Return the leader's answer to the question where an epoch ends in its log (KIP-101); the broker's state does not
    change. The answer names the requested epoch; since KIP-279, the epoch that was found (`end_of_epoch`).

    A broker that does not lead answers with an error. So does one that leads in another epoch, if the rules have
    `fetch_fencing`."""
    leader = broker.process.role
    error = _refused(leader, asked.leader_epoch, rules)
    end = end_of_epoch(broker.log, asked.epoch)
    if rules.truncation is Truncation.EPOCH and end.epoch != UNKNOWN:
        end = end._replace(epoch=asked.epoch)
    return broker, (EpochEnd(asked.follower, broker.id, asked.leader_epoch, asked.epoch, error, end),)


def _refused(role: object, leader_epoch: int, rules: Rules) -> Error:
    """Return the error with which a replica refuses a follower's request (KIP-320); NONE if it serves it.

    Without fetch fencing a leader serves requests of any leader epoch.
    """
    if not isinstance(role, Leader):
        return Error.NOT_LEADER_OR_FOLLOWER
    if rules.fetch_fencing and leader_epoch < role.epoch:
        return Error.FENCED_LEADER_EPOCH
    if rules.fetch_fencing and leader_epoch > role.epoch:
        return Error.UNKNOWN_LEADER_EPOCH
    return Error.NONE


def waited_for(partition: Partition, pending: tuple[int, ...] | None, rules: Rules) -> tuple[int, ...]:
    """Return the replicas that the high watermark waits for: the ISR, or, with a pending proposal (`pending`), the
    maximal ISR.

    The maximal ISR is the union of ISR and proposal, because the leader does not know which of the two the controller
    has (KIP-497). If the rules lack `maximal_isr`, it is their intersection.
    """
    if pending is None:
        return partition.isr
    if rules.maximal_isr:
        return tuple(r for r in partition.replicas if r in partition.isr or r in pending)
    return tuple(replica for replica in partition.isr if replica in pending)


def _propose_expansion(broker: Broker, follower: int, rules: Rules) -> BrokerAndMessages:
    """Return the broker, and a proposal that the follower joins the ISR (Partition.maybeExpandIsr, on each fetch).
    There is none if another proposal is pending, or the follower may not join. It may join if:

    * It has reached the leader's high watermark, and the start of the leader's epoch (KIP-320). A new leader's high
      watermark may be below the true one, but the true one is not above that start.
    * It is neither fenced nor stopping (KIP-841).
    * It fetches as the incarnation that the leader's metadata names (KIP-903).

    Rules can switch off each check but that of the high watermark."""
    leader, partition = broker.process.role, broker.process.partition
    assert isinstance(leader, Leader)
    if leader.pending is not None or follower in partition.isr or follower not in partition.replicas:
        return broker, ()
    known = next(entry for entry in leader.progress if entry.replica == follower)
    if known.end < broker.log.high_watermark:
        return broker, ()
    if rules.expand_from_epoch_start and known.end < leader.start:
        return broker, ()
    registered = broker.process.image.registration(follower)
    if rules.fencing and (registered.fenced or registered.stopping):
        return broker, ()
    if rules.broker_epoch_check and registered.epoch != known.broker_epoch:
        return broker, ()
    joined = (*partition.isr, follower)
    if rules.assignment_order:
        joined = tuple(replica for replica in partition.replicas if replica in joined)
    return _propose(broker, joined)


def may_shrink(broker: Broker) -> tuple[int, ...]:
    """Return the ISR members that a leader may propose to drop once they have lagged for replica.lag.time.max.ms:
    those behind its log end (Partition.getOutOfSyncReplicas).

    For how long they lag is not checked here. Empty if the broker does not lead, or has a pending proposal
    (`Leader.pending`).
    """
    leader = broker.process.role
    if not isinstance(leader, Leader) or leader.pending is not None:
        return ()
    isr = broker.process.partition.isr
    return tuple(
        entry.replica for entry in leader.progress if entry.replica in isr and entry.end < broker.log.end
    )


def propose_shrink(broker: Broker, slow: tuple[int, ...]) -> BrokerAndMessages:
    """Return the leader with a pending proposal of an ISR without the followers `slow`, and the message with the
    proposal (Partition.maybeShrinkIsr, every half replica.lag.time.max.ms). Call this only for a leader without a
    pending proposal."""
    isr = broker.process.partition.isr
    return _propose(broker, tuple(replica for replica in isr if replica not in slow))


def _propose(broker: Broker, isr: tuple[int, ...]) -> BrokerAndMessages:
    leader, partition = broker.process.role, broker.process.partition
    assert isinstance(leader, Leader)
    as_of = {entry.replica: entry.broker_epoch for entry in leader.progress}
    as_of[broker.id] = broker.process.epoch
    epochs = tuple(
        broker.process.image.registration(replica).epoch if replica in partition.isr else as_of[replica]
        for replica in isr
    )
    request = AlterPartition(broker.id, broker.process.epoch, leader.epoch, partition.epoch, isr, epochs)
    return with_role(broker, leader._replace(pending=isr)), (request,)


def isr_answered(broker: Broker, answer: Altered, rules: Rules) -> BrokerAndMessages:
    """Apply the controller's answer to an ISR proposal; return the broker, and answers to producers that waited
    (Partition.handleAlterPartitionUpdate).

    An accepted change becomes the leader's image of the partition, and may raise the high watermark. INELIGIBLE_REPLICA
    ends the proposal. After another error it stays pending until newer metadata comes: the leader cannot know the
    controller's ISR. It also stays pending if the change began a new leader epoch (`bump_on_shrink`).

    An answer changes nothing if no proposal is pending, or if it is to an earlier leader epoch. Neither does a change
    that is not newer than the leader's image."""
    leader = broker.process.role
    if not isinstance(leader, Leader) or answer.leader_epoch != leader.epoch or leader.pending is None:
        return broker, ()
    if answer.error is Error.INELIGIBLE_REPLICA:
        return advance_high_watermark(with_role(broker, leader._replace(pending=None)), rules)
    decided = answer.partition
    if decided is None or decided.leader_epoch != leader.epoch:
        return broker, ()
    if decided.epoch <= broker.process.partition.epoch:
        return broker, ()
    return same_leader(broker, Metadata(decided, broker.process.image.brokers), rules)


def same_leader(broker: Broker, metadata: Metadata, rules: Rules) -> BrokerAndMessages:
    """Apply newer metadata with the same leader and leader epoch; return the broker, and the answers to producers whose
    records are now committed. Any change of the partition ends a pending ISR proposal. Call this only for a leader."""
    leader, process = broker.process.role, broker.process
    assert isinstance(leader, Leader)
    if metadata.partition.epoch != process.partition.epoch:
        leader = leader._replace(pending=None)
    known = {entry.replica: entry for entry in leader.progress}
    others = (replica for replica in metadata.partition.replicas if replica != broker.id)
    leader = leader._replace(progress=tuple(known.get(replica, Progress(replica)) for replica in others))
    changed = Broker(broker.id, broker.log, Process(True, process.epoch, metadata, leader))
    return advance_high_watermark(changed, rules)


def advance_high_watermark(broker: Broker, rules: Rules) -> BrokerAndMessages:
    """Raise the high watermark to the lowest log end of the maximal ISR, and answer the producers that waited
    for it.

    It stays while the ISR is smaller than its minimum (`strict_min_isr`, KAFKA-15583), and never falls on a leader
    (Partition.maybeIncrementLeaderHW). If the maximal ISR is smaller than the minimum, the answers have the error
    NOT_ENOUGH_REPLICAS_AFTER_APPEND. Not modelled: Kafka also waits, for a time, for replicas about to join the ISR.
    """
    leader, partition, log = broker.process.role, broker.process.partition, broker.log
    assert isinstance(leader, Leader)
    minimum = rules.effective_min_isr(len(partition.replicas))
    if not rules.strict_min_isr or len(partition.isr) >= minimum:
        members = waited_for(partition, leader.pending, rules)
        ends = [entry.end for entry in leader.progress if entry.replica in members]
        log = log._replace(high_watermark=max(log.high_watermark, min([log.end, *ends])))
    done = tuple(waiting for waiting in leader.waiting if waiting.until <= log.high_watermark)
    if not done:
        return Broker(broker.id, log, broker.process), ()
    enough = len(waited_for(partition, leader.pending, rules)) >= minimum
    error = Error.NONE if enough else Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    answers = tuple(
        Produced(waiting.producer, waiting.sequence, error, waiting.offset if enough else UNKNOWN)
        for waiting in done
    )
    left = tuple(waiting for waiting in leader.waiting if waiting.until > log.high_watermark)
    return with_role(broker._replace(log=log), leader._replace(waiting=left)), answers


def time_out(broker: Broker, waiting: Waiting) -> BrokerAndMessages:
    """Return the broker without this waiting producer, and the answer REQUEST_TIMED_OUT to it. The batch stays in the
    log and may commit later. Call this only for a leader."""
    leader = broker.process.role
    assert isinstance(leader, Leader)
    left = tuple(other for other in leader.waiting if other != waiting)
    answer = Produced(waiting.producer, waiting.sequence, Error.REQUEST_TIMED_OUT, UNKNOWN)
    return with_role(broker, leader._replace(waiting=left)), (answer,)


def resign(broker: Broker) -> tuple[Message, ...]:
    """Return NOT_LEADER_OR_FOLLOWER for each waiting producer, as answers when the leadership is lost; () if the broker
    does not lead."""
    leader = broker.process.role
    if not isinstance(leader, Leader):
        return ()
    return tuple(
        Produced(waiting.producer, waiting.sequence, Error.NOT_LEADER_OR_FOLLOWER, UNKNOWN)
        for waiting in leader.waiting
    )
