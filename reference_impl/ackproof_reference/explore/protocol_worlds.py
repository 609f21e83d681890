"""Small models of other protocols: a majority quorum, PacificA, and the race for the controller in ZooKeeper.

* Quorum: elections at any time, crashes, entries that leaders write.
* PacificA: suspicions at any time, expiring leases, entries, reads from each replica that acts as primary.
* ZooKeeper: expiring sessions, brokers that race for the controller's place and decide on leaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from ackproof_reference.explore.invariants import records
from ackproof_reference.explore.model import Action, Group, Model, Move
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
from ackproof_reference.quorum import QuorumRules, Server, count_vote, crash, fetch, stand, vote
from ackproof_reference.quorum import write as write_entry
from ackproof_reference.zookeeper import (
    NOBODY,
    Ensemble,
    Member,
    ZooKeeperRules,
    expire,
    reconnect,
    try_to_become_controller,
    watch,
    write_state,
)


class Observed(NamedTuple):
    """Findings so far, and the committed records with which later states are compared. `committed`: numbers of the
    records in the longest committed prefix of any server. `wrong`: findings, each as (class, sentence)."""

    committed: tuple[int, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()

    def commits(self, who: str, log: Log) -> Observed:
        """Return what is observed after a server has advanced its high watermark. If it commits another record than was
        committed before at an offset, that is a finding, `conflict`, which replaces earlier findings. `who`: the server
        in words. `log`: its log.
        """
        shown = records(log.below(log.high_watermark))
        same = min(len(shown), len(self.committed))
        if shown[:same] != self.committed[:same]:
            text = f"{who} commits {shown}, committed was {self.committed}"
            return self._replace(wrong=(("conflict", text),))
        return self._replace(committed=max(shown, self.committed, key=len))

    def leads(self, who: str, log: Log) -> Observed:
        """Return what is observed after an election. A new leader that lacks a committed record is a finding,
        `lost`, which replaces earlier findings. `who`: the leader and how it was elected, in words. `log`: its log.
        """
        held = records(log.batches)
        if held[: len(self.committed)] != self.committed:
            return self._replace(wrong=(("lost", f"{who} with {held}, committed was {self.committed}"),))
        return self


class QuorumBounds(NamedTuple):
    """Bounds of the quorum model: how many elections, crashes and new entries may still happen."""

    elections: int = 2
    crashes: int = 0
    entries: int = 1


def quorum(rules: QuorumRules, bounds: QuorumBounds, servers: int = 3) -> Model:
    """Return the model of a KRaft quorum (KIP-595) of `servers` voters. At first all logs are empty, and no server
    leads. `bounds`: how many elections, crashes and new entries may happen. Classes of findings: `lost`, `conflict`,
    `two leaders`.
    """
    groups = [Group("observed", (1,), check=attrgetter("wrong"))]
    for one in range(servers):
        groups.append(Group("own", (0, 2 + one), partial(_own_server_moves, rules, one)))
        for other in range(servers):
            if other != one:
                pair = (1, 2 + one, 2 + other)
                groups.append(Group("pair", pair, partial(_server_pair_moves, rules, one, other, servers)))
            if other > one:
                groups.append(Group("leaders", (2 + one, 2 + other), check=_one_leader))
    names = ("bounds", "observed", *(f"server {n}" for n in range(servers)))
    return Model(names, (bounds, Observed(), *(Server() for _ in range(servers))), groups)


def _one_leader(one: Server, other: Server) -> Iterator[tuple[str, str]]:
    if one.leads and other.leads and one.epoch == other.epoch:
        yield "two leaders", f"two servers lead in epoch {one.epoch}"


def _own_server_moves(
    rules: QuorumRules, number: int, bounds: QuorumBounds, server: Server
) -> Iterator[Move]:
    name = f"server {number}"
    if bounds.elections and not server.leads:
        stands = stand(server, number)
        less = bounds._replace(elections=bounds.elections - 1)
        yield Action(name, f"stands for epoch {stands.epoch}"), (less, stands)
    if bounds.crashes:
        less = bounds._replace(crashes=bounds.crashes - 1)
        yield Action(name, "crashes and comes back"), (less, crash(server, rules))
    if bounds.entries and server.leads:
        less = bounds._replace(entries=bounds.entries - 1)
        yield (
            Action(name, f"writes entry {bounds.entries}"),
            (less, write_entry(server, bounds.entries, rules)),
        )


def _server_pair_moves(
    rules: QuorumRules, own: int, its: int, servers: int, observed: Observed, one: Server, other: Server
) -> Iterator[Move]:
    """Yield the moves in which server `one` asks `other` for its vote or, if `other` leads, for entries. `own`, `its`:
    ids of `one` and `other`. `servers`: number of voters."""
    name, to = f"server {own}", f"server {its}"
    if one.votes and its not in one.votes:
        voter, granted = vote(other, one, own, rules)
        if granted:
            counted = count_vote(one, its, servers)
            text = f"gets its vote for epoch {one.epoch}" + (" and leads" if counted.leads else "")
            who = f"{name} leads in epoch {counted.epoch}"
            seen = observed.leads(who, counted.log) if counted.leads else observed
            yield Action(name, text, to), (seen, counted, voter)
        elif voter != other:
            yield (
                Action(name, f"is refused, but makes epoch {one.epoch} known", to),
                (observed, one, voter),
            )
    if other.leads:
        follower, leader = fetch(one, other, own, servers, rules)
        text = (
            f"fetches: its log ends at {follower.log.end}, the high watermark is {leader.log.high_watermark}"
        )
        yield Action(name, text, to), (observed.commits(to, leader.log), follower, leader)


class PacificaBounds(NamedTuple):
    """Bounds of the PacificA model: how many suspicions of a peer, and new entries, may still happen."""

    suspicions: int = 1
    entries: int = 1


def pacifica(rules: PacificaRules, bounds: PacificaBounds, replicas: int = 3) -> Model:
    """Return the model of a PacificA replica group. At first replica 0 is the primary, all replicas are members, all
    logs are empty. `bounds`: how many suspicions and new entries may happen. Classes of findings: `lost`, `conflict`,
    `stale read`.
    """
    first = Configuration(0, 0, tuple(range(replicas)))
    groups = [Group("seen", (1,), check=attrgetter("wrong"))]
    for one in range(replicas):
        groups.append(Group("own", (0, 1, 2, 3 + one), partial(_own_replica_moves, one)))
        groups.append(Group("reads", (1, 2, 3 + one), check=partial(_reads, one)))
        groups += [
            Group("pair", (0, 1, 2, 3 + one, 3 + other), partial(_replica_pair_moves, rules, one, other))
            for other in range(replicas)
            if other != one
        ]
    names = ("bounds", "seen", "manager", *(f"replica {n}" for n in range(replicas)))
    return Model(
        names, (bounds, Observed(), first, *(Replica(first, Log()) for _ in range(replicas))), groups
    )


def _own_replica_moves(
    number: int, bounds: PacificaBounds, seen: Observed, manager: Configuration, replica: Replica
) -> Iterator[Move]:
    name = f"replica {number}"
    if bounds.entries and serves(replica, number):
        wrote = write(replica, number, bounds.entries)
        less = bounds._replace(entries=bounds.entries - 1)
        done = seen.commits(name, wrote.log)
        yield Action(name, f"prepares entry {bounds.entries}"), (less, done, manager, wrote)
    if replica.config.version < manager.version:
        learnt = learn(replica, manager, number)
        text = f"learns configuration {manager.version}: primary {manager.primary} of {manager.members}"
        done = seen
        if learnt.config.primary == number:
            done = seen.leads(f"{name} takes over", learnt.log).commits(name, learnt.log)
        yield Action(name, text), (bounds, done, manager, learnt)
    if replica.config.primary == number and replica.leased and len(replica.config.members) > 1:
        stopped = replica._replace(leased=False)
        yield Action(name, "loses a lease and stops"), (bounds, seen, manager, stopped)


def _replica_pair_moves(
    rules: PacificaRules,
    own: int,
    its: int,
    bounds: PacificaBounds,
    seen: Observed,
    manager: Configuration,
    one: Replica,
    other: Replica,
) -> Iterator[Move]:
    """Yield the moves in which replica `one` replicates from `other`, or suspects it and proposes a configuration.
    `own`, `its`: ids of `one` and `other`."""
    name, to = f"replica {own}", f"replica {its}"
    backs_up = one.config.primary == its and own in one.config.members
    if backs_up and one.config == other.config and other.config.primary == its:
        backup, primary = replicate(one, other, own, its, rules)
        text = f"backs it up to {backup.log.end}; committed up to {primary.log.high_watermark}"
        done = seen.commits(to, primary.log)
        yield Action(name, text, to), (bounds, done, manager, backup, primary)
    if not bounds.suspicions or own not in one.config.members:
        return
    less = bounds._replace(suspicions=bounds.suspicions - 1)
    # The grace period is longer than the lease: when a backup gives up, the primary has stopped already.
    if backs_up and (not rules.leases or not serves(other, its)):
        decided, taken = reconfigure(manager, in_its_place(one, own), rules)
        if taken:
            text = f"suspects its primary and takes its place in configuration {decided.version}"
            yield Action(name, text, to), (less, seen, decided, one, other)
    if one.config.primary == own and its in one.config.members:
        decided, taken = reconfigure(manager, without_backup(one, its), rules)
        if taken:
            text = f"suspects a backup and goes on without it in configuration {decided.version}"
            yield Action(name, text, to), (less, seen, decided, one, other)


def _reads(
    number: int, seen: Observed, manager: Configuration, replica: Replica
) -> Iterator[tuple[str, str]]:
    """Yield a finding if replica `number` would give a reader fewer records than were committed. That is a replica that
    still acts as the primary, although the manager's configuration names another one."""
    if serves(replica, number) and manager.primary != number:
        shown = records(replica.log.below(replica.log.high_watermark))
        if len(shown) < len(seen.committed):
            yield "stale read", f"replica {number} still answers with {shown} of {seen.committed}"


def controllers(rules: ZooKeeperRules, brokers: int = 3, expiries: int = 1, writes: int = 2) -> Model:
    """Return the model of controller election in ZooKeeper. At first all brokers have a session, and none is
    controller.

    Classes of findings: `overwritten` (a controller overwrote a partition state that a newer controller had written),
    `nobody` (no broker will ever learn that there is no controller). `brokers`: number of brokers. `expiries`: how many
    sessions may expire. `writes`: how many times controllers may write a new leader of the partition.
    """
    everyone = tuple(range(brokers))
    members = tuple(3 + n for n in everyone)
    groups = [
        Group("wrong", (2,), check=_wrong),
        Group("sessions", (0, 1, *members), _expiries, check=_someone_will_be_told),
    ]
    groups += [Group("broker", (0, 1, 2, 3 + n), partial(_broker, rules, n)) for n in everyone]
    names = ("left", "ensemble", "wrong", *(f"broker {n}" for n in everyone))
    first = ((expiries, writes), Ensemble(everyone, everyone), "", *(Member() for _ in everyone))
    return Model(names, first, groups)


def _expiries(left: tuple[int, int], ensemble: Ensemble, *members: Member) -> Iterator[Move]:
    if left[0]:
        for broker in ensemble.sessions:
            gone, told = expire(ensemble, broker)
            after = [m._replace(fired=True) if n in told else m for n, m in enumerate(members)]
            after[broker] = after[broker]._replace(expired=True)
            text = f"ends the session of broker {broker}" + (f" and tells {told}" if told else "")
            yield Action("ensemble", text, f"broker {broker}"), ((left[0] - 1, left[1]), gone, *after)


def _wrong(wrong: str) -> Iterator[tuple[str, str]]:
    if wrong:
        yield "overwritten", wrong


def _someone_will_be_told(
    left: tuple[int, int], ensemble: Ensemble, *members: Member
) -> Iterator[tuple[str, str]]:
    """Check that a broker learns of a missing controller. Yield a finding if there is no controller, some brokers have
    live sessions, and none of these has a notification of that to handle. Nobody would then start an election, because
    a broker without a session may never return. `left` is not used."""
    del left
    told = [members[broker].fired for broker in ensemble.sessions]
    if ensemble.controller == NOBODY and told and not any(told):
        yield "nobody", "there is no controller and nobody alive will be told"


def _broker(
    rules: ZooKeeperRules, own: int, left: tuple[int, int], ensemble: Ensemble, wrong: str, member: Member
) -> Iterator[Move]:
    name = f"broker {own}"
    connected = own in ensemble.sessions
    if member.expired:
        fresh, reconnected = reconnect(ensemble, own)
        yield (
            Action(name, "reaches it again, with a new session", "ensemble"),
            (left, fresh, wrong, reconnected),
        )
    elif member.fired and connected:
        watched = watch(ensemble, own) if rules.watch_before_reading else ensemble
        raced, after = try_to_become_controller(watched, own)
        if after.acts:
            text = f"becomes controller with epoch {after.acts}"
        else:
            text = f"finds broker {after.believes} to be controller"
        yield Action(name, text, "ensemble"), (left, raced, wrong, after)
    elif not rules.watch_before_reading and connected and own not in ensemble.watches:
        watched = watch(ensemble, own)
        yield Action(name, "sets its watch", "ensemble"), (left, watched, wrong, member)
    if member.acts and left[1]:
        written, taken = write_state(ensemble, member, own, rules)
        if taken:
            if written.state_epoch < ensemble.state_epoch:
                wrong = (
                    f"controller epoch {member.acts} overwrote what epoch {ensemble.state_epoch} had decided"
                )
            text = f"decides, as controller of epoch {member.acts}, who leads"
            yield Action(name, text, "ensemble"), ((left[0], left[1] - 1), written, wrong, member)
