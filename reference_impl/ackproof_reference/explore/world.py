"""A scope as a model for the search: its cells, their first values, and all that can happen and must hold in it."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from ackproof_reference.broker import Broker, Process
from ackproof_reference.explore.ending import ends
from ackproof_reference.explore.forgetting import leftovers, remembered, remembering
from ackproof_reference.explore.invariants import checks
from ackproof_reference.explore.model import Model
from ackproof_reference.explore.moves import moves
from ackproof_reference.explore.ranking import WorldsEpochs
from ackproof_reference.explore.retelling import Retelling
from ackproof_reference.explore.scope import BUDGET, TOLD, WHOLE, Client, Scope
from ackproof_reference.follower import next_request
from ackproof_reference.log import Log
from ackproof_reference.metadata import Metadata, Partition, Registration
from ackproof_reference.node import step


def world(scope: Scope) -> Model:
    """A scope as a model for the search. All brokers run and know the cluster; the first replica leads.

    The partition is empty, and its replicas know of it (`settled`) or are about to learn.
    """
    replicas = scope.assigned or scope.ids
    isr = scope.started_isr or replicas
    metadata = Metadata(
        Partition(replicas, isr[0], 0, 0, isr), tuple(Registration(broker, 0) for broker in scope.ids)
    )
    names = ["budget", "client", "controller"]
    first: list[Hashable] = [scope.budget, Client(), metadata]
    # Brokers' memories differ most. Three brokers come to six digits of an integer (180 bits, 48 bytes).
    widths = [0, 8, 14]
    for number in scope.ids:
        begun = Broker(number, Log(), Process(up=True, epoch=0))
        if scope.settled:
            begun, _ = step(begun, metadata, scope.rules)
        if scope.reductions.memory:
            begun = remembered(begun, scope)
        asked = next_request(begun) if scope.reductions.fusing else None
        first += [begun.log, begun.process, asked, None]
        names += [f"{what} of broker {number}" for what in ("log", "memory", "fetch", "proposal")]
        widths += [10, 18, 10, 9]
    steps = moves(scope)
    if scope.reductions.memory:
        steps = tuple(remembering(group, scope) for group in steps)
    groups = (*steps, *leftovers(scope), *checks(scope))
    retold = Retelling(scope, partial(world, scope), partial(world, scope.told))
    return Model(
        names,
        tuple(first),
        groups,
        counters=(BUDGET,),
        widths=widths,
        retold=None if scope.reductions in (WHOLE, TOLD) else retold,
        epochs=WorldsEpochs() if scope.reductions.ranking else None,
        frugal=scope.reductions.ranking,
        ends=ends(scope),
    )
