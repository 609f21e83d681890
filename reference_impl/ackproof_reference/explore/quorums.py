"""The world of a majority quorum: elections at any time, crashes, entries written by whoever leads."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ackproof_reference.explore.model import Group, Happening, Move
from ackproof_reference.explore.witness import records
from ackproof_reference.quorum import QuorumRules, Server, count_vote, crash, fetch, stand, vote, write


class Bounds(NamedTuple):
    """What may still happen: elections, crashes, entries; each counts down."""

    elections: int = 2
    crashes: int = 0
    entries: int = 1


class Observed(NamedTuple):
    """The longest prefix that any leader committed; and what broke it."""

    committed: tuple[int, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Quorum:
    """The world as a model for the search."""

    rules: QuorumRules
    bounds: Bounds
    servers: int = 3

    @property
    def names(self) -> Sequence[str]:
        """A name for each cell."""
        return ("bounds", "observed", *(f"server {n}" for n in range(self.servers)))

    @property
    def initial(self) -> tuple[Hashable, ...]:
        """Empty logs, nobody leads."""
        return (self.bounds, Observed(), *(Server() for _ in range(self.servers)))

    @property
    def groups(self) -> Sequence[Group]:
        """All steps and invariants."""
        made = [Group("observed", (1,), check=_wrong)]
        for one in range(self.servers):
            made.append(Group("own", (0, 2 + one), _Own(self.rules, one)))
            for other in range(self.servers):
                if other != one:
                    pair = (1, 2 + one, 2 + other)
                    made.append(Group("pair", pair, _Pair(self.rules, one, other, self.servers)))
                if other > one:
                    made.append(Group("leaders", (2 + one, 2 + other), check=_one_leader))
        return made


def _wrong(observed: Observed) -> Iterator[tuple[str, str]]:
    yield from observed.wrong


def _one_leader(one: Server, other: Server) -> Iterator[tuple[str, str]]:
    if one.leads and other.leads and one.epoch == other.epoch:
        yield "two leaders", f"two servers lead in epoch {one.epoch}"


@dataclass(frozen=True)
class _Own:
    rules: QuorumRules
    number: int

    def __call__(self, bounds: Bounds, server: Server) -> Iterator[Move]:
        name = f"server {self.number}"
        if bounds.elections and not server.leads:
            stands = stand(server, self.number)
            less = bounds._replace(elections=bounds.elections - 1)
            yield Happening(name, "", f"stands for epoch {stands.epoch}"), (less, stands)
        if bounds.crashes:
            less = bounds._replace(crashes=bounds.crashes - 1)
            yield Happening(name, "", "crashes and comes back"), (less, crash(server, self.rules))
        if bounds.entries and server.leads:
            less = bounds._replace(entries=bounds.entries - 1)
            yield (
                Happening(name, "", f"writes entry {bounds.entries}"),
                (less, write(server, bounds.entries, self.rules)),
            )


@dataclass(frozen=True)
class _Pair:
    """What `one` asks `other`: for its vote, or, if `other` leads, for entries."""

    rules: QuorumRules
    one: int
    other: int
    servers: int

    def __call__(self, observed: Observed, one: Server, other: Server) -> Iterator[Move]:
        name, to = f"server {self.one}", f"server {self.other}"
        if one.votes and self.other not in one.votes:
            voter, granted = vote(other, one, self.one, self.rules)
            if granted:
                counted = count_vote(one, self.other, self.servers)
                text = f"gets its vote for epoch {one.epoch}" + (" and leads" if counted.leads else "")
                yield Happening(name, to, text), (_elected(observed, counted, self.one), counted, voter)
            elif voter != other:
                yield (
                    Happening(name, to, f"is refused, but makes epoch {one.epoch} known"),
                    (observed, one, voter),
                )
        if other.leads:
            follower, leader = fetch(one, other, self.one, self.servers, self.rules)
            text = f"fetches: its log ends at {follower.log.end}, the high watermark is {leader.log.high_watermark}"
            yield Happening(name, to, text), (_committed(observed, leader, self.other), follower, leader)


def _elected(observed: Observed, server: Server, number: int) -> Observed:
    held = records(server.log.batches)
    if server.leads and held[: len(observed.committed)] != observed.committed:
        text = (
            f"server {number} leads in epoch {server.epoch} with {held}, committed was {observed.committed}"
        )
        return observed._replace(wrong=(("lost", text),))
    return observed


def _committed(observed: Observed, leader: Server, number: int) -> Observed:
    shown = records(leader.log.below(leader.log.high_watermark))
    same = min(len(shown), len(observed.committed))
    if shown[:same] != observed.committed[:same]:
        text = f"server {number} commits {shown}, committed was {observed.committed}"
        return observed._replace(wrong=(("conflict", text),))
    return observed._replace(committed=max(shown, observed.committed, key=len))
