"""Steps of a follower: it fetches from the leader's log, and truncates what the leader does not have
(AbstractFetcherThread)."""

from __future__ import annotations

from ackproof_reference.broker import (
    Broker,
    BrokerAndMessages,
    Follower,
    Leader,
    Process,
    Progress,
    with_role,
)
from ackproof_reference.leader import resign
from ackproof_reference.log import UNKNOWN, Log, append, end_of_epoch, restart_at, truncate
from ackproof_reference.messages import AskEpochEnd, EpochEnd, Error, Fetch, Fetched
from ackproof_reference.metadata import NO_LEADER, Metadata
from ackproof_reference.rules import Rules, Truncation


def become_follower(broker: Broker, metadata: Metadata, rules: Rules) -> BrokerAndMessages:
    """Return the broker as follower of the leader in the metadata, or of none (Partition.makeFollower). If it led, the
    messages refuse the producers that waited (`resign`).

    Before KIP-101 the log is truncated to its high watermark here, if the broker begins to follow another leader.
    From KIP-101 until KIP-595 the follower first asks the leader where the follower's last epoch ends, if its log has
    an epoch. Since KIP-595 it fetches at once, and the answer says where to truncate.
    """
    partition = metadata.partition
    log = broker.log
    asks = rules.truncation in (Truncation.EPOCH, Truncation.WALK_BACK) and log.last_epoch != UNKNOWN
    old = broker.process.role
    same = isinstance(old, Follower) and old.leader == partition.leader
    if rules.truncation is Truncation.HIGH_WATERMARK and partition.leader != NO_LEADER and not same:
        log = truncate(log, log.high_watermark)
    remembered: tuple[Progress, ...] = ()
    if not rules.reset_followers:
        remembered = old.progress if isinstance(old, Leader) else old.remembered if old is not None else ()
    role = Follower(partition.leader, partition.leader_epoch, asks, remembered)
    process = Process(True, broker.process.epoch, metadata, role)
    return Broker(broker.id, log, process), resign(broker)


def next_request(broker: Broker) -> Fetch | AskEpochEnd | None:
    """Return the next request of a follower to its leader: `AskEpochEnd` while it is truncating, else `Fetch`. None
    if the broker does not follow, or there is no leader.
    """
    role = broker.process.role
    if not isinstance(role, Follower) or role.leader == NO_LEADER:
        return None
    log = broker.log
    if role.truncating:
        return AskEpochEnd(broker.id, role.leader, role.epoch, log.last_epoch)
    return Fetch(broker.id, role.leader, broker.process.epoch, role.epoch, log.end, log.last_epoch)


def take_fetched(broker: Broker, answer: Fetched, rules: Rules) -> BrokerAndMessages:
    """Append the fetched batches and apply the leader's high watermark, or truncate where the logs diverge. Sends
    nothing.

    After OFFSET_OUT_OF_RANGE a log that ends beyond the leader's end is truncated to it. A log that ends before the
    leader's start is emptied and begins there. Nothing changes after another error, or if the broker does not follow.
    A follower that is `truncating` takes no batches. With `match_responses`, a response to a fetch that this follower
    would not send now is dropped (AbstractFetcherThread.processFetchRequest).
    """
    role, log = broker.process.role, broker.log
    if not isinstance(role, Follower):
        return broker, ()
    if rules.match_responses and (
        answer.leader_epoch != role.epoch or answer.leader != role.leader or answer.offset != log.end
    ):
        return broker, ()
    if answer.error is Error.OFFSET_OUT_OF_RANGE:
        return broker._replace(log=_reset(log, answer)), ()
    if answer.error is not Error.NONE or role.truncating:
        return broker, ()
    if answer.diverging is not None:
        return broker._replace(
            log=truncate(log, _divergence(log, answer.diverging.epoch, answer.diverging.start))
        ), ()
    for batch in answer.batches:
        if batch.base >= log.end:
            log = append(log, batch)
    high_watermark = answer.high_watermark
    if rules.bounded_high_watermark:
        high_watermark = min(high_watermark, log.end)
    return broker._replace(log=log._replace(high_watermark=high_watermark)), ()


def take_epoch_end(broker: Broker, answer: EpochEnd, rules: Rules) -> BrokerAndMessages:
    """Truncate to the offset at which the leader says the follower's last epoch ends (KIP-101). Sends nothing: the
    follower fetches next.

    With KIP-279 the leader names the epoch that it found, and the follower asks again while it does not have that
    epoch. If all epochs of the leader's log are older, the follower truncates to its high watermark. An error, or
    an answer that the follower does not wait for, changes nothing.
    """
    role, log = broker.process.role, broker.log
    if not isinstance(role, Follower) or not role.truncating or answer.error is not Error.NONE:
        return broker, ()
    if rules.match_responses and (answer.leader_epoch, answer.leader) != (role.epoch, role.leader):
        return broker, ()
    done = True
    if answer.end.start == UNKNOWN:
        offset = log.high_watermark
    elif rules.truncation is Truncation.EPOCH:
        offset = answer.end.start
    else:
        offset = _divergence(log, answer.end.epoch, answer.end.start)
        done = end_of_epoch(log, answer.end.epoch).epoch == answer.end.epoch
    log = truncate(log, offset)
    return with_role(broker._replace(log=log), role._replace(truncating=not done)), ()


def _divergence(log: Log, epoch: int, end: int) -> int:
    """Return the offset at which to truncate a follower's log, if the leader says that `epoch` ends at offset `end` of
    its log (getOffsetTruncationState, KIP-279).

    * The follower's log has that epoch: `end`, or the end of the epoch in the follower's log if that is lower.
    * All epochs of the follower's log are newer: `end`, or the start of the oldest of them if that is lower.
    * All are older, or it has none: `end`.
    * Otherwise: the end of the newest older epoch in the follower's log.

    The result is never above the log end of the follower."""
    own = end_of_epoch(log, epoch)
    if own.start == UNKNOWN:
        return min(end, log.end)
    if own.epoch != epoch:
        return min(own.start, log.end)
    return min(own.start, end, log.end)


def _reset(log: Log, answer: Fetched) -> Log:
    """Return the follower's log after OFFSET_OUT_OF_RANGE (fetchOffsetAndTruncate).

    A log that ends beyond the leader's end is truncated to it. A log that ends before the leader's start is emptied and
    begins there. Any other log is kept, though it may not match after an unclean election: Kafka leaves that case
    unsolved too."""
    if answer.leader_end < log.end:
        return truncate(log, answer.leader_end)
    if answer.leader_start > log.end:
        return restart_at(answer.leader_start)
    return log
