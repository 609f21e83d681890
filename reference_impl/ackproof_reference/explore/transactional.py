"""A small world of transactions: one transactional id, two partitions, two clients that both believe to own the id.

Logs are taken as replicated (`world.py` is about that): what is appended is below the high watermark. Each client
writes one record to each partition in one transaction and commits when all were acknowledged, or aborts at any time.
Its produce requests may arrive late, even when it has long ended the transaction or is fenced.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ackproof_reference.explore.model import Group, Happening, Model, Move
from ackproof_reference.log import Batch, Log, append
from ackproof_reference.messages import Error, Produce
from ackproof_reference.producers import check_sequence
from ackproof_reference.rules import Rules
from ackproof_reference.transactions import (
    State,
    Transaction,
    add_partition,
    end_transaction,
    init_producer,
    marker_batch,
    marker_for,
    marker_written,
    needs_verification,
    open_transactions,
    verified,
    visible,
)

PARTITIONS = (0, 1)
COORDINATOR = 0
_PRODUCER = 7


class App(NamedTuple):
    """A client: its producer epoch (-1: not begun), the partitions sent to and acknowledged, how it ended."""

    epoch: int = -1
    sent: tuple[int, ...] = ()
    acked: tuple[int, ...] = ()
    flying: tuple[int, ...] = ()
    ended: str = ""


def transactions(rules: Rules, clients: int = 2) -> Model:
    """The world as a model for the search: the coordinator, two logs, the clients. Nothing has begun."""
    groups = []
    for partition in PARTITIONS:
        cells, writes = (COORDINATOR, 1 + partition), partial(_marker, partition)
        groups.append(Group("markers", cells, writes, partial(_hanging, partition), row="client 0"))
    for client in range(clients):
        cell = 3 + client
        own = [
            Group("client", (COORDINATOR, cell), partial(_client, rules, client)),
            Group("atomic", (COORDINATOR, 1, 2, cell), check=_atomic),
        ]
        for partition in PARTITIONS:
            arrives = partial(_arrival, rules, client, partition)
            own.append(Group("arrival", (COORDINATOR, 1 + partition, cell), arrives))
        groups += [group._replace(row=f"client {client}") for group in own]
    names = ("coordinator", "partition 0", "partition 1", *(f"client {n}" for n in range(clients)))
    return Model(names, (Transaction(_PRODUCER), Log(), Log(), *(App() for _ in range(clients))), groups)


def _client(rules: Rules, number: int, coordinator: Transaction, app: App) -> Iterator[Move]:
    def says(text: str) -> Happening:
        return Happening(f"client {number}", text, "coordinator")

    if app.epoch < 0:
        begun, error = init_producer(coordinator)
        epoch = begun.epoch if error is Error.NONE else -1
        yield says(f"asks for a producer epoch: {error.name}, {begun.epoch}"), (begun, App(epoch))
        return
    if app.ended:
        return
    for partition in PARTITIONS:
        if partition not in app.sent:
            joined, error = add_partition(coordinator, app.epoch, partition)
            if error is Error.PRODUCER_FENCED:
                yield says("finds itself fenced"), (coordinator, app._replace(ended="fenced"))
            elif error is Error.NONE:
                sent = app._replace(
                    sent=(*app.sent, partition), flying=tuple(sorted((*app.flying, partition)))
                )
                yield says(f"adds partition {partition} and sends to it"), (joined, sent)
    for commit in (True, False):
        if app.sent and (not commit or set(app.acked) == set(PARTITIONS)):
            ended, error = end_transaction(coordinator, app.epoch, rules, commit=commit)
            word = "commit" if commit else "abort"
            if error is Error.NONE:
                yield says(f"asks to {word}"), (ended, app._replace(ended=word))
            elif error is Error.PRODUCER_FENCED:
                yield says(f"asks to {word} and is fenced"), (coordinator, app._replace(ended="fenced"))


def _arrival(
    rules: Rules, number: int, partition: int, coordinator: Transaction, log: Log, app: App
) -> Iterator[Move]:
    if partition not in app.flying:
        return
    request = Produce(_PRODUCER, 0, -1, producer_epoch=app.epoch, transactional=True)
    arrived = app._replace(flying=tuple(p for p in app.flying if p != partition))
    error, _ = check_sequence(log, request, rules)
    if needs_verification(log, request, rules) and not verified(coordinator, app.epoch, partition):
        error = Error.INVALID_TXN_STATE
    if error is Error.NONE:
        batch = Batch(log.end, 0, _PRODUCER, 0, 1, app.epoch, transactional=True, key=number)
        log = _committed(append(log, batch))
        arrived = arrived._replace(acked=tuple(sorted((*app.acked, partition))))
    text = f"the record of client {number} arrives: {error.name}"
    yield (
        Happening(f"partition {partition}", text, f"client {number}"),
        (coordinator, log, arrived),
    )


def _marker(partition: int, coordinator: Transaction, log: Log) -> Iterator[Move]:
    marker = marker_for(coordinator, partition)
    if marker is not None:
        ended = _committed(append(log, marker_batch(log, 0, marker)))
        text = f"writes the {'commit' if marker.commit else 'abort'} marker of epoch {marker.producer_epoch}"
        where = f"partition {partition}"
        yield Happening("coordinator", text, where), (marker_written(coordinator, partition), ended)


def _committed(log: Log) -> Log:
    return log._replace(high_watermark=log.end)


def _hanging(partition: int, coordinator: Transaction, log: Log) -> Iterator[tuple[str, str]]:
    """A transaction that nobody will end: open in a log, unknown to the coordinator. Readers stop there for ever."""
    if partition not in coordinator.partitions and open_transactions(log):
        yield "hanging", f"partition {partition} has an open transaction that nobody will end"


def _atomic(coordinator: Transaction, first: Log, second: Log, app: App) -> Iterator[tuple[str, str]]:
    """All of a transaction or nothing, once its markers are written; and nothing of an aborted one."""
    if coordinator.state is not State.EMPTY:
        return
    held = [
        any(b.producer_epoch == app.epoch for b in visible(log, committed=True)) for log in (first, second)
    ]
    if app.ended == "commit" and not all(held):
        yield (
            "torn",
            f"the committed transaction of epoch {app.epoch} is readable in {sum(held)} of 2 partitions",
        )
    if app.ended in ("abort", "fenced") and any(held):
        yield "aborted read", f"the transaction of epoch {app.epoch} did not commit and is readable"
