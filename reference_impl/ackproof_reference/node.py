"""Steps of one broker in any role: `(broker, event) → (broker, messages)`."""

from __future__ import annotations

from ackproof_reference.broker import Broker, BrokerAndMessages, Leader, Process
from ackproof_reference.follower import become_follower, take_epoch_end, take_fetched
from ackproof_reference.leader import (
    answer_epoch_end,
    become_leader,
    isr_answered,
    produce,
    resign,
    same_leader,
    serve_fetch,
    write_marker,
)
from ackproof_reference.log import Log
from ackproof_reference.messages import Altered, AskEpochEnd, EpochEnd, Fetch, Fetched, Produce, WriteMarker
from ackproof_reference.metadata import Metadata
from ackproof_reference.rules import Rules

Event = Metadata | Produce | WriteMarker | Fetch | Fetched | AskEpochEnd | EpochEnd | Altered


def step(broker: Broker, event: Event, rules: Rules) -> BrokerAndMessages:
    """Apply a message to a running broker; return the broker and its messages.

    Timers (ISR shrinking, time-outs), and starts and ends of the broker, are functions of their own.
    """
    if isinstance(event, Fetch):
        return serve_fetch(broker, event, rules)
    if isinstance(event, Fetched):
        return take_fetched(broker, event, rules)
    if isinstance(event, Produce):
        return produce(broker, event, rules)
    if isinstance(event, WriteMarker):
        return write_marker(broker, event, rules)
    if isinstance(event, Metadata):
        return learn(broker, event, rules)
    if isinstance(event, Altered):
        return isr_answered(broker, event, rules)
    if isinstance(event, AskEpochEnd):
        return answer_epoch_end(broker, event, rules)
    return take_epoch_end(broker, event, rules)


def learn(broker: Broker, metadata: Metadata, rules: Rules) -> BrokerAndMessages:
    """Return the broker after a newer metadata image: it leads, follows, goes on with a new ISR, or deletes a replica
    that was moved away. The messages refuse or answer waiting producers.

    An image with an older partition epoch than the broker knows changes nothing (ReplicaManager.applyDelta,
    BrokerMetadataPublisher).
    """
    process, role, partition = broker.process, broker.process.role, metadata.partition
    known = process.metadata
    if known is not None and partition.epoch < known.partition.epoch:
        return broker, ()
    if broker.id not in partition.replicas:
        return Broker(broker.id, Log(), Process(True, process.epoch, metadata, None)), resign(broker)
    if role is not None and role.epoch == partition.leader_epoch:
        if isinstance(role, Leader):
            return same_leader(broker, metadata, rules)
        return Broker(broker.id, broker.log, Process(True, process.epoch, metadata, role)), ()
    if partition.leader == broker.id:
        return become_leader(broker, metadata, rules)
    return become_follower(broker, metadata, rules)
