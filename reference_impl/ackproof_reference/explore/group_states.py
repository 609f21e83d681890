"""The states of a consumer group's small world, and which of them are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, cast

from ackproof_reference.explore.model import Row
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
"""Classes of findings, as docs/groups.md defines them."""


class GroupIncidents(NamedTuple):
    """What may go wrong, any number of times."""

    kills: bool = False
    """A member is killed."""
    expiries: bool = False
    """The coordinator removes a member that lives: it was paused, cut off or slow."""
    lost_answers: bool = False
    """An answer does not reach its member, or the request does not reach the coordinator."""
    late_requests: bool = False
    """A commit without an answer is taken by the coordinator after later ones."""
    moves: bool = False
    """The coordinator moves to another broker."""
    lossy_log: bool = False
    """Acknowledged records of the offsets log may be gone when the coordinator moves."""


class Stage(IntEnum):
    """What a member is doing."""

    IDLE = 0
    HANDED = 1
    """It was handed the record before its position, and has not processed it."""
    PROCESSED = 2
    """It has processed the record before its position, and commits."""
    COMMITTED = 3
    """It has committed past the record at its position, and has not processed it."""
    PENDING = 4
    """Its transaction has the output and the offset of the record before its position."""


class Member(NamedTuple):
    """A member as it knows itself. `dirty`: it has something to commit. `rival`: another member had a commit
    accepted during this assignment."""

    alive: bool = False
    epoch: int = NO_EPOCH
    owns: bool = False
    position: int = 0
    stage: Stage = Stage.IDLE
    dirty: bool = False
    rival: bool = False


class LateCommit(NamedTuple):
    """A commit request that is still under way."""

    member: int
    epoch: int
    offset: int


class WorldState(NamedTuple):
    """A state of the world. `processed`: for each record, whether it was, with an effect. `late`: a request under
    way."""

    group: GroupState
    log: OffsetsLog
    members: tuple[Member, ...]
    processed: tuple[bool, ...]
    late: LateCommit | None = None

    def put(self, number: int, **changes: object) -> WorldState:
        """Return the state in which fields of a member have changed."""
        members = list(self.members)
        members[number] = members[number]._replace(**changes)  # type: ignore[arg-type]
        return self._replace(members=tuple(members))

    @property
    def committed(self) -> int:
        return load_offsets(self.log).committed


@dataclass(frozen=True)
class GroupScope:
    """A world of a consumer group of two members: its rules, what may go wrong, and the number of records."""

    rules: GroupRules
    incidents: GroupIncidents
    records: int = 2


def row_of(state: WorldState, finding: tuple[str, str] | None = None) -> Row:
    """Return the cells of a state. `finding`: class and sentence, of a state from which nothing goes on."""
    return (state.group, state.log, *state.members, state.processed, state.late, finding)


def state_of(row: Sequence[object]) -> WorldState:
    """Return the state with these cells."""
    group, log, *members = row[:-3]
    return WorldState(
        cast("GroupState", group),
        cast("OffsetsLog", log),
        tuple(cast("list[Member]", members)),
        cast("tuple[bool, ...]", row[-3]),
        cast("LateCommit | None", row[-2]),
    )


FINDING = -1
"""Index of the cell with a finding."""


def numbered(row: Row) -> Row:
    """Return the row of two members, or the one with their numbers exchanged: the same one for both."""
    if row[FINDING] is not None:
        return row
    state = state_of(row)
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
        return row
    other = {0: 1, 1: 0, NOBODY: NOBODY}
    records = tuple(record._replace(producer=other[record.producer]) for record in log.records)
    return (
        group._replace(entries=group.entries[::-1], owner=other[group.owner]),
        log._replace(records=records),
        second,
        first,
        processed,
        late and late._replace(member=other[late.member]),
        None,
    )


def epochs_of(state: WorldState) -> tuple[object, ...]:
    """Return all that `ranked` depends on."""
    group = state.group
    entries = [(entry.epoch, entry.since) if entry else None for entry in group.entries]
    return (group.epoch, group.stored_epoch, *entries, *(one.epoch for one in state.members), state.late)


def ranked(state: WorldState) -> WorldState:
    """Return the state with its epochs numbered by their order. Only their order is ever compared."""
    group, late = state.group, state.late
    epochs = {group.epoch, group.stored_epoch, *(member.epoch for member in state.members)}
    epochs |= {epoch for entry in group.entries if entry for epoch in (entry.epoch, entry.since)}
    epochs |= {late.epoch} if late else set()
    rank = {epoch: number for number, epoch in enumerate(sorted(epochs - {NO_EPOCH}))}
    rank[NO_EPOCH] = NO_EPOCH
    if all(epoch == number for epoch, number in rank.items()):
        return state
    entries = tuple(
        entry and entry._replace(epoch=rank[entry.epoch], since=rank[entry.since]) for entry in group.entries
    )
    ranked = group._replace(epoch=rank[group.epoch], stored_epoch=rank[group.stored_epoch], entries=entries)
    members = tuple(member._replace(epoch=rank[member.epoch]) for member in state.members)
    return state._replace(group=ranked, members=members, late=late and late._replace(epoch=rank[late.epoch]))
