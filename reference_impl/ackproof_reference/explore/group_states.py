"""The states of the model of a consumer group, and a normal form for states that behave alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from ackproof_reference.group_coordinator import NO_EPOCH, NOBODY, GroupState, OffsetsLog, load_offsets
from ackproof_reference.rules import GroupRules

UNDELIVERED = "undelivered"
REDELIVERED = "redelivered"
TORN = "torn-output"
DOUBLED = "doubled-output"
REGRESSED = "regressed-commit"
LOST_COMMIT = "lost-commit"
ZOMBIE = "zombie-commit"
TWO_OWNERS = "two-owners"
CLASSES = (UNDELIVERED, REDELIVERED, TORN, DOUBLED, REGRESSED, LOST_COMMIT, ZOMBIE, TWO_OWNERS)
"""Classes of findings of the model of a consumer group, as docs/groups.md defines them."""
Finding: TypeAlias = tuple[str, str]
"""A broken invariant: its class (one of `CLASSES`), and a sentence for readers."""


class GroupIncidents(NamedTuple):
    """Kinds of incidents. True: incidents of this kind may happen, any number of times. False: they never happen."""

    kills: bool = False
    """A member is killed."""
    expiries: bool = False
    """The coordinator removes a member that lives: it was paused, cut off or slow."""
    lost_answers: bool = False
    """An answer does not reach its member, or the request does not reach the coordinator."""
    late_requests: bool = False
    """A commit request, or a copy of it, stays in flight, and the coordinator takes it after later commits."""
    moves: bool = False
    """Another broker becomes the group's coordinator, and loads the group from the log."""
    lossy_log: bool = False
    """The newest records of `__consumer_offsets` may be missing at a new coordinator, although they were
    acknowledged."""


class Stage(IntEnum):
    """Progress of a member with one record, through getting, processing and committing it; IDLE has no such record.

    A member's position moves past a record when it gets the record, so the record is the one before the position.
    Exception: COMMITTED, where the member commits first (`CommitMode.BEFORE`), and its position moves when it processes
    the record."""

    IDLE = 0
    """The member is between two records."""
    HANDED = 1
    """The member got the record before its position, and has not processed it."""
    PROCESSED = 2
    """The member has processed the record before its position, and has yet to commit it."""
    COMMITTED = 3
    """The member has committed past the record at its position, and has not processed it."""
    PENDING = 4
    """The member's open transaction has the output and the offset of the record before its position."""


class Member(NamedTuple):
    """A group member's own state. `epoch`: the member epoch or generation that it knows; NO_EPOCH: it is in no
    generation. `owns`: it has the partition assigned. `position`: number of the record that it takes next. `stage`:
    its progress with one record.

    `dirty`: it has something to commit: processed records, or with AT_DELIVERY those that it got. `rival`: another
    member had a commit accepted during this assignment."""

    alive: bool = False
    epoch: int = NO_EPOCH
    owns: bool = False
    position: int = 0
    stage: Stage = Stage.IDLE
    dirty: bool = False
    rival: bool = False


class LateCommit(NamedTuple):
    """A commit request, or a copy of one, that its member has sent and the coordinator has not received. The
    coordinator may take it at any later time. `epoch`: member epoch or generation in the request."""

    member: int
    epoch: int
    offset: int


class WorldState(NamedTuple):
    """A state of the model of a consumer group. `processed`: for each record, True if a member has processed it; with
    transactions, only if the transaction was committed. `late`: a commit request in flight, or None."""

    group: GroupState
    log: OffsetsLog
    members: tuple[Member, ...]
    processed: tuple[bool, ...]
    late: LateCommit | None = None

    def put(self, number: int, **changes: object) -> WorldState:
        """Return the state with other values (`changes`) in fields of member `number`."""
        members = list(self.members)
        members[number] = members[number]._replace(**changes)  # type: ignore[arg-type]
        return self._replace(members=tuple(members))

    @property
    def committed(self) -> int:
        return load_offsets(self.log).committed


@dataclass(frozen=True)
class GroupScope:
    """Size of the model of a consumer group with two members: its rules, the incidents that may happen, and the number
    of records."""

    rules: GroupRules
    incidents: GroupIncidents
    records: int = 2


def numbered(state: WorldState) -> WorldState:
    """Return a normal form of the state: states that differ only in which member has number 0 give the same result."""
    group, log, (first, second), processed, late = state
    keys = [
        (
            entry is not None,
            entry or (),
            member,
            group.owner == number,
            late is not None and late.member == number,
        )
        for number, (entry, member) in enumerate(zip(group.entries, state.members, strict=True))
    ]
    if keys[0] >= keys[1]:
        return state
    other = {0: 1, 1: 0, NOBODY: NOBODY}
    records = tuple(record._replace(producer=other[record.producer]) for record in log.records)
    return WorldState(
        group._replace(entries=group.entries[::-1], owner=other[group.owner]),
        log._replace(records=records),
        (second, first),
        processed,
        late and late._replace(member=other[late.member]),
    )


def ranked(state: WorldState) -> WorldState:
    """Return the state with its epochs replaced by their rank, because only their order is ever compared."""
    group, late = state.group, state.late
    epochs = {NO_EPOCH, group.epoch, group.stored_epoch, *(member.epoch for member in state.members)}
    for entry in group.entries:
        if entry is not None:
            epochs |= {entry.epoch, entry.since}
    if late is not None:
        epochs.add(late.epoch)
    if max(epochs) == len(epochs) - 2:
        return state
    rank = {epoch: number for number, epoch in enumerate(sorted(epochs), NO_EPOCH)}
    entries = tuple(
        entry and entry._replace(epoch=rank[entry.epoch], since=rank[entry.since]) for entry in group.entries
    )
    group = group._replace(epoch=rank[group.epoch], stored_epoch=rank[group.stored_epoch], entries=entries)
    members = tuple(member._replace(epoch=rank[member.epoch]) for member in state.members)
    return state._replace(group=group, members=members, late=late and late._replace(epoch=rank[late.epoch]))
