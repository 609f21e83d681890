"""What must hold in every state, each with the name of the class of finding that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ackproof_reference.broker import Leader, Process
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
from ackproof_reference.explore.witness import records
from ackproof_reference.log import Log
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

DATA_LOSS = frozenset({LOST, VANISHED, CONFLICT, DIVERGED})
"""The classes that mean that a promised record is gone or has become another."""

Broken = Iterator[tuple[str, str]]


def checks(scope: Scope) -> tuple[Group, ...]:
    """All invariants of a scope."""
    groups = [Group("promises", (CLIENT,), check=_promises, row=memory_row(1))]
    for broker in scope.ids:
        own = (log_cell(broker), process_cell(broker))
        leader = (CLIENT, CONTROLLER, *own)
        groups.append(Group("leader", leader, check=_Complete(scope, broker), row=memory_row(broker)))
        for other in scope.ids:
            if other > broker:
                logs, memories = (own[0], log_cell(other)), (own[1], process_cell(other))
                groups.append(Group("logs", logs, check=_Matching(broker, other), row="logs"))
                groups.append(Group("leaders", memories, check=_OneLeader(broker, other), row="leaders"))
    return tuple(groups)


def _promises(client: Client) -> Broken:
    """What the outside observer found broken at a step (`witness.py`)."""
    yield from client.wrong


@dataclass(frozen=True)
class _Complete:
    """Leader completeness: who leads in the newest epoch holds all that was acknowledged, and all that was read.

    And valid ISR: who may be elected next, in the ISR or the ELR and running, holds it too.
    """

    scope: Scope
    broker: int

    def __call__(self, client: Client, metadata: Metadata, log: Log, process: Process) -> Broken:
        partition, role = metadata.partition, process.role
        held = records(log.batches)
        if isinstance(role, Leader) and role.epoch == partition.leader_epoch:
            gone = [record for record in client.acked if record not in held]
            if gone:
                yield (
                    LOST,
                    f"acknowledged record {gone[0]} is not in the log of the leader, broker {self.broker}",
                )
            if held[: len(client.read)] != client.read:
                yield VANISHED, f"readers saw {client.read}, the leader, broker {self.broker}, holds {held}"
            if self.scope.idempotent and len(set(held)) < len(held):
                yield DUPLICATE, f"broker {self.broker} leads with {held}"
        registered = metadata.registration(self.broker)
        member = self.broker in partition.isr or self.broker in partition.elr
        electable = member and process.up and not registered.fenced and registered.epoch == process.epoch
        if electable and held[: len(client.read)] != client.read:
            yield INVALID_ISR, f"broker {self.broker} may be elected and holds {held} of {client.read}"


@dataclass(frozen=True)
class _Matching:
    """Log matching: two logs are the same below the lower of their high watermarks."""

    broker: int
    other: int

    def __call__(self, log: Log, other: Log) -> Broken:
        below = min(log.high_watermark, other.high_watermark)
        mine, its = log.below(below), other.below(below)
        if records(mine) != records(its):
            yield (
                DIVERGED,
                f"below offset {below} broker {self.broker} holds {records(mine)}, broker {self.other} {records(its)}",
            )


@dataclass(frozen=True)
class _OneLeader:
    """At most one leader per epoch."""

    broker: int
    other: int

    def __call__(self, process: Process, other: Process) -> Broken:
        mine, its = process.role, other.role
        if isinstance(mine, Leader) and isinstance(its, Leader) and mine.epoch == its.epoch:
            yield TWO_LEADERS, f"brokers {self.broker} and {self.other} both lead in epoch {mine.epoch}"
