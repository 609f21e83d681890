"""Invariants that must hold in every state, each with the class of its finding; and what clients observe of a step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import attrgetter

from ackproof_reference.broker import Broker, Leader, Message, Process
from ackproof_reference.explore.model import Group
from ackproof_reference.explore.scope import (
    CLIENT,
    CONTROLLER,
    Client,
    Scope,
    log_cell,
    memory_row,
    process_cell,
)
from ackproof_reference.log import DATA, Batch, Log
from ackproof_reference.messages import Error, Produced
from ackproof_reference.metadata import Metadata

LOST = "lost"
VANISHED = "vanished"
CONFLICT = "conflict"
DIVERGED = "diverged"
DUPLICATE = "duplicate"
TWO_LEADERS = "two leaders"
WENT_BACK = "high watermark went back"
ACKED_EARLY = "acked before committed"
INVALID_ISR = "invalid ISR"

CLASSES = (LOST, VANISHED, CONFLICT, DIVERGED, DUPLICATE, INVALID_ISR, TWO_LEADERS, WENT_BACK, ACKED_EARLY)

Broken = Iterator[tuple[str, str]]


def checks(scope: Scope) -> tuple[Group, ...]:
    """Return the groups that check a scope's invariants after every step. A broken invariant is a finding of one of
    `CLASSES`, such as a lost record, an invalid ISR or diverged logs.
    """
    # What `witness` found broken at a step.
    groups = [Group("promises", (CLIENT,), check=attrgetter("wrong"), row=memory_row(1))]
    for one in scope.ids:
        own = (log_cell(one), process_cell(one))
        leader = (CLIENT, CONTROLLER, *own)
        groups.append(Group("leader", leader, check=partial(_complete, scope, one), row=memory_row(one)))
        for other in scope.ids:
            if other > one:
                logs, memories = (own[0], log_cell(other)), (own[1], process_cell(other))
                groups.append(Group("logs", logs, check=partial(_matching, one, other), row="logs"))
                groups.append(
                    Group("leaders", memories, check=partial(_one_leader, one, other), row="leaders")
                )
    return tuple(groups)


def _complete(
    scope: Scope, broker: int, client: Client, metadata: Metadata, log: Log, process: Process
) -> Broken:
    """Yield the invariants that broker `broker` breaks. Leader completeness: the log of the leader of the newest epoch
    has all acknowledged records and begins with the read ones. With an idempotent producer it has no record twice.
    Valid ISR: the log of a running, unfenced broker in the ISR or the ELR begins with the read records."""
    partition, role = metadata.partition, process.role
    held = records(log.batches)
    if isinstance(role, Leader) and role.epoch == partition.leader_epoch:
        gone = [record for record in client.acked if record not in held]
        if gone:
            yield LOST, f"acknowledged record {gone[0]} is not in the log of the leader, broker {broker}"
        if held[: len(client.read)] != client.read:
            yield VANISHED, f"readers saw {client.read}, the leader, broker {broker}, holds {held}"
        if scope.idempotent and len(set(held)) < len(held):
            yield DUPLICATE, f"broker {broker} leads with {held}"
    registered = metadata.registration(broker)
    member = broker in partition.isr or broker in partition.elr
    electable = member and process.up and not registered.fenced and registered.epoch == process.epoch
    if electable and held[: len(client.read)] != client.read:
        yield INVALID_ISR, f"broker {broker} may be elected and holds {held} of {client.read}"


def _matching(one: int, other: int, log: Log, others: Log) -> Broken:
    """Yield a finding if two logs differ below the lower of their high watermarks (log matching). `one`, `other`: the
    brokers that have `log` and `others`."""
    below = min(log.high_watermark, others.high_watermark)
    mine, its = records(log.below(below)), records(others.below(below))
    if mine != its:
        yield DIVERGED, f"below offset {below} broker {one} holds {mine}, broker {other} {its}"


def _one_leader(one: int, other: int, process: Process, others: Process) -> Broken:
    mine, its = process.role, others.role
    if isinstance(mine, Leader) and isinstance(its, Leader) and mine.epoch == its.epoch:
        yield TWO_LEADERS, f"brokers {one} and {other} both lead in one epoch"


def records(batches: tuple[Batch, ...]) -> tuple[int, ...]:
    """Return the sequence numbers of the data records in these batches, in log order."""
    return tuple(
        batch.sequence + place for batch in batches if batch.kind == DATA for place in range(batch.length)
    )


def holds_promised(client: Client, held: tuple[int, ...]) -> bool:
    """Return True if the records `held` (their numbers, in log order) contain all acknowledged records, and begin with
    the records that a reader has seen."""
    return {*client.acked} <= {*held} and held[: len(client.read)] == client.read


def witness(
    client: Client, before: Broker, after: Broker, messages: tuple[Message, ...], scope: Scope
) -> Client:
    """Return the client after a step that turned broker `before` into `after` and sent `messages`.

    Acknowledgements are added to it, and what readers have seen: all below the high watermark of any broker
    that believes it leads. `Client.wrong` gets the findings that no single state shows, at most one of each class:
    a reader is shown another record than before at an offset; the high watermark of a leader falls within its
    epoch; a record is acknowledged with acks=all above the high watermark.
    """
    acked, read, wrong = client.acked, client.read, client.wrong
    role = after.process.role
    if isinstance(role, Leader):
        shown = records(after.log.below(after.log.high_watermark))
        same = min(len(shown), len(read))
        if shown[:same] != read[:same]:
            wrong = _add_class(wrong, CONFLICT, f"readers saw {read}, broker {after.id} now shows {shown}")
        else:
            read = max(read, shown, key=len)
        old = before.process.role
        same_epoch = isinstance(old, Leader) and old.epoch == role.epoch
        if same_epoch and after.log.high_watermark < before.log.high_watermark:
            wrong = _add_class(wrong, WENT_BACK, f"on broker {after.id}, while it leads")
    for message in messages:
        if isinstance(message, Produced) and message.error is Error.NONE and message.sequence not in acked:
            acked = tuple(sorted((*acked, message.sequence)))
            if scope.acks == -1 and message.sequence not in records(
                after.log.below(after.log.high_watermark)
            ):
                wrong = _add_class(wrong, ACKED_EARLY, f"record {message.sequence} by broker {after.id}")
    if (acked, read, wrong) == (client.acked, client.read, client.wrong):
        return client
    return Client(client.sent, acked, read, wrong)


def _add_class(wrong: tuple[tuple[str, str], ...], kind: str, text: str) -> tuple[tuple[str, str], ...]:
    return wrong if any(known == kind for known, _ in wrong) else (*wrong, (kind, text))
