"""The plain second implementation of all quantities, by the name of the quantity."""

from __future__ import annotations

from typing import cast

from ackproof.quantities.quantity import Ask, Quantity
from ackproof.rundir.bounds import Bound
from ackproof.rundir.metadata import PartitionChanged

from . import brokers, decided, demands, disks, gaps, metrics, requests, states
from .facts import Count, Facts, Look, Looks

COUNTED: dict[str, Count] = {
    **gaps.COUNTED,
    **requests.COUNTED,
    **states.COUNTED,
    **decided.COUNTED,
    **disks.COUNTED,
    **brokers.COUNTED,
    **metrics.COUNTED,
}
LOOKED: dict[str, object] = {**states.LOOKED, **brokers.LOOKED, **metrics.LOOKED}


def name_of(quantity: Quantity) -> str:
    """Return the key of a quantity in `COUNTED` or `LOOKED`, such as `time_to(metric M)` for any metric."""
    return f"{quantity.name}({quantity.stands_for})" if quantity.stands_for else quantity.key


def all_looks(facts: Facts, ask: Ask) -> Looks:
    """Return the observations of a state, for each partition or other subject of the question; {} without any."""
    of = LOOKED[name_of(ask.quantity)]
    if of is metrics.looks:
        found = cast("list[Look] | None", metrics.looks(facts, ask))
        return {} if found is None else {"": found}
    assert callable(of)
    return cast("Looks", of(facts, ask))


def demanded(facts: Facts, ask: Ask, bound: Bound) -> bool | None:
    """Return whether a bound on a state holds; None if that is unknown."""
    if ask.quantity.name == "metric":
        return metrics.demanded(facts, ask, bound)
    told: dict[str, list[float]] = {}
    for one in facts.records:
        if isinstance(one, PartitionChanged):
            number = {
                "isr": len(one.isr),
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "placement(brokers)": len(set(one.replicas)),
                "placement(first replica)": one.replicas[0],
            }.get(ask.quantity.key)
            if number is not None:
                told.setdefault(str(one.partition), []).append(number)
    return demands.demanded(facts, all_looks(facts, ask), bound, told, decided.whole(facts))
