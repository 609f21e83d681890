"""Describes steps and states in words, and prints a counterexample as numbered sentences with the effects of
each step."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from ackproof_reference.broker import Broker, Follower, Leader, Message, Process
from ackproof_reference.explore.model import StoryLine
from ackproof_reference.explore.scope import Client
from ackproof_reference.log import Log
from ackproof_reference.messages import AskEpochEnd, EpochEnd, Error, Fetch, Fetched, Produced
from ackproof_reference.metadata import Metadata

if TYPE_CHECKING:
    from ackproof_reference.explore.search import Finding


def counterexample_lines(finding: Finding, way: Sequence[StoryLine]) -> Iterator[str]:
    """Yield a counterexample as lines of text: one numbered line per step, then the finding."""
    for number, line in enumerate(way, 1):
        to = f" → {line.action.target}" if line.action.target else ""
        yield f"{number:3}. {line.action.actor}{to}: {line.action.text}"
    yield f"  ✗  {finding.kind}: {finding.text}"


def format_value(value: Hashable) -> str:
    """Return the value of one cell of a partition's model as one line of text for a counterexample. The value is a log,
    a broker's memory, the controller's metadata, the client, or a message in flight. None is `nothing under way`."""
    if isinstance(value, Log):
        batches = " ".join(f"{batch.base}:e{batch.epoch}#{batch.sequence}" for batch in value.batches)
        return f"[{batches}] high watermark {value.high_watermark}, flushed {value.flushed}"
    if isinstance(value, Process):
        return _memory(value)
    if isinstance(value, Metadata):
        partition = value.partition
        fenced = [entry.broker for entry in value.brokers if entry.fenced]
        return (
            f"leader {partition.leader} epoch {partition.leader_epoch} ISR {list(partition.isr)} "
            f"ELR {list(partition.elr)} partition epoch {partition.epoch} fenced {fenced}"
        )
    if isinstance(value, Client):
        return f"sent {value.sent}, acknowledged {list(value.acked)}, read {list(value.read)}"
    return "nothing under way" if value is None else str(value)


def _memory(process: Process) -> str:
    role = process.role
    if not process.up:
        return "down"
    if isinstance(role, Leader):
        ends = ", ".join(f"{entry.replica} at {entry.end}" for entry in role.progress)
        pending = f", proposes {list(role.pending)}" if role.pending is not None else ""
        return f"leads epoch {role.epoch} from {role.start}, ISR {list(process.partition.isr)}{pending}; knows {ends}"
    if isinstance(role, Follower):
        return f"follows {role.leader} in epoch {role.epoch}" + (", truncating" if role.truncating else "")
    return f"incarnation {process.epoch}, knows of no partition"


def listed(replicas: tuple[int, ...]) -> str:
    """Return broker ids as text, such as `{1, 2}`."""
    return "{" + ", ".join(map(str, replicas)) + "}"


def describe_decision(metadata: Metadata) -> str:
    """Return the partition that the controller decided as a clause: `broker 1 leads in epoch 2, ISR {1, 3}`, and the
    ELR if it is not empty."""
    partition = metadata.partition
    leader = f"broker {partition.leader} leads" if partition.leader >= 0 else "nobody leads"
    elr = f", ELR {listed(partition.elr)}" if partition.elr else ""
    return f"{leader} in epoch {partition.leader_epoch}, ISR {listed(partition.isr)}{elr}"


def effects(before: Broker, after: Broker) -> str:
    """Return what a step changed in a broker, from its state `before` to its state `after`: a truncated log, a higher
    high watermark, a new ISR proposal.

    The text is to be appended to a sentence (`; its high watermark is now 2`); '' if there is none of these changes.
    """
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


def describe_request(request: Fetch | AskEpochEnd) -> str:
    """Return a follower's Fetch or OffsetForLeaderEpoch request as a clause: `asks for offset 3 in epoch 1 …`, or
    `asks where epoch 1 ends`."""
    if isinstance(request, Fetch):
        where = f"asks for offset {request.offset} in epoch {request.leader_epoch}"
        return f"{where} (its last epoch: {request.last_epoch})"
    return f"asks where epoch {request.epoch} ends"


def replied(reply: Fetched | EpochEnd) -> str:
    """Return the content of a leader's reply as text to append to `answers broker 2`, such as `: the logs part,
    …` or ` with record 0 and …`."""
    if reply.error is not Error.NONE:
        return f": {reply.error.name}"
    if isinstance(reply, EpochEnd):
        return f": epoch {reply.end.epoch} ends at {reply.end.start}"
    if reply.diverging is not None:
        return f": the logs part, epoch {reply.diverging.epoch} ends at {reply.diverging.start}"
    held = ", ".join(f"record {batch.sequence}" for batch in reply.batches) or "nothing new"
    return f" with {held} and high watermark {reply.high_watermark}"


def describe_arrival(reply: Fetched | EpochEnd) -> str:
    """Return a clause for the step in which a follower takes a leader's reply: `takes the answer of broker 2 with
    record 0 and …`."""
    return f"takes the answer of broker {reply.leader}{replied(reply)}"


def refuses(messages: tuple[Message, ...]) -> bool:
    """Return True if these messages include an error for a producer."""
    return any(isinstance(one, Produced) and one.error is not Error.NONE for one in messages)


def answered(messages: tuple[Message, ...]) -> str:
    """Return the answers to producers among these messages, as text to append to a sentence (`; record 0 is
    acknowledged`); '' if there are none."""
    parts = []
    for message in messages:
        if isinstance(message, Produced):
            said = "acknowledged" if message.error is Error.NONE else f"refused with {message.error.name}"
            parts.append(f"; record {message.sequence} is {said}")
    return "".join(parts)
