"""The world of PacificA: suspicions at any time, leases that run out, entries, reads by whoever acts as primary."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ackproof_reference.explore.model import Group, Happening, Move
from ackproof_reference.explore.witness import records
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


class Seen(NamedTuple):
    """The longest committed prefix; and what broke it."""

    committed: tuple[int, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Pacifica:
    """The world as a model for the search. Replica 0 is the first primary."""

    rules: PacificaRules
    bounds: Bounds
    replicas: int = 3

    @property
    def names(self) -> Sequence[str]:
        """A name for each cell."""
        return ("bounds", "seen", "manager", *(f"replica {n}" for n in range(self.replicas)))

    @property
    def initial(self) -> tuple[Hashable, ...]:
        """All members of the first configuration, with empty logs."""
        first = Configuration(0, 0, tuple(range(self.replicas)))
        return (self.bounds, Seen(), first, *(Replica(first, Log()) for _ in range(self.replicas)))

    @property
    def groups(self) -> Sequence[Group]:
        """All steps and invariants."""
        made = [Group("seen", (1,), check=_wrong)]
        for one in range(self.replicas):
            made.append(Group("own", (0, 1, 2, 3 + one), _Own(self.rules, one)))
            made.append(Group("reads", (1, 2, 3 + one), check=_Reads(one)))
            made += [
                Group("pair", (0, 1, 2, 3 + one, 3 + other), _Pair(self.rules, one, other))
                for other in range(self.replicas)
                if other != one
            ]
        return made


def _wrong(seen: Seen) -> Iterator[tuple[str, str]]:
    yield from seen.wrong


@dataclass(frozen=True)
class _Own:
    rules: PacificaRules
    number: int

    def __call__(
        self, bounds: Bounds, seen: Seen, manager: Configuration, replica: Replica
    ) -> Iterator[Move]:
        name = f"replica {self.number}"
        if bounds.entries and serves(replica, self.number):
            wrote = write(replica, self.number, bounds.entries)
            less = bounds._replace(entries=bounds.entries - 1)
            done = _committed(seen, wrote, self.number)
            yield Happening(name, "", f"prepares entry {bounds.entries}"), (less, done, manager, wrote)
        if replica.config.version < manager.version:
            learnt = learn(replica, manager, self.number)
            text = f"learns configuration {manager.version}: primary {manager.primary} of {manager.members}"
            done = _committed(_taking_over(seen, learnt, self.number), learnt, self.number)
            yield Happening(name, "", text), (bounds, done, manager, learnt)
        if replica.config.primary == self.number and replica.leased and len(replica.config.members) > 1:
            stopped = replica._replace(leased=False)
            yield Happening(name, "", "loses a lease and stops"), (bounds, seen, manager, stopped)


@dataclass(frozen=True)
class _Pair:
    """What `one` does about `other`: replicates from it, or suspects it."""

    rules: PacificaRules
    one: int
    other: int

    def __call__(
        self, bounds: Bounds, seen: Seen, manager: Configuration, one: Replica, other: Replica
    ) -> Iterator[Move]:
        name, to = f"replica {self.one}", f"replica {self.other}"
        backs_up = one.config.primary == self.other and self.one in one.config.members
        if backs_up and one.config == other.config and other.config.primary == self.other:
            backup, primary = replicate(one, other, self.one, self.other, self.rules)
            text = f"backs it up to {backup.log.end}; committed up to {primary.log.high_watermark}"
            done = _committed(seen, primary, self.other)
            yield Happening(name, to, text), (bounds, done, manager, backup, primary)
        if not bounds.suspicions or self.one not in one.config.members:
            return
        less = bounds._replace(suspicions=bounds.suspicions - 1)
        # The grace period is longer than the lease: when a backup gives up, the primary has stopped already.
        if backs_up and (not self.rules.leases or not serves(other, self.other)):
            decided, taken = reconfigure(manager, in_its_place(one, self.one), self.rules)
            if taken:
                text = f"suspects its primary and takes its place in configuration {decided.version}"
                yield Happening(name, to, text), (less, seen, decided, one, other)
        if one.config.primary == self.one and self.other in one.config.members:
            decided, taken = reconfigure(manager, without_backup(one, self.other), self.rules)
            if taken:
                text = f"suspects a backup and goes on without it in configuration {decided.version}"
                yield Happening(name, to, text), (less, seen, decided, one, other)


def _committed(seen: Seen, primary: Replica, number: int) -> Seen:
    """What a primary commits must agree; and what it answers readers with must be all that is committed."""
    shown = records(primary.log.below(primary.log.high_watermark))
    same = min(len(shown), len(seen.committed))
    if primary.config.primary == number and shown[:same] != seen.committed[:same]:
        text = f"replica {number} commits {shown}, committed was {seen.committed}"
        return seen._replace(wrong=(("conflict", text),))
    if primary.config.primary == number and len(shown) > len(seen.committed):
        return seen._replace(committed=shown)
    return seen


def _taking_over(seen: Seen, primary: Replica, number: int) -> Seen:
    """A new primary must hold all that was committed."""
    held = records(primary.log.batches)
    if primary.config.primary == number and held[: len(seen.committed)] != seen.committed:
        return seen._replace(
            wrong=(("lost", f"replica {number} takes over with {held} of {seen.committed}"),)
        )
    return seen


@dataclass(frozen=True)
class _Reads:
    """Who acts as primary answers readers alone: when another has its place it must not answer with less."""

    number: int

    def __call__(self, seen: Seen, manager: Configuration, replica: Replica) -> Iterator[tuple[str, str]]:
        if serves(replica, self.number) and manager.primary != self.number:
            shown = records(replica.log.below(replica.log.high_watermark))
            if len(shown) < len(seen.committed):
                yield "stale read", f"replica {self.number} still answers with {shown} of {seen.committed}"
