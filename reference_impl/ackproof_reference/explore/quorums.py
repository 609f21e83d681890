"""The world of a majority quorum: elections at any time, crashes, entries written by whoever leads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ackproof_reference.explore.model import Group, Happening, Model, Move
from ackproof_reference.explore.observed import Observed, wrong
from ackproof_reference.quorum import QuorumRules, Server, count_vote, crash, fetch, stand, vote, write


class Bounds(NamedTuple):
    """What may still happen: elections, crashes, entries; each counts down."""

    elections: int = 2
    crashes: int = 0
    entries: int = 1


def quorum(rules: QuorumRules, bounds: Bounds, servers: int = 3) -> Model:
    """The world as a model for the search: empty logs, nobody leads."""
    groups = [Group("observed", (1,), check=wrong)]
    for one in range(servers):
        groups.append(Group("own", (0, 2 + one), partial(_own, rules, one)))
        for other in range(servers):
            if other != one:
                pair = (1, 2 + one, 2 + other)
                groups.append(Group("pair", pair, partial(_pair, rules, one, other, servers)))
            if other > one:
                groups.append(Group("leaders", (2 + one, 2 + other), check=_one_leader))
    names = ("bounds", "observed", *(f"server {n}" for n in range(servers)))
    return Model(names, (bounds, Observed(), *(Server() for _ in range(servers))), groups)


def _one_leader(one: Server, other: Server) -> Iterator[tuple[str, str]]:
    if one.leads and other.leads and one.epoch == other.epoch:
        yield "two leaders", f"two servers lead in epoch {one.epoch}"


def _own(rules: QuorumRules, number: int, bounds: Bounds, server: Server) -> Iterator[Move]:
    name = f"server {number}"
    if bounds.elections and not server.leads:
        stands = stand(server, number)
        less = bounds._replace(elections=bounds.elections - 1)
        yield Happening(name, f"stands for epoch {stands.epoch}"), (less, stands)
    if bounds.crashes:
        less = bounds._replace(crashes=bounds.crashes - 1)
        yield Happening(name, "crashes and comes back"), (less, crash(server, rules))
    if bounds.entries and server.leads:
        less = bounds._replace(entries=bounds.entries - 1)
        yield (
            Happening(name, f"writes entry {bounds.entries}"),
            (less, write(server, bounds.entries, rules)),
        )


def _pair(
    rules: QuorumRules, own: int, its: int, servers: int, observed: Observed, one: Server, other: Server
) -> Iterator[Move]:
    """What `one` asks `other`: for its vote, or, if `other` leads, for entries."""
    name, to = f"server {own}", f"server {its}"
    if one.votes and its not in one.votes:
        voter, granted = vote(other, one, own, rules)
        if granted:
            counted = count_vote(one, its, servers)
            text = f"gets its vote for epoch {one.epoch}" + (" and leads" if counted.leads else "")
            who = f"{name} leads in epoch {counted.epoch}"
            seen = observed.leads(who, counted.log) if counted.leads else observed
            yield Happening(name, text, to), (seen, counted, voter)
        elif voter != other:
            yield (
                Happening(name, f"is refused, but makes epoch {one.epoch} known", to),
                (observed, one, voter),
            )
    if other.leads:
        follower, leader = fetch(one, other, own, servers, rules)
        text = (
            f"fetches: its log ends at {follower.log.end}, the high watermark is {leader.log.high_watermark}"
        )
        yield Happening(name, text, to), (observed.commits(to, leader.log), follower, leader)
