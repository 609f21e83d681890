"""Where a search need not go on: in what is reached from there nothing can be broken any more.

**All is sent, and all replicas hold the same**: every record of it, or none at all. A log grows by a record that is
sent, or by one that another log holds; neither is left. It is cut where it parts from another one, and these part
nowhere: their batches are the same, and so are the starts of the epochs that wrote them. Epochs that nobody wrote in
begin at the log's end, so cutting there takes nothing but them (`end_of_epoch`: what a leader does not know of ends at
the end of all, or it has not come so far, and nothing is cut). Whatever else happens, the logs stay as they are. So
nothing that was acknowledged or read gets lost, and two logs never differ; that there is one leader to an epoch, and
that a high watermark never falls, rests on no log.

That holds where followers are told to cut by the answer to a fetch (KIP-595): before, they cut to their high
watermarks. Nor may a leader die and lead on in its epoch, which would begin again (`last_known_leader_unfenced`), a
record be sent again, or the partition be moved. While power may be lost it must be on all disks. Answers under way
must bring nothing, and cut nothing; a request from before must bring none that would be taken (`fetch_fencing`, or
`match_responses`).

For searches that ask for lost and vanished records alone there are more such states (`kept.py`, `seated.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ackproof_reference.explore.invariants import holds_promised, records
from ackproof_reference.explore.kept import brings_nothing, is_whole, keeps, stay
from ackproof_reference.explore.model import Condition, End
from ackproof_reference.explore.scope import (
    BUDGET,
    CLIENT,
    Budget,
    Client,
    Scope,
    fetch_cell,
    log_cell,
)
from ackproof_reference.explore.seated import seats
from ackproof_reference.log import UNKNOWN, EpochEntry, Log


def ends(scope: Scope) -> Sequence[End]:
    """Where a search does not go on."""
    if not scope.reductions.ending:
        return ()
    return (*_all_alike(scope), *keeps(scope), *seats(scope))


def _all_alike(scope: Scope) -> Iterator[End]:
    budget = scope.budget
    if not stay(scope.rules) or budget.retries or budget.reassignments:
        return
    replicas = scope.assigned or scope.ids
    logs = (BUDGET, CLIENT, *map(log_cell, replicas))
    nothing = (Condition((fetch_cell(one),), brings_nothing) for one in replicas)
    yield End((Condition(logs, partial(_whole, scope, replicas), ("power_losses",)), *nothing))


def _whole(scope: Scope, replicas: Sequence[int], budget: Budget, client: Client, *logs: Log) -> bool:
    """Whether all logs hold the same, which is all that was sent, or nothing; and all that was promised."""
    first = logs[0]
    held = records(first.batches)
    if client.wrong or client.sent < scope.records or (held and not is_whole(client, first)):
        return False
    on_disk = not budget.power_losses or all(
        log.flushed == log.end for one, log in zip(replicas, logs, strict=True) if scope.strikes(one)
    )
    return holds_promised(client, held) and on_disk and all(_same(first, log) for log in logs)


def _same(one: Log, other: Log) -> bool:
    """Whether two logs hold the same, and their epochs that nobody wrote in begin at the end."""
    if (one.batches, one.start, one.end) != (other.batches, other.start, other.end):
        return False
    written, unwritten = _epochs(one)
    others, unwritten_there = _epochs(other)
    return written == others and all(entry.start == one.end for entry in (*unwritten, *unwritten_there))


def _epochs(log: Log) -> tuple[list[EpochEntry], list[EpochEntry]]:
    """The epochs up to that of the last batch, and those behind it."""
    last = log.batches[-1].epoch if log.batches else UNKNOWN
    return (
        [entry for entry in log.epochs if entry.epoch <= last],
        [entry for entry in log.epochs if entry.epoch > last],
    )
