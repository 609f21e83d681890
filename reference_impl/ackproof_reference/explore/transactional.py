"""A small world of transactions: one transactional id, two partitions, two clients that both believe to own the id.

Logs are taken as replicated (`world.py` is about that): what is appended is below the high watermark. Each client
writes one record to each partition in one transaction and commits when all were acknowledged, or aborts at any time.
Its produce requests may arrive late, even when it has long ended the transaction or is fenced.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ackproof_reference.explore.model import Group, Happening, Move
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


@dataclass(frozen=True)
class Transactions:
    """The world as a model for the search: the coordinator, two logs, the clients."""

    rules: Rules
    clients: int = 2

    @property
    def names(self) -> Sequence[str]:
        """A name for each cell."""
        return ("coordinator", "partition 0", "partition 1", *(f"client {n}" for n in range(self.clients)))

    @property
    def initial(self) -> tuple[Hashable, ...]:
        """Nothing has begun."""
        return (Transaction(_PRODUCER), Log(), Log(), *(App() for _ in range(self.clients)))

    @property
    def groups(self) -> Sequence[Group]:
        """All steps and invariants."""
        made = []
        for partition in PARTITIONS:
            cells = (COORDINATOR, 1 + partition)
            made.append(Group("markers", cells, _Marker(partition), _hanging(partition), row="client 0"))
        for client in range(self.clients):
            cell = 3 + client
            own = [
                Group("client", (COORDINATOR, cell), _Client(self.rules, client)),
                Group("atomic", (COORDINATOR, 1, 2, cell), check=_atomic),
            ]
            for partition in PARTITIONS:
                arrives = _Arrival(self.rules, client, partition)
                own.append(Group("arrival", (COORDINATOR, 1 + partition, cell), arrives))
            made += [group._replace(row=f"client {client}") for group in own]
        return made


@dataclass(frozen=True)
class _Client:
    rules: Rules
    number: int

    def __call__(self, coordinator: Transaction, app: App) -> Iterator[Move]:
        name = f"client {self.number}"

        def says(text: str) -> Happening:
            return Happening(name, "coordinator", text)

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
                ended, error = end_transaction(coordinator, app.epoch, self.rules, commit=commit)
                word = "commit" if commit else "abort"
                if error is Error.NONE:
                    yield says(f"asks to {word}"), (ended, app._replace(ended=word))
                elif error is Error.PRODUCER_FENCED:
                    yield says(f"asks to {word} and is fenced"), (coordinator, app._replace(ended="fenced"))


@dataclass(frozen=True)
class _Arrival:
    rules: Rules
    number: int
    partition: int

    def __call__(self, coordinator: Transaction, log: Log, app: App) -> Iterator[Move]:
        if self.partition not in app.flying:
            return
        request = Produce(_PRODUCER, 0, -1, producer_epoch=app.epoch, transactional=True)
        arrived = app._replace(flying=tuple(p for p in app.flying if p != self.partition))
        error, _ = check_sequence(log, request, self.rules)
        if needs_verification(log, request, self.rules) and not verified(
            coordinator, app.epoch, self.partition
        ):
            error = Error.INVALID_TXN_STATE
        if error is Error.NONE:
            batch = Batch(log.end, 0, _PRODUCER, 0, 1, app.epoch, transactional=True, key=self.number)
            log = _committed(append(log, batch))
            arrived = arrived._replace(acked=tuple(sorted((*app.acked, self.partition))))
        text = f"the record of client {self.number} arrives: {error.name}"
        yield (
            Happening(f"partition {self.partition}", f"client {self.number}", text),
            (coordinator, log, arrived),
        )


@dataclass(frozen=True)
class _Marker:
    partition: int

    def __call__(self, coordinator: Transaction, log: Log) -> Iterator[Move]:
        marker = marker_for(coordinator, self.partition)
        if marker is not None:
            ended = _committed(append(log, marker_batch(log, 0, marker)))
            text = (
                f"writes the {'commit' if marker.commit else 'abort'} marker of epoch {marker.producer_epoch}"
            )
            where = f"partition {self.partition}"
            yield Happening("coordinator", where, text), (marker_written(coordinator, self.partition), ended)


def _committed(log: Log) -> Log:
    return log._replace(high_watermark=log.end)


class _hanging:  # noqa: N801 - a function with a memory
    """A transaction that nobody will end: open in a log, unknown to the coordinator. Readers stop there for ever."""

    def __init__(self, partition: int) -> None:
        self.partition = partition

    def __call__(self, coordinator: Transaction, log: Log) -> Iterator[tuple[str, str]]:
        if self.partition not in coordinator.partitions and open_transactions(log):
            yield "hanging", f"partition {self.partition} has an open transaction that nobody will end"


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
