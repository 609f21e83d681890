"""Steps of the coordinator in the model of a consumer group."""

from __future__ import annotations

from collections.abc import Iterator

from ackproof_reference.explore.group_states import (
    LOST_COMMIT,
    REGRESSED,
    Finding,
    GroupScope,
    LateCommit,
    Stage,
    WorldState,
)
from ackproof_reference.group_coordinator import (
    NO_EPOCH,
    NOBODY,
    CommitError,
    OffsetRecord,
    OffsetsLog,
    Phase,
    append_offset,
    assign,
    check_commit,
    choices,
    compact,
    complete_join,
    elect,
    heartbeat,
    join,
    leave,
    load_group,
    load_offsets,
)
from ackproof_reference.rules import CommitMode, GroupProtocol

Step = tuple[str, str, WorldState, tuple[Finding, ...]]
"""A step of the model: its actor, a sentence, the state after the step, and its findings, each as (class, sentence)."""


class CoordinatorSteps:
    """Steps of the coordinator in the model of a consumer group, and its answers to members' requests."""

    def __init__(self, scope: GroupScope) -> None:
        self.rules, self.incidents, self.records = scope.rules, scope.incidents, scope.records

    def _settled(self, state: WorldState) -> WorldState:
        """Return the state after the steps whose time makes no difference, and which are therefore taken at once.
        Members without the partition join again and learn their epoch; records that nobody reads again are
        compacted."""
        group, members = state.group, state.members
        classic = self.rules.protocol is not GroupProtocol.CONSUMER
        for number, entry in enumerate(group.entries):
            if entry is None or members[number].owns:
                continue
            alive = members[number].alive
            if group.phase is Phase.PREPARING and alive and not entry.joined:
                group = join(group, number, self.rules)
            elif not classic and not entry.holds and entry.epoch != group.epoch:
                group = group.put(number, entry._replace(epoch=group.epoch))
            if alive and members[number].epoch != group.epoch:
                member = members[number]._replace(epoch=group.epoch)
                members = (*members[:number], member, *members[number + 1 :])
        return state._replace(group=group, members=members, log=compact(state.log))

    # -- the coordinator ------------------------------------------------------------------------------------------

    def _coordinator(self, state: WorldState) -> Iterator[Step]:
        group, who = state.group, "coordinator"
        for number in group.members:
            alive = state.members[number].alive
            if not alive or self.incidents.expiries:
                why = "whose session has ended" if alive else "which is gone"
                yield from self._removed(state, number, who, f"removes member {number}, {why}")
        if self.rules.protocol is GroupProtocol.CONSUMER:
            for number in group.members:
                yield from self._heartbeat(state, number)
        elif (begun := complete_join(group)) is not None:
            if self.rules.protocol is GroupProtocol.COOPERATIVE:
                yield who, "has all members: a generation begins", state._replace(group=begun), ()
            else:
                yield from self._assign(state._replace(group=begun), "has all members")
        elif group.phase is Phase.COMPLETING:
            yield from self._assign(state, "has the assignment")
        if self.incidents.moves:
            yield from self._move(state)
        if len(state.log.records) > state.log.replicated:
            replicated = state.log._replace(replicated=len(state.log.records))
            yield who, "has its log on all replicas", state._replace(log=replicated), ()
        if state.late is not None:
            yield from self._late(state, state.late)

    def _assign(self, state: WorldState, text: str) -> Iterator[Step]:
        for owner in choices(state.group, self.rules):
            given = state._replace(group=assign(state.group, owner, self.rules))
            if owner == NOBODY:
                yield "coordinator", f"{text}: nobody has the partition yet", given, ()
            elif given.members[owner].owns:
                yield "coordinator", f"{text}: member {owner} keeps the partition", given, ()
            else:
                told, after = f"{text}: member {owner} has the partition", None
                if given.members[owner].alive:
                    after = self._assign_to(given, owner, given.group.epoch)
                if after is not None:
                    told = f"{told}, and begins at offset {after.members[owner].position}"
                yield "coordinator", told, after or given, ()

    def _heartbeat(self, state: WorldState, number: int) -> Iterator[Step]:
        after = heartbeat(state.group, number)
        member, entry = state.members[number], after.entries[number]
        if not member.alive or entry is None or after == state.group:
            return
        answered = state._replace(group=after)
        if entry.holds and not member.owns:
            if (given := self._assign_to(answered, number, entry.epoch)) is not None:
                text = f"gives member {number} the partition, which begins at offset {given.members[number].position}"
                yield "coordinator", text, given, ()
        elif member.owns:
            yield "coordinator", f"gives member {number} a new epoch", answered, ()

    def _assign_to(self, state: WorldState, number: int, epoch: int) -> WorldState | None:
        """Return the state in which a member has the partition and knows the committed offset (0 if there is none).
        `epoch`: the member epoch or generation that the member gets. None while OffsetFetch waits for a transaction
        marker (`stable_fetch`)."""
        loaded = load_offsets(state.log)
        if self.rules.stable_fetch and loaded.pending:
            return None
        at = max(loaded.committed, 0)
        return state.put(number, epoch=epoch, owns=True, position=at, rival=False)

    def _removed(self, state: WorldState, number: int, who: str, text: str) -> Iterator[Step]:
        late = None if state.late is not None and state.late.member == number else state.late
        left = state._replace(group=leave(state.group, number, self.rules), late=late)
        yield from self._with_target(left, who, text)

    def _with_target(self, state: WorldState, who: str, text: str) -> Iterator[Step]:
        """Yield a step to `state`, or steps to variants of it. `who`: its actor. `text`: its sentence.

        In a group of KIP-848 with members, the assignor also chooses an owner in this step. One step is yielded for
        each possible owner, to the state with this target assignment. Otherwise one step to `state` itself is
        yielded."""
        targets = choices(state.group, self.rules) if self.rules.protocol is GroupProtocol.CONSUMER else ()
        for owner in targets:
            group = assign(state.group, owner, self.rules)
            yield who, f"{text}; member {owner} is to have the partition", state._replace(group=group), ()
        if not targets:
            yield who, text, state, ()

    def _move(self, state: WorldState) -> Iterator[Step]:
        group = load_group(state.group, self.rules)
        for kept in range(state.log.replicated, len(state.log.records) + 1):
            log = elect(state.log, kept)
            findings: list[Finding] = []
            if not self.rules.load_offsets:
                log = OffsetsLog()
            elif self.rules.load_shift and (held := load_offsets(log).committed) >= 0:
                shifted = min(self.records, max(0, held + self.rules.load_shift))
                log = append_offset(log, OffsetRecord(shifted))
            if any(record.acked for record in state.log.records[kept:]):
                findings.append((LOST_COMMIT, "a commit that was acknowledged is in no log"))
            if load_offsets(log).committed < state.committed:
                findings.append((REGRESSED, "the new coordinator has a lower offset"))
            less = " and lacks the newest commits" if kept < len(state.log.records) else ""
            after = state._replace(group=group, log=log)
            yield "coordinator", f"is another broker now{less}", after, tuple(findings)

    def _late(self, state: WorldState, late: LateCommit) -> Iterator[Step]:
        transactional = self.rules.commit is CommitMode.TRANSACTION
        epoch = late.epoch if not transactional or self.rules.group_metadata else NO_EPOCH
        error = check_commit(state.group, late.member, epoch, self.rules, transactional=transactional)
        if error is not CommitError.NONE:
            return
        text = f"takes a commit of offset {late.offset} by member {late.member} that was under way"
        if not transactional:
            log = self._append(state.log, OffsetRecord(late.offset))
            findings = regress(state.committed, late.offset)
            yield "coordinator", text, state._replace(log=log, late=None), findings
        elif state.members[late.member].stage is Stage.PENDING and not self.rules.epoch_per_transaction:
            log = self._append(state.log, OffsetRecord(late.offset, late.member))
            text += ", into its present transaction"
            yield "coordinator", text, state._replace(log=log, late=None), ()

    def _joined(self, state: WorldState, number: int) -> WorldState:
        return state._replace(group=join(state.group, number, self.rules, holds=state.members[number].owns))

    def _append(self, log: OffsetsLog, record: OffsetRecord) -> OffsetsLog:
        """Return the log with a record appended. With the incident `lossy_log`, its newest record does not count as
        replicated (`OffsetsLog.replicated`), so a new coordinator may lack it. With transactions this holds for the two
        newest records."""
        if not self.incidents.lossy_log:
            return append_offset(log, record)
        longer = append_offset(log, record, replicated=False)
        endangered = 2 if self.rules.commit is CommitMode.TRANSACTION else 1
        return longer._replace(replicated=max(longer.replicated, len(longer.records) - endangered))


def regress(before: int, after: int) -> tuple[Finding, ...]:
    """Return the finding for a committed offset that changes from `before` to `after`; () if `after` is not lower."""
    if after >= before:
        return ()
    return ((REGRESSED, f"the group's offset goes back from {before} to {after}"),)
