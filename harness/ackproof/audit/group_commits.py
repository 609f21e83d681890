"""Commits of a group for one partition: lost-commit, regressed-commit, zombie-commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ackproof.audit.group_log import GroupLog, commit_keys
from ackproof.audit.group_regress import Observation, Regression, find_by_log, find_by_time
from ackproof.audit.group_sources import NO_OFFSET, Event, GroupSources
from ackproof.audit.outputs import FindingsWriter
from ackproof.ledgers.rows import Bools, Ints, Rows
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import text_array
from ackproof.rundir.groups import CommitResult, LogDecision, MembershipEvent
from ackproof.rundir.partition import TopicPartition

COMMITTED: Mapping[str, str] = {
    "member": "i4",
    "number": "i8",
    "generation": "i4",
    "generation_after": "i4",
    "offset": "i8",
    "begun_ns": "i8",
    "done_ns": "i8",
    "result": "i1",
    "transaction": "?",
}
_FOREVER = int(np.iinfo(np.int64).max)


def audit_commits(
    sources: GroupSources,
    place: TopicPartition,
    rows: Rows,
    events: Sequence[Event],
    every_event: Sequence[Event],
    log: GroupLog,
    findings: FindingsWriter,
) -> Counter[str]:
    """Find commits that the coordinator lost, or accepted wrongly. Return numbers of `GroupCounts` by name.

    `rows`: commits of the partition (`COMMITTED`). `events`: of the partition; `every_event`: of all of them. Raises
    OSError.
    """
    accepted = rows.take(np.flatnonzero(rows["result"] == CommitResult.ACCEPTED))
    if Anomaly.LOST_COMMIT in sources.counted:
        _find_lost(place, accepted, log.rows(place), findings)
    if Anomaly.REGRESSED_COMMIT in sources.counted:
        _find_regressed(sources, place, rows, accepted, events, log, findings)
    if Anomaly.ZOMBIE_COMMIT in sources.counted:
        _find_zombies(sources, place, rows, every_event, log, findings)
    results = [(rows["result"] == result).sum() for result in CommitResult]
    return Counter(dict(zip(("accepted", "refused", "unknown"), map(int, results), strict=True)))


def _find_lost(place: TopicPartition, accepted: Rows, log: Rows, findings: FindingsWriter) -> None:
    kept = log.take(np.flatnonzero(~log.flags("removed") & (log["decision"] != LogDecision.ABORTED)))
    named = kept["member"] >= 0
    there = _are_in(commit_keys(accepted), commit_keys(kept)[named])
    there |= _are_in(
        accepted.ints("offset"), kept.ints("offset")[~named]
    )  # a commit without metadata may be this one
    lost = np.flatnonzero(~there)
    detail = [
        f"commit {number} of member {member} was accepted, and no log has it"
        for number, member in zip(
            accepted["number"][lost].tolist(), accepted["member"][lost].tolist(), strict=True
        )
    ]
    findings.add(place, Anomaly.LOST_COMMIT, accepted, lost, detail=text_array(detail))


def _find_regressed(
    sources: GroupSources,
    place: TopicPartition,
    rows: Rows,
    accepted: Rows,
    events: Sequence[Event],
    log: GroupLog,
    findings: FindingsWriter,
) -> None:
    told = _list_observations(events) if sources.stable_positions else []
    if sources.committed is not None:
        told.append(Observation(_FOREVER, _FOREVER, sources.committed.get(place, NO_OFFSET), -1))
    resets = [(event.t_ns, event.position) for event in events if event.event == MembershipEvent.RESET]
    found: list[Regression]
    if sources.history >= 0:
        found = find_by_log(accepted, log.effective(place), told, resets)
    else:
        unknown = rows.take(np.flatnonzero(rows["result"] == CommitResult.UNKNOWN))
        others = log.rows(place)
        others = others.take(np.flatnonzero(~_are_in(commit_keys(others), commit_keys(accepted))))
        values = np.concatenate([unknown.ints("offset"), _values(others)])
        begun = np.concatenate([unknown.ints("begun_ns"), np.zeros(len(others), np.int64)])
        found = find_by_time(accepted, told, resets, (begun, values))
    if not found:
        return
    at = np.array([entry.commit for entry in found], np.int64)
    members, numbers = accepted["member"][at].tolist(), accepted["number"][at].tolist()
    detail = [
        f"commit {number} of member {member} was accepted, and {entry.how}"
        for entry, member, number in zip(found, members, numbers, strict=True)
    ]
    findings.add(place, Anomaly.REGRESSED_COMMIT, accepted, at, detail=text_array(detail))


def _are_in(values: Ints, others: Ints) -> Bools:
    return np.isin(values, others, kind="sort")


def _values(log: Rows) -> Ints:
    values: Ints = np.where(log.flags("removed"), NO_OFFSET, log.ints("offset"))
    return values


def _list_observations(events: Sequence[Event]) -> list[Observation]:
    """Return what members were told of the committed offset. Each asked after its last assignment."""
    found: list[Observation] = []
    assigned: dict[int, int] = {}
    for event in events:
        if event.event == MembershipEvent.ASSIGNED:
            assigned[event.member] = event.t_ns
        elif event.event == MembershipEvent.POSITION and event.member in assigned:
            found.append(Observation(assigned[event.member], event.t_ns, event.position, event.member))
    return found


@dataclass(frozen=True)
class _Accepted:
    """Commits that the log has, with the generation that each was sent with. `row`: in the ledger."""

    row: Ints
    position: Ints
    generation: Ints


def _find_zombies(
    sources: GroupSources,
    place: TopicPartition,
    rows: Rows,
    events: Sequence[Event],
    log: GroupLog,
    findings: FindingsWriter,
) -> None:
    found = _join_log(rows, log.effective(place))
    newest, there = _latest(log.generations, found.position)
    alive, any_alive = _latest(log.living, found.position)
    by_members = np.full(len(found.row), sources.consumer_protocol) | (any_alive & (alive > 0))
    over: dict[int, str] = {}
    for at in np.flatnonzero(~by_members & there & (found.generation < newest)).tolist():
        over.setdefault(int(found.row[at]), f"generation {newest[at]} had begun")
    if by_members.any():
        _compare_epochs(sources, place, rows, events, log, found, by_members, over)
    which = np.array(sorted(over), np.int64)
    generation = dict(zip(found.row.tolist(), found.generation.tolist(), strict=True))
    detail = [
        f"commit {number} of member {member} in generation {generation[at]} was accepted after {over[at]}"
        for at, number, member in zip(
            which.tolist(), rows["number"][which].tolist(), rows["member"][which].tolist(), strict=True
        )
    ]
    findings.add(place, Anomaly.ZOMBIE_COMMIT, rows, which, detail=text_array(detail))


def _join_log(rows: Rows, log: Rows) -> _Accepted:
    """Return the records of the log that commits in the ledger wrote, where the sent generation is known.

    A plain commit has the newest generation that its member can have sent. A member that joined again during the call
    has a lower one, and shows nothing.
    """
    log = log.take(np.flatnonzero((log["member"] >= 0) & ~log.flags("removed")))
    keys = commit_keys(rows)
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], wanted := commit_keys(log))
    at = order[np.minimum(at, len(order) - 1)] if len(order) else np.zeros(len(log), np.int64)
    before, after = rows.ints("generation"), rows.ints("generation_after")
    sent = np.where(rows.flags("transaction"), before, np.where(after >= before, after, -1))
    kept = (keys[at] == wanted) & (sent[at] >= 0) if len(rows) else np.zeros(len(log), np.bool_)
    return _Accepted(at[kept], log.ints("log_offset")[kept], sent[at[kept]])


def _latest(history: tuple[Ints, Ints], position: Ints) -> tuple[Ints, Bools]:
    """Return the value before each position, and whether there is one."""
    at = np.searchsorted(history[0], position) - 1
    there: Bools = at >= 0
    if not len(history[0]):
        return np.zeros(len(position), np.int64), there
    return history[1][np.maximum(at, 0)], there


def _compare_epochs(
    sources: GroupSources,
    place: TopicPartition,
    rows: Rows,
    events: Sequence[Event],
    log: GroupLog,
    found: _Accepted,
    which: Bools,
    over: dict[int, str],
) -> None:
    """Add commits whose member epoch was over to `over`. `which`: those of groups by KIP-848."""
    names, name = _name_committers(rows, events)
    for number, who in enumerate(names):
        if (epochs := log.members.get(who)) is None:
            continue
        own = np.flatnonzero(which & (name[found.row] == number))
        at = np.searchsorted(np.array(epochs.positions), found.position[own]) - 1
        epoch = np.array(epochs.epochs)[at]
        for entry in np.flatnonzero(
            (at >= 0) & ((epoch == _LEFT) | (found.generation[own] < epoch))
        ).tolist():
            row, position = int(found.row[own[entry]]), int(found.position[own[entry]])
            sent, last = int(found.generation[own[entry]]), int(at[entry])
            if epochs.epochs[last] == _LEFT:
                over.setdefault(row, "its member had left")
            elif not (sources.assignment_epochs and _may_commit(place, who, log, last, position, sent)):
                over.setdefault(row, f"its member had epoch {epochs.epochs[last]}")


_LEFT = -1


def _may_commit(
    place: TopicPartition, name: str, log: GroupLog, number: int, position: int, sent: int
) -> bool:
    """Return True if Kafka 4.3 accepts an older epoch: it is not older than the assignment of the partition.

    The log does not show partitions that a member has yet to revoke: a partition that it does not have any more counts
    as its own until another member has it.
    """
    epochs = log.members[name]
    if (since := epochs.assigned[number].get(place)) is not None:
        return since <= sent
    last = next((at for at in range(number, -1, -1) if place in epochs.assigned[at]), None)
    if last is None or epochs.assigned[last][place] > sent:
        return False
    for other, its in log.members.items():
        if other != name and any(
            epochs.positions[last] < at < position and place in owned
            for at, owned in zip(its.positions, its.assigned, strict=True)
        ):
            return False
    return True


def _name_committers(rows: Rows, events: Sequence[Event]) -> tuple[list[str], Ints]:
    """Return member ids, and for each commit the number of the id with which it was sent; -1 if the id may have changed
    meanwhile."""
    names = sorted({event.member_id for event in events if event.member_id})
    code = {name: number for number, name in enumerate(names)}
    found = np.full(len(rows), -1, np.int64)
    for member in sorted({event.member for event in events}):
        named = [event for event in events if event.member == member and event.member_id]
        times = np.array([event.t_ns for event in named], np.int64)
        codes = np.array([code[event.member_id] for event in named], np.int64)
        own = np.flatnonzero((rows["member"] == member) & (rows["done_ns"] >= 0))
        first = np.searchsorted(times, rows["begun_ns"][own], "right") - 1
        last = np.searchsorted(times, rows["done_ns"][own], "right") - 1
        known = first >= 0
        own, first, last = own[known], first[known], last[known]
        found[own] = np.where(codes[first] == codes[last], codes[first], -1) if len(own) else -1
    return names, found
