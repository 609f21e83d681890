"""Steps in words: what a reader of a story is told."""

from __future__ import annotations

from ackproof_reference.broker import Broker, Leader, Message
from ackproof_reference.messages import AskEpochEnd, EpochEnd, Error, Fetch, Fetched, Produced
from ackproof_reference.metadata import Metadata


def listed(replicas: tuple[int, ...]) -> str:
    """Replicas as a set."""
    return "{" + ", ".join(map(str, replicas)) + "}"


def decided(metadata: Metadata) -> str:
    """What the controller has decided."""
    partition = metadata.partition
    leader = f"broker {partition.leader} leads" if partition.leader >= 0 else "nobody leads"
    elr = f", ELR {listed(partition.elr)}" if partition.elr else ""
    return f"{leader} in epoch {partition.leader_epoch}, ISR {listed(partition.isr)}{elr}"


def effects(before: Broker, after: Broker) -> str:
    """What a step did to a broker's log, and what it proposes."""
    parts = []
    if after.log.end < before.log.end:
        parts.append(f"cuts its log from {before.log.end} to {after.log.end}")
    if after.log.high_watermark > before.log.high_watermark:
        parts.append(f"its high watermark is now {after.log.high_watermark}")
    role = after.process.role
    if isinstance(role, Leader) and role.pending is not None:
        was = before.process.role
        if not isinstance(was, Leader) or was.pending is None:
            parts.append(f"and proposes {listed(role.pending)} as the ISR")
    return "".join(f"; {part}" for part in parts)


def asked(request: Fetch | AskEpochEnd) -> str:
    """A follower's request."""
    if isinstance(request, Fetch):
        where = f"asks for offset {request.offset} in epoch {request.leader_epoch}"
        return f"{where} (its last epoch: {request.last_epoch})"
    return f"asks where epoch {request.epoch} ends"


def replied(reply: Fetched | EpochEnd) -> str:
    """A leader's reply."""
    if reply.error is not Error.NONE:
        return f": {reply.error.name}"
    if isinstance(reply, EpochEnd):
        return f": epoch {reply.end.epoch} ends at {reply.end.start}"
    if reply.diverging is not None:
        return f": the logs part, epoch {reply.diverging.epoch} ends at {reply.diverging.start}"
    held = ", ".join(f"record {batch.sequence}" for batch in reply.batches) or "nothing new"
    return f" with {held} and high watermark {reply.high_watermark}"


def taken(reply: Fetched | EpochEnd) -> str:
    """A reply that has arrived."""
    return f"takes the answer of broker {reply.leader}{replied(reply)}"


def answered(messages: tuple[Message, ...]) -> str:
    """What producers were told."""
    parts = []
    for message in messages:
        if isinstance(message, Produced):
            said = "acknowledged" if message.error is Error.NONE else f"refused with {message.error.name}"
            parts.append(f"; record {message.sequence} is {said}")
    return "".join(parts)
