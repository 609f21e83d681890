"""A scope as a model for the search: its cells, their first values, and all that can happen and must hold in it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from ackproof_reference.broker import Broker, Process
from ackproof_reference.explore.forgetting import leftovers, remembered
from ackproof_reference.explore.invariants import checks
from ackproof_reference.explore.model import Group
from ackproof_reference.explore.moves import moves
from ackproof_reference.explore.scope import BUDGET, Client, Scope
from ackproof_reference.log import Log
from ackproof_reference.metadata import Metadata, Partition, Registration
from ackproof_reference.node import step


@dataclass
class World:
    """A scope as a model for the search. All brokers run and know the cluster; the first replica leads."""

    scope: Scope
    groups: Sequence[Group] = field(init=False)

    def __post_init__(self) -> None:
        self.groups = (*moves(self.scope), *leftovers(self.scope), *checks(self.scope))

    @property
    def names(self) -> Sequence[str]:
        """A name for each cell."""
        own = [
            f"{what} of broker {i}" for i in self.scope.ids for what in ("log", "memory", "fetch", "proposal")
        ]
        return ("budget", "client", "controller", *own)

    @property
    def counters(self) -> Sequence[int]:
        """What may still go wrong counts down."""
        return (BUDGET,)

    @property
    def widths(self) -> Sequence[int]:
        """Brokers' memories differ most. Three brokers come to six digits of an integer (180 bits, 48 bytes)."""
        return (0, 8, 14, *(width for _ in self.scope.ids for width in (10, 18, 10, 9)))

    @property
    def initial(self) -> tuple[Hashable, ...]:
        """An empty partition, and its replicas, which know of it or are about to learn."""
        scope = self.scope
        replicas = scope.assigned or scope.ids
        isr = scope.started_isr or replicas
        partition = Partition(replicas, isr[0], 0, 0, isr)
        metadata = Metadata(partition, tuple(Registration(broker, 0) for broker in scope.ids))
        row: list[Hashable] = [scope.budget, Client(), metadata]
        for broker in scope.ids:
            begun = Broker(broker, Log(), Process(up=True, epoch=0))
            if scope.settled:
                begun, _ = step(begun, metadata, scope.rules)
                begun = remembered(begun) if scope.forgetting else begun
            row += [begun.log, begun.process, None, None]
        return tuple(row)
