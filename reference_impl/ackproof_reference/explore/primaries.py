"""The world of PacificA: suspicions at any time, leases that run out, entries, reads by whoever acts as primary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ackproof_reference.explore.invariants import records
from ackproof_reference.explore.model import Group, Happening, Model, Move
from ackproof_reference.explore.observed import Observed, wrong
from ackproof_reference.log import Log
from ackproof_reference.pacifica import (
    Configuration,
    PacificaRules,
    Replica,
    in_its_place,
    learn,
    reconfigure,
    replicate,
    serves,
    without_backup,
    write,
)


class Bounds(NamedTuple):
    """What may still happen: suspicions and entries; each counts down."""

    suspicions: int = 1
    entries: int = 1


def pacifica(rules: PacificaRules, bounds: Bounds, replicas: int = 3) -> Model:
    """The world as a model for the search. Replica 0 is the first primary; all are members, with empty logs."""
    first = Configuration(0, 0, tuple(range(replicas)))
    groups = [Group("seen", (1,), check=wrong)]
    for one in range(replicas):
        groups.append(Group("own", (0, 1, 2, 3 + one), partial(_own, one)))
        groups.append(Group("reads", (1, 2, 3 + one), check=partial(_reads, one)))
        groups += [
            Group("pair", (0, 1, 2, 3 + one, 3 + other), partial(_pair, rules, one, other))
            for other in range(replicas)
            if other != one
        ]
    names = ("bounds", "seen", "manager", *(f"replica {n}" for n in range(replicas)))
    return Model(
        names, (bounds, Observed(), first, *(Replica(first, Log()) for _ in range(replicas))), groups
    )


def _own(
    number: int, bounds: Bounds, seen: Observed, manager: Configuration, replica: Replica
) -> Iterator[Move]:
    name = f"replica {number}"
    if bounds.entries and serves(replica, number):
        wrote = write(replica, number, bounds.entries)
        less = bounds._replace(entries=bounds.entries - 1)
        done = seen.commits(name, wrote.log)
        yield Happening(name, f"prepares entry {bounds.entries}"), (less, done, manager, wrote)
    if replica.config.version < manager.version:
        learnt = learn(replica, manager, number)
        text = f"learns configuration {manager.version}: primary {manager.primary} of {manager.members}"
        done = seen
        if learnt.config.primary == number:
            done = seen.leads(f"{name} takes over", learnt.log).commits(name, learnt.log)
        yield Happening(name, text), (bounds, done, manager, learnt)
    if replica.config.primary == number and replica.leased and len(replica.config.members) > 1:
        stopped = replica._replace(leased=False)
        yield Happening(name, "loses a lease and stops"), (bounds, seen, manager, stopped)


def _pair(
    rules: PacificaRules,
    own: int,
    its: int,
    bounds: Bounds,
    seen: Observed,
    manager: Configuration,
    one: Replica,
    other: Replica,
) -> Iterator[Move]:
    """What `one` does about `other`: replicates from it, or suspects it."""
    name, to = f"replica {own}", f"replica {its}"
    backs_up = one.config.primary == its and own in one.config.members
    if backs_up and one.config == other.config and other.config.primary == its:
        backup, primary = replicate(one, other, own, its, rules)
        text = f"backs it up to {backup.log.end}; committed up to {primary.log.high_watermark}"
        done = seen.commits(to, primary.log)
        yield Happening(name, text, to), (bounds, done, manager, backup, primary)
    if not bounds.suspicions or own not in one.config.members:
        return
    less = bounds._replace(suspicions=bounds.suspicions - 1)
    # The grace period is longer than the lease: when a backup gives up, the primary has stopped already.
    if backs_up and (not rules.leases or not serves(other, its)):
        decided, taken = reconfigure(manager, in_its_place(one, own), rules)
        if taken:
            text = f"suspects its primary and takes its place in configuration {decided.version}"
            yield Happening(name, text, to), (less, seen, decided, one, other)
    if one.config.primary == own and its in one.config.members:
        decided, taken = reconfigure(manager, without_backup(one, its), rules)
        if taken:
            text = f"suspects a backup and goes on without it in configuration {decided.version}"
            yield Happening(name, text, to), (less, seen, decided, one, other)


def _reads(
    number: int, seen: Observed, manager: Configuration, replica: Replica
) -> Iterator[tuple[str, str]]:
    """Who acts as primary answers readers alone: when another has its place it must not answer with less."""
    if serves(replica, number) and manager.primary != number:
        shown = records(replica.log.below(replica.log.high_watermark))
        if len(shown) < len(seen.committed):
            yield "stale read", f"replica {number} still answers with {shown} of {seen.committed}"
