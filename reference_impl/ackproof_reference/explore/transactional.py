"""A small world of transactions: one transactional id, two partitions, clients that all believe they own the id.

Logs count as replicated (`world.py` examines replication): what is appended is below the high watermark. A client
writes one record to each partition per transaction. It commits when all are acknowledged, or aborts at any time. Its
produce requests may arrive late, after it has ended the transaction or was fenced.

Further incidents are limited (`Bounds`). The coordinator moves: a new one reads its state from the transaction log; the
old one does not know, answers from memory what needs no write, and sends the markers that it remembers. A marker
arrives twice: its sender got no answer and sent it again, and the first copy is delayed for any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from ackproof_reference.explore.model import Action, Group, Model, Move
from ackproof_reference.log import Batch, Log, append
from ackproof_reference.messages import Error, Produce, WriteMarker
from ackproof_reference.producers import check_sequence
from ackproof_reference.rules import Rules
from ackproof_reference.transactions import (
    DECIDED,
    State,
    Transaction,
    add_partition,
    check_marker,
    end_transaction,
    init_producer,
    marker_batch,
    marker_for,
    marker_written,
    needs_verification,
    open_transactions,
    taken_over,
    verified,
    visible,
)

CLASSES = ("hanging", "torn", "aborted read", "early read", "stuck")
PARTITIONS = (0, 1)
# Indices of cells. The logs are cells 4 and 5; from 6 on, each client has one cell. A `Group` calls its function with
# the values of its cells, and takes their new values back in the same order.
_BOUNDS, _COORDINATOR, _OLD, _LATE, _LOGS, _CLIENTS = 0, 1, 2, 3, 4, 6
_PRODUCER = 7
_MOST = 10
"""Factor in record keys (`_key`): greater than the number of transactions of one client."""


class Bounds(NamedTuple):
    """Bounds of the model of transactions: how often the coordinator may move to another broker, and how many markers
    may arrive a second time."""

    moves: int = 0
    """Number of times that the coordinator may move to another broker without the old one learning of it."""
    repeats: int = 0
    """Number of markers that may arrive a second time."""


NOTHING_WRONG = Bounds()


class _Flying(NamedTuple):
    """A record in flight. `number`: number of its client's transaction to which it belongs, from 0. `epoch`: its
    producer epoch."""

    partition: int
    number: int
    epoch: int
    sequence: int


class _App(NamedTuple):
    """A transactional client. `epoch`: its producer epoch; -1: not requested yet. `sent`, `acked`: partitions
    with records that were sent and acknowledged in the open transaction. `flying`: records in flight.
    `ended`: outcomes of earlier transactions, and `fenced` after a newer client took over.

    `sequences`: sequence number of the next record to each partition, within its epoch.
    """

    epoch: int = -1
    sent: tuple[int, ...] = ()
    acked: tuple[int, ...] = ()
    flying: tuple[_Flying, ...] = ()
    ended: tuple[str, ...] = ()
    sequences: tuple[int, ...] = (0,) * len(PARTITIONS)


Late = tuple[tuple[int, WriteMarker], ...]
"""Transaction markers that may arrive a second time, each with its partition."""
Old = Transaction | None
"""Transaction state in the memory of a deposed coordinator. None: there is no deposed coordinator, or it knows that
it was deposed."""


def transactions(rules: Rules, clients: int = 2, in_turn: int = 1, bounds: Bounds = NOTHING_WRONG) -> Model:
    """Return the model of transactions: a coordinator, two partitions, and `clients` clients that have not begun.

    `in_turn`: number of transactions of each client, one after the other; below 10 (`_MOST`). `bounds`: how many moves
    of the coordinator and repeated markers may happen. Classes of findings: `CLASSES`."""
    groups = [Group("moves", (_BOUNDS, _COORDINATOR, _OLD), _moves)]
    for partition in PARTITIONS:
        log = _LOGS + partition
        cells = (_BOUNDS, _COORDINATOR, _LATE, log)
        groups += [
            Group("markers", cells, partial(_marker, rules, partition), partial(_ending, rules, partition)),
            Group("old markers", (_OLD, log), partial(_old_marker, rules, partition)),
            Group("late markers", (_LATE, log), partial(_late_marker, rules, partition)),
        ]
    for client in range(clients):
        cell = _CLIENTS + client
        own = [
            Group("client", (_COORDINATOR, _OLD, cell), partial(_client, client, in_turn)),
            Group("atomic", (_COORDINATOR, _LOGS, _LOGS + 1, cell), check=partial(_atomic, client)),
        ]
        for partition in PARTITIONS:
            arrives = partial(_arrival, rules, client, partition)
            own.append(Group("arrival", (_COORDINATOR, _OLD, _LOGS + partition, cell), arrives))
        groups += [group._replace(row=f"client {client}") for group in own]
    names = ("bounds", "coordinator", "old coordinator", "late markers", "partition 0", "partition 1")
    first = Transaction(_PRODUCER, version=2 if rules.bump_every_transaction else 1)
    return Model(
        (*names, *(f"client {n}" for n in range(clients))),
        (bounds, first, None, (), Log(), Log(), *(_App() for _ in range(clients))),
        groups,
    )


# -- clients -----------------------------------------------------------------------------------------------------------


Ask = Callable[[Transaction], tuple[Transaction, Error]]


def _client(number: int, in_turn: int, coordinator: Transaction, old: Old, app: _App) -> Iterator[Move]:
    if len(app.ended) == in_turn or "fenced" in app.ended:
        return
    if app.epoch < 0:
        begun, error = init_producer(coordinator)
        after = app._replace(epoch=begun.epoch, sequences=_App().sequences) if error is Error.NONE else app
        text = f"asks for a producer epoch: {error.name}, {begun.epoch}"
        yield Action(f"client {number}", text, "coordinator"), (begun, old, after)
        return
    for partition in PARTITIONS:
        if partition not in app.sent:
            add = partial(add_partition, epoch=app.epoch, partition=partition)
            text = f"adds partition {partition} and sends to it"
            yield from _asks(number, coordinator, old, app, add, text, partial(_sends, app, partition))
    for word in ("commit", "abort"):
        if app.sent and (word == "abort" or set(app.acked) == set(PARTITIONS)):
            end = partial(end_transaction, epoch=app.epoch, commit=word == "commit")
            then = partial(_ended, app, word)
            yield from _asks(number, coordinator, old, app, end, f"asks to {word}", then)


def _asks(
    number: int,
    coordinator: Transaction,
    old: Old,
    app: _App,
    ask: Ask,
    text: str,
    then: Callable[[Transaction], _App],
) -> Iterator[Move]:
    """Yield the steps in which a client sends a request to the coordinator. `ask`: applies the request to a
    coordinator's state; returns its new state and the error. `text`: the request in words.

    If the request is granted, `then` returns the client's next state for the coordinator's state. After PRODUCER_FENCED
    the client ends. After another error there is no step. A deposed coordinator (`old`) grants only requests for which
    it need not write to its log."""
    name = f"client {number}"
    after, error = ask(coordinator)
    if error is Error.NONE:
        yield Action(name, text, "coordinator"), (after, old, then(after))
    elif error is Error.PRODUCER_FENCED:
        fenced = _ended(app, "fenced")
        yield Action(name, f"{text}: is fenced", "coordinator"), (coordinator, old, fenced)
    if old is not None and ask(old) == (old, Error.NONE):
        yield Action(name, f"{text}, as it may already", "old coordinator"), (coordinator, old, then(old))


def _sends(app: _App, partition: int, coordinator: Transaction) -> _App:
    del coordinator
    sequences = list(app.sequences)
    record = _Flying(partition, len(app.ended), app.epoch, sequences[partition])
    sequences[partition] += 1
    flying = tuple(sorted((*app.flying, record)))
    return app._replace(sent=(*app.sent, partition), flying=flying, sequences=tuple(sequences))


def _ended(app: _App, how: str, decided: Transaction | None = None) -> _App:
    """Return the client after its transaction, with the producer epoch of its next one. `how`: the outcome to add to
    `_App.ended`: `commit`, `abort` or `fenced`. `decided`: the coordinator's state after its decision; None if the
    client was fenced, whose epoch stays.

    With transaction.version 2 (KIP-890), the epoch is the one that the coordinator decided. With version 1 it stays; if
    a record is still in flight it is -1, so that the client requests a new one (KIP-360)."""
    ended = app._replace(sent=(), acked=(), ended=(*app.ended, how))
    if decided is None:
        return ended
    if decided.version > 1:
        return ended._replace(epoch=decided.epoch, sequences=_App().sequences)
    return ended._replace(epoch=-1) if app.flying else ended


def _arrival(
    rules: Rules, number: int, partition: int, coordinator: Transaction, old: Old, log: Log, app: _App
) -> Iterator[Move]:
    for record in app.flying:
        if record.partition != partition:
            continue
        request = Produce(_PRODUCER, record.sequence, -1, producer_epoch=record.epoch, transactional=True)
        error, held = check_sequence(log, request, rules)
        by = ""
        asks = error is Error.NONE and needs_verification(log, request, rules)
        if asks and not verified(coordinator, record.epoch, partition):
            misled = old is not None and verified(old, record.epoch, partition)
            by = ", verified by the old coordinator" if misled else ""
            error = Error.NONE if misled else Error.INVALID_TXN_STATE
        after = log if held is not None or error is not Error.NONE else _written(log, number, record)
        text = f"the record of client {number} arrives: {error.name}{by}"
        arrived = _arrived(app, record, acked=error is Error.NONE)
        action = Action(f"partition {partition}", text, f"client {number}")
        yield action, (coordinator, old, after, arrived)


def _key(number: int, place: int) -> int:
    """Return the key that all records of one transaction share. `number`: the client. `place`: number of its
    transaction, from 0, below `_MOST`."""
    return number * _MOST + place


def _written(log: Log, number: int, record: _Flying) -> Log:
    key = _key(number, record.number)
    batch = Batch(log.end, 0, _PRODUCER, record.sequence, 1, record.epoch, transactional=True, key=key)
    return _committed(append(log, batch))


def _arrived(app: _App, record: _Flying, *, acked: bool) -> _App:
    flying = tuple(one for one in app.flying if one != record)
    if not acked or record.number != len(app.ended):
        return app._replace(flying=flying)
    return app._replace(flying=flying, acked=tuple(sorted((*app.acked, record.partition))))


# -- coordinators ------------------------------------------------------------------------------------------------------


def _moves(bounds: Bounds, coordinator: Transaction, old: Old) -> Iterator[Move]:
    del old
    if bounds.moves:
        new, less = taken_over(coordinator), bounds._replace(moves=bounds.moves - 1)
        text = "is another broker now, and the old one does not know"
        yield Action("coordinator", text), (less, new, coordinator)


def _marker(
    rules: Rules, partition: int, bounds: Bounds, coordinator: Transaction, late: Late, log: Log
) -> Iterator[Move]:
    marker = marker_for(coordinator, partition)
    if marker is None or check_marker(log, marker, rules) is not Error.NONE:
        return
    where, ended = f"partition {partition}", _with_marker(log, marker)
    done = marker_written(coordinator, partition)
    yield Action("coordinator", _says(marker), where), (bounds, done, late, ended)
    if bounds.repeats:
        less = bounds._replace(repeats=bounds.repeats - 1)
        twice = (*late, (partition, marker))
        text = f"{_says(marker)}, which it had sent before"
        yield Action("coordinator", text, where), (less, done, twice, ended)


def _old_marker(rules: Rules, partition: int, old: Old, log: Log) -> Iterator[Move]:
    marker = None if old is None else marker_for(old, partition)
    if old is None or marker is None:
        return
    text, where = _says(marker), f"partition {partition}"
    error = check_marker(log, marker, rules)
    if error is not Error.NONE:
        text = f"{text}: {error.name}, so it knows now"
        yield Action("old coordinator", text, where), (None, log)
    else:
        after = (marker_written(old, partition), _with_marker(log, marker))
        yield Action("old coordinator", text, where), after


def _late_marker(rules: Rules, partition: int, late: Late, log: Log) -> Iterator[Move]:
    for place, marker in dict.fromkeys(late):
        if place == partition:
            left = list(late)
            left.remove((place, marker))
            error = check_marker(log, marker, rules)
            after = _with_marker(log, marker) if error is Error.NONE else log
            text = f"the {_named(marker)} arrives that waited: {error.name}"
            yield Action(f"partition {partition}", text), (tuple(left), after)


def _named(marker: WriteMarker) -> str:
    return f"{'commit' if marker.commit else 'abort'} marker of epoch {marker.producer_epoch}"


def _says(marker: WriteMarker) -> str:
    return f"writes the {_named(marker)}"


def _with_marker(log: Log, marker: WriteMarker) -> Log:
    return _committed(append(log, marker_batch(log, 0, marker)))


def _committed(log: Log) -> Log:
    return log._replace(high_watermark=log.end)


# -- what must hold ----------------------------------------------------------------------------------------------------


def _ending(
    rules: Rules, partition: int, bounds: Bounds, coordinator: Transaction, late: Late, log: Log
) -> Iterator[tuple[str, str]]:
    """Yield a finding if a transaction stays open forever.

    Hanging: a log has an open transaction that the coordinator does not know, so readers stop at it. Stuck: a partition
    refuses a marker for good, so the client waits for it.
    """
    del bounds, late
    if partition not in coordinator.partitions and open_transactions(log):
        yield "hanging", f"partition {partition} has an open transaction that nobody will end"
    marker = marker_for(coordinator, partition)
    if marker is not None and (error := check_marker(log, marker, rules)) is not Error.NONE:
        yield "stuck", f"partition {partition} refuses the coordinator's marker: {error.name}"


def _atomic(
    number: int, coordinator: Transaction, first: Log, second: Log, app: _App
) -> Iterator[tuple[str, str]]:
    """Yield a finding for each transaction of client `number` that is not atomic. A committed one must be visible in
    both partitions after all markers, one that is open, aborted or fenced in none."""
    for place, how in enumerate((*app.ended, "open")):
        key = _key(number, place)
        held = [any(batch.key == key for batch in visible(log, committed=True)) for log in (first, second)]
        which = f"the transaction {place} of client {number}"
        if how == "commit":
            if not all(held) and coordinator.state not in (State.ONGOING, *DECIDED):
                yield "torn", f"{which} is committed, and readable in {sum(held)} of 2 partitions"
        elif any(held):
            kind = "early read" if how == "open" else "aborted read"
            yield kind, f"{which} is {'open' if how == 'open' else 'not committed'}, and readable"
