"""PacificA: primary and backups with equal logs, a separate configuration manager, and leases between primary and
backups.

Kafka's controller and ISR differ in one point. In Kafka only the leader proposes a new ISR. Here any replica that
suspects a peer proposes a configuration. Leases ensure that the old primary has stopped before a backup asks to
replace it. Source: Lin, Yang, Zhang and Zhou, "PacificA: Replication in Log-Based Distributed Storage Systems" (2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ackproof_reference.log import Batch, Log, append, begin_epoch, parting, truncate


@dataclass(frozen=True)
class PacificaRules:
    """PacificA's protections, each of which can be switched off."""

    leases: bool = True
    """A primary stops when its lease from a backup has run out, before that backup may ask to replace it."""
    version_check: bool = True
    """The manager accepts a configuration only from a replica that knows the newest one (compare and set)."""
    reconciliation: bool = True
    """A new primary makes the backups' logs like its own before it takes anything new."""


class Configuration(NamedTuple):
    """A numbered configuration of the replica group. `primary`: id of the primary. `members`: ids of all members, with
    the primary."""

    version: int
    primary: int
    members: tuple[int, ...]


class Replica(NamedTuple):
    """One replica: the configuration that it knows and its log. The log's high watermark is the commit point; entries
    above it are written, but not committed.

    `leased`: for the primary, True until a lease that it holds from a backup runs out. Always True for a backup, False
    for a replica that is no member. `ends`: log end offsets that a primary knows, as (backup, end)."""

    config: Configuration
    log: Log = Log()
    leased: bool = True
    ends: tuple[tuple[int, int], ...] = ()


def serves(replica: Replica, own: int) -> bool:
    """Return True if replica `own` acts as the primary and answers reads alone: it is the primary of the
    configuration that it knows, with valid leases. No other replica may do so at the same time.
    """
    return replica.config.primary == own and replica.leased


def write(primary: Replica, own: int, sequence: int) -> Replica:
    """Return the primary, replica `own`, with entry `sequence` appended. The entry commits when all members hold it."""
    batch = Batch(primary.log.end, primary.config.version, 0, sequence)
    return commit(primary._replace(log=append(primary.log, batch)), own)


def replicate(
    backup: Replica, primary: Replica, own: int, leader: int, rules: PacificaRules
) -> tuple[Replica, Replica]:
    """Let a backup of the same configuration take one entry, or truncate where the logs diverge.

    `own`: id of the backup. `leader`: id of the primary. Returns backup and primary; the primary's commit point
    may advance. Without `reconciliation` logs that diverge are not truncated.
    """
    log = backup.log
    if rules.reconciliation and (cut := parting(log, primary.log)) is not None:
        return backup._replace(log=truncate(log, cut)), primary
    for batch in primary.log.read(log.end, 1):
        log = append(log, batch)
    ends = tuple(sorted({**dict(primary.ends), own: log.end}.items()))
    primary = commit(primary._replace(ends=ends), leader)
    mark = max(log.high_watermark, min(primary.log.high_watermark, log.end))
    return backup._replace(log=log._replace(high_watermark=mark)), primary


def commit(primary: Replica, own: int) -> Replica:
    """Return the primary (id `own`) with its commit point at the lowest log end of all members of the configuration. A
    log end that the primary does not know counts as 0. The commit point never falls."""
    ends = dict(primary.ends)
    reached = min(
        [primary.log.end, *(ends.get(member, 0) for member in primary.config.members if member != own)]
    )
    mark = max(primary.log.high_watermark, reached)
    return primary._replace(log=primary.log._replace(high_watermark=mark))


def reconfigure(
    manager: Configuration, proposed: Configuration, rules: PacificaRules
) -> tuple[Configuration, bool]:
    """Return the manager's configuration after a proposal, and True if it accepted the proposal.

    With `version_check` only a proposal with the next version is accepted. Without it, each proposal is accepted, and
    gets the next version.
    """
    if rules.version_check and proposed.version != manager.version + 1:
        return manager, False
    return proposed._replace(version=manager.version + 1), True


def without_backup(replica: Replica, backup: int) -> Configuration:
    """Return the configuration that a primary proposes when it suspects a backup: the next version, without this
    backup."""
    config = replica.config
    return Configuration(config.version + 1, config.primary, tuple(m for m in config.members if m != backup))


def in_its_place(replica: Replica, own: int) -> Configuration:
    """Return the configuration that backup `own` proposes when it suspects its primary: the next version, with itself
    as the primary and without the old primary."""
    config = replica.config
    return Configuration(config.version + 1, own, tuple(m for m in config.members if m != config.primary))


def learn(replica: Replica, config: Configuration, own: int) -> Replica:
    """Return replica `own` with a new configuration. If it becomes the primary by that, it begins an epoch without
    knowledge of the backups' logs. `Replica.leased` of the result is True if `own` is a member."""
    log = replica.log
    if config.primary == own and replica.config.primary != own:
        log = begin_epoch(log, config.version)
    known = replica.ends if replica.config.primary == own else ()
    ends = tuple((member, end) for member, end in known if member in config.members)
    learnt = Replica(config, log, leased=own in config.members, ends=ends)
    return commit(learnt, own) if config.primary == own else learnt
