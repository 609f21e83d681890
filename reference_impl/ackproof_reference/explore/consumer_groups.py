"""Model of a consumer group: two members, one partition with a few records, a coordinator and its offsets log.

A batch is one record. Incidents (`GroupIncidents`) are kinds, not numbers: each may happen any number of times, so a
finding that the search does not reach is impossible whatever that number is. Only the order of epochs is kept, and
replicated records that nobody reads again are compacted at once, so the world is finite. A pause needs no step of its
own: a paused member is one that has not learned yet what the coordinator decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ackproof_reference.explore.group_coordinators import CoordinatorSteps, Step, regress
from ackproof_reference.explore.group_states import (
    DOUBLED,
    REDELIVERED,
    TORN,
    TWO_OWNERS,
    UNDELIVERED,
    ZOMBIE,
    Finding,
    GroupScope,
    LateCommit,
    Member,
    Stage,
    WorldState,
    numbered,
    ranked,
)
from ackproof_reference.explore.model import Action, Group, Model, Row, StoryLine
from ackproof_reference.group_coordinator import (
    NO_EPOCH,
    CommitError,
    Entry,
    GroupState,
    OffsetRecord,
    OffsetsLog,
    Phase,
    check_commit,
    load_offsets,
    revoked,
)
from ackproof_reference.rules import CommitMode, GroupProtocol, GroupRules

Move = tuple[Action, tuple[WorldState, Finding | None]]


def consumer_group(scope: GroupScope) -> Model:
    """Return the model of a consumer group whose members have not started. A search of it reports findings of the
    classes `CLASSES` (`group_states.py`)."""
    world = _World(scope)
    return Model(
        ("state", "finding"),
        (world.first, None),
        [
            Group("steps", (0, 1), world.alike, world.at_rest),
            Group("finding", (1,), check=lambda found: (found,) if found else ()),
        ],
        widths=(20, 5),
        retold=world.retold,
    )


class _World(CoordinatorSteps):
    """Steps and invariants of the model of a consumer group."""

    def __init__(self, scope: GroupScope) -> None:
        super().__init__(scope)
        self.first = WorldState(
            GroupState((None, None)), OffsetsLog(), (Member(), Member()), (False,) * scope.records
        )
        self._strict = replace(scope.rules, check_generation=True)

    def moves(self, state: WorldState, finding: Finding | None) -> Iterator[Move]:
        """Yield each possible step with the state after it. A step that breaks an invariant also leads to a final state
        with the finding. From such a state (`finding` is not None) no step is possible."""
        if finding is not None:
            return
        for actor, text, after, findings in self._steps(state):
            action = Action(actor, text, "" if actor == "coordinator" else "coordinator")
            for one in findings:
                yield action, (self.first, one)
            after = ranked(self._settled(after))
            if after != state:
                yield action, (after, None)

    def alike(self, state: WorldState, finding: Finding | None) -> Iterator[Move]:
        """Yield the steps of `moves`, but with the same resulting state for states that differ only in which member has
        which number."""
        for action, (after, one) in self.moves(state, finding):
            yield action, (numbered(after), one)

    def retold(self, way: Sequence[Row]) -> list[StoryLine]:
        """Return a path through states of `alike` (`way`) as a counterexample, in which each member keeps its number
        from the first step to the last."""
        lines: list[StoryLine] = []
        state = self.first
        for target in way[1:]:
            action, (state, _) = next(
                step for step in self.moves(state, None) if (numbered(step[1][0]), step[1][1]) == target
            )
            lines.append(StoryLine(action, ()))
        return lines

    def _steps(self, state: WorldState) -> Iterator[Step]:
        yield from self._coordinator(state)
        for number, member in enumerate(state.members):
            if not member.alive:
                yield from self._start(state, number)
                continue
            yield from self._group_steps(state, number, member)
            if member.owns:
                yield from self._work(state, number, member)
            if self.incidents.kills:
                yield f"member {number}", "is killed", self._killed(state, number), ()

    # -- members in the group ------------------------------------------------------------------------------------

    def _start(self, state: WorldState, number: int) -> Iterator[Step]:
        who, entry = f"member {number}", state.group.entries[number]
        if entry is None:
            started = state.put(number, alive=True)
            yield from self._with_target(self._joined(started, number), who, "starts and joins the group")
        elif self.rules.static:
            # Its new member id fences what is left of the old one.
            started = state.put(number, alive=True)._replace(late=None)
            yield who, "starts and takes over its static membership", started, ()

    def _group_steps(self, state: WorldState, number: int, member: Member) -> Iterator[Step]:
        """Yield the steps in which a member hears from the coordinator, and acts on it between two batches: it joins
        again, stops, gives the partition up or gets it."""
        who, group, idle = f"member {number}", state.group, member.stage is Stage.IDLE
        entry = group.entries[number]
        if entry is None:
            if idle:
                text = "learns that it lost the partition, and joins again" if member.owns else "joins again"
                yield from self._with_target(self._joined(self._without(state, number), number), who, text)
            return
        may_revoke = idle and not self._commits_first(state, number, member)
        if may_revoke and member.alive:
            left = self._without(state, number).put(number, alive=False, position=0)
            if self.rules.static:  # it sends no LeaveGroup, so that it can come back
                yield who, "stops", left, ()
            yield from self._removed(left, number, who, "leaves the group")
        if self.rules.protocol is GroupProtocol.CONSUMER:
            yield from self._reconcile(state, number, member, entry, may_revoke)
        elif group.phase is Phase.PREPARING and not entry.joined:
            if self.rules.protocol is GroupProtocol.COOPERATIVE or not member.owns:
                yield who, "joins again", self._joined(state, number), ()
            elif may_revoke:
                given_up = self._without(state, number, epoch=member.epoch)
                yield who, "gives the partition up and joins again", self._joined(given_up, number), ()
        elif group.phase is Phase.COMPLETING:
            if self.rules.protocol is GroupProtocol.COOPERATIVE and member.epoch != group.epoch:
                yield who, "learns the new generation", state.put(number, epoch=group.epoch), ()
        elif group.phase is Phase.STABLE:
            yield from self._learn(state, number, member, may_revoke, group.owner == number, group.epoch)

    def _reconcile(
        self, state: WorldState, number: int, member: Member, entry: Entry, may_revoke: bool
    ) -> Iterator[Step]:
        if member.owns and entry.holds and state.group.owner != number:
            if may_revoke:
                group = revoked(state.group, number)
                after = self._without(state._replace(group=group), number, epoch=group.epoch)
                yield f"member {number}", "gives the partition up", after, ()
            return
        yield from self._learn(state, number, member, may_revoke, entry.holds, entry.epoch)

    def _learn(
        self, state: WorldState, number: int, member: Member, may_revoke: bool, owner: bool, epoch: int
    ) -> Iterator[Step]:
        who = f"member {number}"
        if owner and not member.owns:
            if (given := self._assign_to(state, number, epoch)) is not None:
                text = f"is assigned the partition, and begins at offset {given.members[number].position}"
                yield who, text, given, ()
        elif member.owns and not owner:
            if may_revoke:
                after = self._without(state, number, epoch=epoch)
                if self.rules.protocol is GroupProtocol.COOPERATIVE:
                    after = self._joined(after, number)
                yield who, "gives the partition up and joins again", after, ()
        elif member.epoch != epoch:
            yield who, "learns its new epoch", state.put(number, epoch=epoch), ()

    def _without(self, state: WorldState, number: int, epoch: int = NO_EPOCH) -> WorldState:
        """Return the state in which member `number` runs without the partition, with this member epoch."""
        return state.put(number, **Member(alive=True, epoch=epoch)._asdict())

    def _killed(self, state: WorldState, number: int) -> WorldState:
        log = state.log
        if state.members[number].stage is Stage.PENDING:
            log = self._append(log, OffsetRecord(-1, number, marker=False))
        return state.put(number, **Member()._asdict())._replace(log=log)

    # -- records and commits -------------------------------------------------------------------------------------

    def _check(self, state: WorldState, number: int, rules: GroupRules) -> CommitError:
        transactional = self.rules.commit is CommitMode.TRANSACTION
        named = self.rules.group_metadata or rules is self._strict
        epoch = state.members[number].epoch if named else NO_EPOCH
        return check_commit(state.group, number, epoch, rules, transactional=transactional)

    def _commits_first(self, state: WorldState, number: int, member: Member) -> bool:
        """Return True if the member commits before it gives its partition up: it has something to commit, and the
        coordinator would accept it."""
        return member.dirty and self._check(state, number, self.rules) is CommitError.NONE

    def _work(self, state: WorldState, number: int, member: Member) -> Iterator[Step]:
        mode, who, at = self.rules.commit, f"member {number}", member.position
        more = at < self.records
        match member.stage:
            case Stage.IDLE if mode is CommitMode.TRANSACTION and more:
                yield from self._begin(state, number, member)
            case Stage.IDLE if mode is CommitMode.BEFORE and more:
                yield from self._commit(state, number, at + 1, {"stage": Stage.COMMITTED}, {})
            case Stage.IDLE if mode is CommitMode.AT_DELIVERY and more:
                after = state.put(number, stage=Stage.HANDED, position=at + 1, dirty=True)
                yield who, f"is handed record {at}", after, ()
            case Stage.IDLE if mode in (CommitMode.AFTER, CommitMode.TIMED) and more:
                changes: dict[str, object] = {"position": at + 1}
                changes |= {"stage": Stage.PROCESSED} if mode is CommitMode.AFTER else {"dirty": True}
                yield self._process(state, number, at, changes)
            case Stage.HANDED:
                yield self._process(state, number, at - 1, {"stage": Stage.IDLE})
            case Stage.COMMITTED:
                yield self._process(state, number, at, {"stage": Stage.IDLE, "position": at + 1})
            case Stage.PROCESSED:
                idle = {"stage": Stage.IDLE}
                yield from self._commit(state, number, at, idle, idle, refused=idle)
            case Stage.PENDING:
                yield from self._end(state, number, member)
        if member.dirty:
            yield from self._commit(state, number, at, {"dirty": False}, {})

    def _process(self, state: WorldState, number: int, record: int, changes: Mapping[str, object]) -> Step:
        again = ((REDELIVERED, f"record {record} was processed before"),) if state.processed[record] else ()
        after = _processed(state.put(number, **changes), record)
        return f"member {number}", f"processes record {record}", after, again

    def _commit(
        self,
        state: WorldState,
        number: int,
        offset: int,
        accepted: Mapping[str, object],
        unknown: Mapping[str, object],
        refused: Mapping[str, object] | None = None,
    ) -> Iterator[Step]:
        who, text = f"member {number}", f"commits offset {offset}"
        error = self._check(state, number, self.rules)
        if error is not CommitError.NONE:
            if refused is not None:
                yield who, f"{text}: {error.name}", state.put(number, **refused), ()
            return
        taken, findings = self._accept(state, number, offset)
        acked = self._append(state.log, OffsetRecord(offset, acked=True))
        yield who, text, taken.put(number, **accepted)._replace(log=acked), findings
        if self.incidents.lost_answers:
            silent = self._append(state.log, OffsetRecord(offset))
            told = f"{text}: it is written, and the answer gets lost"
            yield who, told, state.put(number, **unknown)._replace(log=silent), ()
            yield who, f"{text}: the request gets lost", state.put(number, **unknown), ()
            if self.incidents.late_requests and state.late is None:
                late = LateCommit(number, state.members[number].epoch, offset)
                told = f"{text}: the request stays under way, and the member gives up"
                yield who, told, state.put(number, **unknown)._replace(late=late), ()

    def _accept(self, state: WorldState, number: int, offset: int) -> tuple[WorldState, tuple[Finding, ...]]:
        """Return the state after a commit of member `number` was accepted: other members that have the partition are
        marked as `rival`. Also return the findings that the commit shows: a zombie's commit, two owners, and (without
        transactions) an offset that went back."""
        member, findings = state.members[number], []
        error = self._check(state, number, self._strict)
        if error not in (CommitError.NONE, CommitError.REBALANCE_IN_PROGRESS):
            findings.append((ZOMBIE, f"a commit of member {number} is accepted, whose generation is over"))
        if self.rules.commit is not CommitMode.TRANSACTION:
            findings += regress(state.committed, offset)
        if member.rival:
            findings.append((TWO_OWNERS, "two members have accepted commits of assignments at the same time"))
        for other, one in enumerate(state.members):
            if other != number and one.owns:
                state = state.put(other, rival=True)
        return state, tuple(findings)

    # -- transactions ----------------------------------------------------------------------------------------------

    def _begin(self, state: WorldState, number: int, member: Member) -> Iterator[Step]:
        at = member.position
        who, text = f"member {number}", f"copies record {at} and sends offset {at + 1} in a transaction"
        error = self._check(state, number, self.rules)
        if error is not CommitError.NONE:
            yield who, f"{text}: {error.name}, so it aborts", self._back(state, number), ()
            return
        worked = state.put(number, stage=Stage.PENDING, position=at + 1)
        taken, findings = self._accept(worked, number, at + 1)
        log = self._append(state.log, OffsetRecord(at + 1, number))
        yield who, text, taken._replace(log=log), findings
        if self.incidents.late_requests and state.late is None and not self.rules.epoch_per_transaction:
            late = LateCommit(number, member.epoch, at + 1)
            told = f"{text}; one copy of the request stays under way"
            yield who, told, taken._replace(log=log, late=late), findings

    def _end(self, state: WorldState, number: int, member: Member) -> Iterator[Step]:
        who, record = f"member {number}", member.position - 1
        marked = self._append(state.log, OffsetRecord(-1, number, marker=True, acked=True))
        after = _processed(state.put(number, stage=Stage.IDLE)._replace(log=marked), record)
        findings: tuple[Finding, ...] = ()
        if state.processed[record]:
            twice = f"record {record} is in the output twice"
            findings = ((DOUBLED, twice), (REDELIVERED, f"record {record} was processed before"))
        findings += regress(state.committed, after.committed)
        yield who, "commits the transaction", after, findings
        if self.incidents.lost_answers or self.incidents.expiries:
            log = self._append(state.log, OffsetRecord(-1, number, marker=False))
            aborted = state.put(number, stage=Stage.IDLE)._replace(log=log)
            text = "cannot commit the transaction in time, which is aborted"
            yield who, text, self._back(aborted, number), ()

    def _back(self, state: WorldState, number: int) -> WorldState:
        """Return the state in which a member goes back to the committed offset. Exception (`stable_fetch`): OffsetFetch
        has to wait for the marker of an open transaction. Then the position is the end of the log, so that the member
        takes no record."""
        loaded = load_offsets(state.log)
        waits = self.rules.stable_fetch and loaded.pending
        return state.put(number, position=self.records if waits else max(loaded.committed, 0))

    # -- what must hold at rest ------------------------------------------------------------------------------------

    def at_rest(self, state: WorldState, finding: Finding | None) -> Iterator[Finding]:
        """Yield the findings of a state that no later step of a member can undo. The search calls this for every state;
        a final state (`finding` is not None) has none.

        * UNDELIVERED: a record is below the committed offset, and no member has processed it or will process it.
        * TORN (only with transactions): such a record is not in the output. Or the output has a record at or above the
          committed offset, although the partition's owner has reached the end and is idle."""
        if finding is not None:
            return
        committed = state.committed
        for record in range(max(committed, 0)):
            if not state.processed[record] and not any(_will_process(one, record) for one in state.members):
                past = f"the group has committed past record {record}"
                yield UNDELIVERED, f"{past}, and no member will process it"
                if self.rules.commit is CommitMode.TRANSACTION:
                    yield TORN, f"{past}, which is not in the output"
        if self.rules.commit is not CommitMode.TRANSACTION or not any(state.processed[max(committed, 0) :]):
            return
        owners = [number for number, one in enumerate(state.members) if one.alive and one.owns]
        if owners != [state.group.owner] or state.group.entries[owners[0]] is None:
            return
        owner = state.members[owners[0]]
        if owner.stage is Stage.IDLE and owner.position == self.records:
            yield TORN, f"the output has what is not committed: the group stays at offset {max(committed, 0)}"


def _will_process(member: Member, record: int) -> bool:
    if not member.alive or not member.owns:
        return False
    handed = member.stage in (Stage.HANDED, Stage.PENDING) and member.position == record + 1
    return handed or member.position <= record


def _processed(state: WorldState, record: int) -> WorldState:
    return state._replace(processed=tuple(one or at == record for at, one in enumerate(state.processed)))
