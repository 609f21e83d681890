"""The group coordinator: members and generations of one group, and the log of its committed offsets.

The group has one partition. Classic groups rebalance in two rounds (JoinGroup, SyncGroup); groups of KIP-848 reconcile
members with a target assignment, one heartbeat at a time. The coordinator never checks whether the committer owns the
partition, only its member and generation (`ClassicGroup.validateOffsetCommit`, `ConsumerGroup.validateOffsetCommit`).
"""

from __future__ import annotations

from enum import Enum, IntEnum
from functools import cache
from typing import NamedTuple

from ackproof_reference.rules import GroupProtocol, GroupRules

NOBODY = -1
NO_EPOCH = -1


class CommitError(Enum):
    """Answer of the coordinator to OffsetCommit or TxnOffsetCommit; the values are Kafka's error codes."""

    NONE = 0
    UNKNOWN_MEMBER_ID = 25
    ILLEGAL_GENERATION = 22
    REBALANCE_IN_PROGRESS = 27
    STALE_MEMBER_EPOCH = 113


class Phase(IntEnum):
    """State of a classic group that has members (`ClassicGroupState`). Groups of KIP-848 are always `STABLE`."""

    STABLE = 0
    PREPARING = 1
    COMPLETING = 2


class Entry(NamedTuple):
    """A member in the coordinator's memory. `epoch`: its member epoch; `since`: epoch at which it got the partition
    (KIP-848).

    `holds`: it has the partition assigned (KIP-848), or claimed it in its JoinGroup (classic). `joined`: it has joined
    the generation that is being prepared. `stored`: the log has it as a member.
    """

    epoch: int = NO_EPOCH
    since: int = NO_EPOCH
    holds: bool = False
    joined: bool = False
    stored: bool = False


class GroupState(NamedTuple):
    """A group in the coordinator's memory. `entries`: by number of a possible member, from 0; None: not a member.
    `epoch`: generation (classic), or group epoch (KIP-848).

    `owner`: member that has the partition (classic), or is to have it (KIP-848); NOBODY: none.
    `stored_epoch`: newest generation in the log (classic).
    """

    entries: tuple[Entry | None, ...]
    epoch: int = 0
    owner: int = NOBODY
    phase: Phase = Phase.STABLE
    stored_epoch: int = 0

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(number for number, entry in enumerate(self.entries) if entry is not None)

    def put(self, member: int, entry: Entry | None) -> GroupState:
        entries = list(self.entries)
        entries[member] = entry
        return self._replace(entries=tuple(entries))


def join(group: GroupState, member: int, rules: GroupRules, *, holds: bool = False) -> GroupState:
    """Return the group after a member has joined or rejoined it. `holds`: the member keeps the partition meanwhile
    (cooperative). A classic group begins a rebalance, unless one is being prepared. In KIP-848 the group epoch rises,
    and the assignor has to choose again (`assign`)."""
    if rules.protocol is GroupProtocol.CONSUMER:
        return group._replace(epoch=group.epoch + 1).put(member, Entry(epoch=group.epoch + 1))
    prepared = _prepare(group)
    old = prepared.entries[member] or Entry()
    return prepared.put(member, old._replace(joined=True, holds=holds))


def leave(group: GroupState, member: int, rules: GroupRules) -> GroupState:
    """Return the group without a member that left, whose session ended, or that did not rejoin in time. A rebalance
    begins (classic), or the group epoch rises (KIP-848)."""
    left = group.put(member, None)
    owner = NOBODY if group.owner == member else group.owner
    if rules.protocol is GroupProtocol.CONSUMER:
        return left._replace(epoch=group.epoch + 1, owner=owner)
    return _prepare(left)._replace(owner=owner)


def _prepare(group: GroupState) -> GroupState:
    if group.phase is Phase.PREPARING:
        return group
    entries = tuple(entry and entry._replace(joined=False, holds=False) for entry in group.entries)
    return group._replace(phase=Phase.PREPARING, entries=entries)


def complete_join(group: GroupState) -> GroupState | None:
    """Return a classic group with its next generation begun. None if no rebalance is being prepared, a member
    has not rejoined, or the group has no members."""
    entries = [entry for entry in group.entries if entry is not None]
    if group.phase is not Phase.PREPARING or not entries or not all(entry.joined for entry in entries):
        return None
    return group._replace(phase=Phase.COMPLETING, epoch=group.epoch + 1)


def choices(group: GroupState, rules: GroupRules) -> tuple[int, ...]:
    """Return the members to which an assignor may give the partition: all members of the group. () if it has none.

    With the cooperative protocol, while a member holds the partition, the choice is that member or nobody (NOBODY): the
    holder gives the partition up first, and joins again (KIP-429)."""
    if rules.protocol is GroupProtocol.COOPERATIVE:
        holders = tuple(one for one in group.members if (entry := group.entries[one]) and entry.holds)
        if holders:
            return (*holders, NOBODY)
    return group.members


def assign(group: GroupState, owner: int, rules: GroupRules) -> GroupState:
    """Return the group after the assignor chose the partition's owner. In a classic group that is the leader's
    SyncGroup, which is written to the log; with KIP-848, the target assignment."""
    if rules.protocol is GroupProtocol.CONSUMER:
        return group._replace(owner=owner)
    entries = tuple(
        entry and entry._replace(joined=False, holds=False, stored=True) for entry in group.entries
    )
    return group._replace(phase=Phase.STABLE, owner=owner, entries=entries, stored_epoch=group.epoch)


def heartbeat(group: GroupState, member: int) -> GroupState:
    """Return the group after a heartbeat of a member, which comes closer to the target assignment (KIP-848,
    `CurrentAssignmentBuilder`).

    The member gets the group's epoch, and also the partition if it is to have it and no member holds it. A
    member that must give the partition up keeps epoch and partition until it has reported that (`revoked`).
    Nothing changes for a member that was removed.
    """
    entry = group.entries[member]
    if entry is None or (entry.holds and group.owner != member):
        return group
    free = not any(one and one.holds for one in group.entries)
    if group.owner == member and free:
        return group.put(member, entry._replace(epoch=group.epoch, since=group.epoch, holds=True))
    return group.put(member, entry._replace(epoch=group.epoch))


def revoked(group: GroupState, member: int) -> GroupState:
    """Return the group after the heartbeat by which a member reports that it has given the partition up (KIP-848). The
    member gets the group's epoch. Nothing changes for a member that was removed."""
    entry = group.entries[member]
    return group if entry is None else group.put(member, entry._replace(epoch=group.epoch, holds=False))


def check_commit(
    group: GroupState, member: int, epoch: int, rules: GroupRules, *, transactional: bool = False
) -> CommitError:
    """Return the coordinator's answer to a commit with this member and epoch (or generation).

    `epoch` NO_EPOCH: the request names neither member nor generation: it comes from an administrator, or from a
    transaction without group metadata. It is accepted if it is `transactional` (a TxnOffsetCommit), or if the group has
    no members. Any other request is accepted without the rule `check_generation`.
    """
    if epoch == NO_EPOCH:
        # Older versions of TxnOffsetCommit have no member: the state of the group is not asked either.
        return CommitError.NONE if transactional or not group.members else CommitError.UNKNOWN_MEMBER_ID
    if not rules.check_generation:
        return CommitError.NONE
    entry = group.entries[member]
    if entry is None:
        return CommitError.UNKNOWN_MEMBER_ID
    if rules.protocol is GroupProtocol.CONSUMER:
        kept = rules.accept_since_assignment and entry.holds and entry.since <= epoch < entry.epoch
        return CommitError.NONE if epoch == entry.epoch or kept else CommitError.STALE_MEMBER_EPOCH
    if epoch != group.epoch:
        return CommitError.ILLEGAL_GENERATION
    if group.phase is Phase.COMPLETING and not transactional:
        return CommitError.REBALANCE_IN_PROGRESS
    return CommitError.NONE


def load_group(group: GroupState, rules: GroupRules) -> GroupState:
    """Return the group as a new coordinator loads it from the log. A KIP-848 group is unchanged. The log of a classic
    group does not have a generation in preparation: new members and a generation without its SyncGroup are lost."""
    if rules.protocol is GroupProtocol.CONSUMER:
        return group
    entries = tuple(
        entry._replace(joined=False, holds=False) if entry is not None and entry.stored else None
        for entry in group.entries
    )
    return group._replace(entries=entries, phase=Phase.STABLE, epoch=group.stored_epoch)


# -- the offsets log ---------------------------------------------------------------------------------------------------


class OffsetRecord(NamedTuple):
    """A record of the partition's committed offset in `__consumer_offsets`, or a transaction marker. `offset` -1: a
    tombstone, or a marker.

    `producer`: member whose transaction it belongs to; NOBODY: none. `marker`: True for a commit marker, False for an
    abort marker, else None. `acked`: the committer got its answer.
    """

    offset: int
    producer: int = NOBODY
    marker: bool | None = None
    acked: bool = False


class OffsetsLog(NamedTuple):
    """The records of one committed offset in `__consumer_offsets`, oldest first. `replicated`: number of records that
    every possible leader has."""

    records: tuple[OffsetRecord, ...] = ()
    replicated: int = 0


class LoadedOffsets(NamedTuple):
    """Offsets that a coordinator loads from the log. `committed` -1: no offset. `pending`: producers with an offset
    in a transaction without marker."""

    committed: int = -1
    pending: tuple[int, ...] = ()


def append_offset(log: OffsetsLog, record: OffsetRecord, *, replicated: bool = True) -> OffsetsLog:
    """Return the log with a record appended. `replicated`: True if all in-sync replicas have it before its sender gets
    an answer."""
    records = (*log.records, record)
    return OffsetsLog(records, len(records) if replicated else log.replicated)


def elect(log: OffsetsLog, kept: int) -> OffsetsLog:
    """Return the log of a new leader that has the first `kept` records, which must include all replicated records."""
    return OffsetsLog(log.records[:kept], kept)


@cache
def load_offsets(log: OffsetsLog) -> LoadedOffsets:
    """Return the offsets that a new coordinator loads from the log (`GroupCoordinatorLoader`,
    `OffsetMetadataManager.replay`)."""
    place, pending = _replay(log.records)
    committed = log.records[place].offset if place >= 0 else -1
    return LoadedOffsets(committed, tuple(sorted(pending)))


def _replay(records: tuple[OffsetRecord, ...]) -> tuple[int, dict[int, int]]:
    """Return the index of the record that decides the committed offset (-1: none), and by producer the index of its
    record that waits for a marker.

    An offset of a transaction counts at its commit marker, unless a later record counts already. A tombstone removes
    the committed offset. After a tombstone the next commit marker counts, even if its offset was written before the
    tombstone."""
    counted = -1
    pending: dict[int, int] = {}
    for place, record in enumerate(records):
        if record.marker is not None:
            ended = pending.pop(record.producer, -1)
            if record.marker:
                counted = max(counted, ended)
        elif record.producer != NOBODY:
            pending[record.producer] = place
        else:
            counted = place if record.offset >= 0 else -1
    return counted, pending


@cache
def compact(log: OffsetsLog) -> OffsetsLog:
    """Return the log without the replicated records that no reader of it needs, as the log cleaner leaves it. Offsets
    of open transactions stay, and so does the order of the remaining records. An offset that a transaction committed
    stays without its marker, as a record outside of transactions."""
    counted, pending = _replay(log.records[: log.replicated])
    places = sorted({counted, *pending.values()} - {-1})
    kept = tuple(
        log.records[place]._replace(producer=NOBODY) if place == counted else log.records[place]
        for place in places
    )
    return OffsetsLog((*kept, *log.records[log.replicated :]), len(kept))
