"""The outside observer: what a step acknowledged and showed to readers, and whether that breaks a promise at once."""

from __future__ import annotations

from ackproof_reference.broker import Broker, Leader, Message
from ackproof_reference.explore.scope import Client, Scope
from ackproof_reference.log import DATA, Batch
from ackproof_reference.messages import Error, Produced


def records(batches: tuple[Batch, ...]) -> tuple[int, ...]:
    """The numbers of the records in some batches."""
    return tuple(
        batch.sequence + place for batch in batches if batch.kind == DATA for place in range(batch.length)
    )


def witness(
    client: Client, before: Broker, after: Broker, messages: tuple[Message, ...], scope: Scope
) -> Client:
    """The client after a broker's step.

    Readers see all that lies below a leader's high watermark, whoever believes to lead. Judged here is what only a
    step shows: a reader is shown something else at the same offset, a high watermark that goes back on a leader
    within its epoch, an acknowledgement (acks=all) of what is not below it.
    """
    acked, read, wrong = client.acked, client.read, client.wrong
    role = after.process.role
    if isinstance(role, Leader):
        shown = records(after.log.below(after.log.high_watermark))
        same = min(len(shown), len(read))
        if shown[:same] != read[:same]:
            wrong = _with(wrong, "conflict", f"readers saw {read}, broker {after.id} now shows {shown}")
        else:
            read = max(read, shown, key=len)
        old = before.process.role
        same_epoch = isinstance(old, Leader) and old.epoch == role.epoch
        if same_epoch and after.log.high_watermark < before.log.high_watermark:
            wrong = _with(wrong, "high watermark went back", f"on broker {after.id} in epoch {role.epoch}")
    for message in messages:
        if isinstance(message, Produced) and message.error is Error.NONE and message.sequence not in acked:
            acked = tuple(sorted((*acked, message.sequence)))
            if scope.acks == -1 and message.sequence not in records(
                after.log.below(after.log.high_watermark)
            ):
                wrong = _with(
                    wrong, "acked before committed", f"record {message.sequence} by broker {after.id}"
                )
    if (acked, read, wrong) == (client.acked, client.read, client.wrong):
        return client
    return Client(client.sent, acked, read, wrong)


def _with(wrong: tuple[tuple[str, str], ...], kind: str, text: str) -> tuple[tuple[str, str], ...]:
    return wrong if any(known == kind for known, _ in wrong) else (*wrong, (kind, text))
