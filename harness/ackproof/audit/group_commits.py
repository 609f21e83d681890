"""Commits of a group for one partition, which `group_units` audits: lost, regressed and zombie commits.

A commit is lost if the coordinator accepted it and no log of `__consumer_offsets` has it. It regressed if a lower
offset was in force afterwards, or the coordinator returned a lower one, and no reset or concurrent commit explains
that. It is a zombie's if the coordinator accepted it although its generation or member epoch was over. Before the
commit's position in the log, a newer generation or epoch had begun, or the member had left.

If one replica's log has the whole history, its order shows whether a committed offset went back. Otherwise the times of
the commits decide; commits that were in flight together may then have any order. A commit without an answer may have
reached the log at any time after it was sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ackproof.audit.group_log import GroupLog, find_commits, value_before
from ackproof.audit.group_sources import NO_OFFSET, Event, GroupPartition
from ackproof.audit.planning import GREATEST, LEAST
from ackproof.ledgers.rows import Bools, Ints, Rows
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.groups import CommitResult, LogDecision, MembershipEvent
from ackproof.rundir.partition import TopicPartition

COMMITTED: Final[Mapping[str, str]] = {
    "member": "i4", "number": "i8", "generation": "i4", "generation_after": "i4", "offset": "i8",
    "begun_ns": "i8", "done_ns": "i8", "result": "i1", "transaction": "?",
}  # fmt: skip
_LEFT: Final = -1


def audit_commits(
    of: GroupPartition, rows: Rows, every_event: Sequence[Event], log: GroupLog
) -> Counter[str]:
    """Audit the commits of a group for one partition, and add the findings of classes that can be counted to
    `of.findings`. A finding is a commit that was accepted and then lost, or after which the committed offset went back.
    So is a commit that is in the log although its generation or member epoch was over: a newer one had begun, or the
    member had left.

    Return the numbers of commits that were `accepted`, `refused` and `unknown` (fields of `GroupCounts`). `rows`: the
    commits (schema `COMMITTED`). `every_event`: membership events of all partitions. `log`: the group's records in
    `__consumer_offsets`. Raises OSError if the findings cannot be written.
    """
    accepted = rows.take(rows["result"] == CommitResult.ACCEPTED)
    if of.counts(Anomaly.LOST_COMMIT):
        lost = _find_lost(accepted, log.rows(of.place))
        _report(of, Anomaly.LOST_COMMIT, accepted, [(commit, ", and no log has it") for commit in lost])
    if of.counts(Anomaly.REGRESSED_COMMIT):
        found = _find_regressions(of, rows, accepted, log)
        _report(of, Anomaly.REGRESSED_COMMIT, accepted, [(commit, f", and {how}") for commit, how in found])
    if of.counts(Anomaly.ZOMBIE_COMMIT):
        zombies = dict(_find_zombies(of, rows, every_event, log))
        _report(of, Anomaly.ZOMBIE_COMMIT, rows, list(zombies.items()))
    return Counter({result.name.lower(): int((rows["result"] == result).sum()) for result in CommitResult})


def _report(of: GroupPartition, anomaly: Anomaly, rows: Rows, found: Sequence[tuple[int, str]]) -> None:
    """Add one finding for each commit in `found`: pairs of an index in `rows` and the end of the finding's text. The
    text begins with "commit 5 of member 1 was accepted"; an end is, for example, ", and no log has it". Raises OSError
    if the findings cannot be written."""
    which = np.array([commit for commit, _ in found], np.int64)
    detail = [
        f"commit {rows['number'][at]} of member {rows['member'][at]} was accepted{end}" for at, end in found
    ]
    of.report(anomaly, rows, which, detail)


def _find_lost(accepted: Rows, log: Rows) -> list[int]:
    kept = log.take(log["decision"] != LogDecision.ABORTED)
    # A commit without metadata may be any commit of its offset.
    there = np.isin(accepted["offset"], kept["offset"][kept["member"] < 0], kind="sort")
    writer = find_commits(accepted, kept)
    there[writer[writer >= 0]] = True
    lost: list[int] = np.flatnonzero(~there).tolist()
    return lost


def _find_zombies(
    of: GroupPartition, rows: Rows, events: Sequence[Event], log: GroupLog
) -> Iterator[tuple[int, str]]:
    """Yield (index in `rows`, end of the finding's text) of each commit whose generation or member epoch was over: just
    before it, the log has a newer one, or the member had left. The coordinator should have refused it. `events`:
    membership events of all partitions.

    A commit in a transaction carries the generation that its member reported before the call. Any other commit is taken
    to carry the one that its member reports after the answer (`generation_after`). If that is lower than the one before
    the call, the commit is not judged.

    A Java member of a classic group commits with its new generation from its SyncGroup response on. It reports this
    generation only in its next poll (ConsumerCoordinator.onJoinComplete). So a commit without a transaction is no
    finding if the member's next assignment has the generation that was in force at the commit.
    """
    records = log.effective(of.place)
    row = find_commits(rows, records)
    before, after = rows.ints("generation"), rows.ints("generation_after")
    sent = np.where(rows.flags("transaction"), before, np.where(after >= before, after, -1))[row]
    known = (row >= 0) & (sent >= 0)
    row, sent, position = row[known], sent[known], records.ints("log_offset")[known]
    newest, protocol = (value_before(history, position) for history in (log.generations, log.protocols))
    by_epochs = protocol == 1
    old = np.flatnonzero(~by_epochs & (sent < newest))
    plain = old[~rows.flags("transaction")[row[old]]]
    joined = _find_next_generation(rows, row[plain], events)
    late = plain[joined == newest[plain]]
    found = [(at, f"generation {newest[at]} had begun") for at in np.setdiff1d(old, late)]
    which = np.flatnonzero(by_epochs)
    over = _find_epochs_over(of, rows, events, log, (row[which], sent[which], position[which]))
    for at, why in (*found, *((which[at], why) for at, why in over)):
        yield int(row[at]), f" in generation {sent[at]}, after {why}"


def _find_next_generation(rows: Rows, row: Ints, events: Sequence[Event]) -> Ints:
    """Return the generation of the next assignment that a member reported after its commit, for each commit; -1 if it
    reported none. `row`: indexes of the commits in `rows`. `events`: membership events of all partitions, by time."""
    found = np.full(len(row), -1, np.int64)
    over = np.maximum(rows.ints("begun_ns"), rows.ints("done_ns"))[row]
    for member in np.unique(rows["member"][row]).tolist():
        own = [
            event for event in events if event.member == member and event.event == MembershipEvent.ASSIGNED
        ]
        mine = rows["member"][row] == member
        at = np.searchsorted([event.t_ns for event in own], over[mine])
        found[mine] = np.array([*(event.generation for event in own), -1])[at]
    return found


def _find_epochs_over(
    of: GroupPartition,
    rows: Rows,
    events: Sequence[Event],
    log: GroupLog,
    sent_commits: tuple[Ints, Ints, Ints],
) -> Iterator[tuple[int, str]]:
    """Yield (index in `sent_commits`, reason such as "its member had left") of each commit whose member epoch was over:
    below the member's epoch in the log just before the commit. A commit without an answer, or during which the member
    id changed, is not judged, nor is one after a static member left. If the run had a broker of Kafka 4.3 or later,
    commits that such a broker accepts are left out (`_may_commit`).

    `sent_commits`: three arrays with the index in `rows`, epoch, and position in the log of each commit. `events`:
    membership events of all partitions, by time.
    """
    row, sent, position = sent_commits
    for member in np.unique(rows["member"][row]).tolist():
        named = [event for event in events if event.member == member and event.member_id]
        times, names = [event.t_ns for event in named], ["", *(event.member_id for event in named)]
        own = np.flatnonzero((rows["member"][row] == member) & (rows["done_ns"][row] >= 0))
        begin, end = (
            np.array(names)[np.searchsorted(times, rows[name][row[own]], "right")]
            for name in ("begun_ns", "done_ns")
        )
        for name in sorted(set(names) & log.members.keys()):
            epochs = log.members[name]
            mine = own[(begin == name) & (end == name)]
            last = np.searchsorted([epoch.position for epoch in epochs], position[mine]) - 1
            epoch = np.array([*(epoch.epoch for epoch in epochs), _LEFT - 1])[last]
            for which in np.flatnonzero((epoch == _LEFT) | (sent[mine] < epoch)).tolist():
                at = int(mine[which])
                if epoch[which] == _LEFT:
                    yield at, "its member had left"
                elif not (
                    of.sources.plan.assignment_epochs
                    and _may_commit(of.place, name, log, int(last[which]), int(position[at]), int(sent[at]))
                ):
                    yield at, f"its member had epoch {epoch[which]}"


def _may_commit(
    place: TopicPartition, name: str, log: GroupLog, number: int, position: int, sent: int
) -> bool:
    """Return True if Kafka 4.3 or later accepts a commit of member `name` with the epoch `sent`, which is older than
    the member's own. It does if `sent` is not below the epoch in which the member got the partition `place`.
    `position`: log offset of the commit. `number`: index in `log.members[name]` of the member's last record before
    `position`.

    A member may commit for a partition that it has yet to revoke, and its newest record may lack this partition. So the
    partition counts as the member's until a record assigns it to another member.
    """
    epochs = log.members[name]
    last = next((epoch for epoch in epochs[number::-1] if place in epoch.assigned), None)
    if last is None or last.assigned[place] > sent:
        return False
    return last is epochs[number] or not any(
        last.position < epoch.position < position and place in epoch.assigned
        for other, its in log.members.items()
        if other != name
        for epoch in its
    )


# -- regressed-commit ------------------------------------------------------------------------------------------------

Regression = tuple[int, str]
"""Index, among the accepted commits, of the commit after which the offset went back, and how it went back, as text."""


class _Observation(NamedTuple):
    """A committed offset that the coordinator returned to a member, or to the harness (`member` -1: the last
    OffsetFetch). The answer arrived at `done_ns`; the request was sent at `begun_ns` or later (ns since the run's
    start). The last OffsetFetch counts as later than everything else."""

    begun_ns: int
    done_ns: int
    offset: int
    member: int

    def __str__(self) -> str:
        offset = "no offset" if self.offset == NO_OFFSET else str(self.offset)
        return f"{'the last OffsetFetch' if self.member < 0 else f'member {self.member}'} was told {offset}"


def _find_regressions(of: GroupPartition, rows: Rows, accepted: Rows, log: GroupLog) -> list[Regression]:
    """Return each time that the committed offset of the partition went back: by the order of one replica's log if that
    has the whole history, else by times. `rows`: all commits of the partition. `accepted`: those that the coordinator
    accepted."""
    sources, place = of.sources, of.place
    resets = [(event.t_ns, event.position) for event in of.events if event.event == MembershipEvent.RESET]
    observed: list[_Observation] = []
    if sources.plan.commit != "transaction" or sources.plan.isolation == "read_committed":
        observed += _list_observations(of.events)
    if sources.committed is not None:
        observed.append(_Observation(GREATEST, GREATEST, sources.committed.get(place, NO_OFFSET), -1))
    if sources.history >= 0:
        return _find_by_log(accepted, log.effective(place), observed, resets)
    unknown = rows.take(rows["result"] == CommitResult.UNKNOWN)
    others = log.rows(place)
    others = others.take(find_commits(accepted, others) < 0)
    offsets = np.concatenate([unknown.ints("offset"), others.ints("offset")])
    begun = np.concatenate([unknown.ints("begun_ns"), np.zeros(len(others), np.int64)])
    return list(_find_by_time(accepted, observed, resets, (begun, offsets)))


def _list_observations(events: Sequence[Event]) -> Iterator[_Observation]:
    """Yield each committed offset that the coordinator returned to a member after an assignment. `begun_ns`
    is the time of the member's last assignment: it sent its request then or later."""
    assigned: dict[int, int] = {}
    for event in events:
        if event.event == MembershipEvent.ASSIGNED:
            assigned[event.member] = event.t_ns
        elif event.event == MembershipEvent.POSITION and event.member in assigned:
            yield _Observation(assigned[event.member], event.t_ns, event.position, event.member)


def _find_by_log(
    accepted: Rows, log: Rows, observed: Sequence[_Observation], resets: Sequence[tuple[int, int]]
) -> list[Regression]:
    """Return each time that the committed offset went back, by the order of the log. `log`: commits and removals in one
    replica's log, without those of aborted or unfinished transactions (`GroupLog.effective`).

    The offset went back if an accepted commit is below the accepted commit just before it in the log. A position reset
    between the two explains that; `resets` has (time, new offset) of each. So do overlapping calls of one member. The
    offset also went back if the coordinator returned a lower one (`observed`). A later record with the returned offset
    explains that, if its commit began before the answer.
    """
    commit, first, offset = _order_commits(accepted, log)
    if not first.any():
        return []
    begun, done = (accepted.ints(name)[commit] for name in ("begun_ns", "done_ns"))
    begun = np.where(commit >= 0, begun, LEAST)
    answered = np.flatnonzero(first)
    asked = np.array([answer.begun_ns for answer in observed], np.int64)
    found: list[Regression] = []
    lowest = offset.copy()
    """By record: its committed offset, or a lower one that the coordinator returned before the next record."""
    for answer, after in zip(observed, _last_before(done[answered], answered, asked).tolist(), strict=True):
        if after < 0 or answer.offset >= lowest[after]:
            continue
        later = (offset[after + 1 :] == answer.offset) & (begun[after + 1 :] <= answer.done_ns)
        if not later.any():
            lowest[after] = answer.offset
            found.append((int(commit[after]), str(answer)))
    member = accepted["member"][commit]
    together = (member[1:] == member[:-1]) & (begun[:-1] <= done[1:]) & (begun[1:] <= done[:-1])
    back = first[1:] & (commit[:-1] >= 0) & (offset[1:] < lowest[:-1]) & ~together
    for at in np.flatnonzero(back).tolist():
        if not _is_explained(resets, offset[at + 1], begun[at], begun[at + 1]):
            how = f"member {member[at + 1]} committed {offset[at + 1]} after it in the log"
            found.append((int(commit[at]), how))
    return found


def _is_explained(resets: Sequence[tuple[int, int]], offset: int, since: int, until: int) -> bool:
    return any(since <= t_ns <= until and position <= offset for t_ns, position in resets)


def _order_commits(accepted: Rows, log: Rows) -> tuple[Ints, Bools, Ints]:
    """Merge the records of `log`, and the accepted commits that `log` lacks, in the order of the log. Return three
    parallel arrays: the index in `accepted` of the commit (-1: no accepted commit wrote the record), True at the first
    record of each accepted commit, and the committed offset.

    A commit that `log` lacks follows the last record whose commit was answered before the missing commit began.
    """
    commit = find_commits(accepted, log)
    known = np.flatnonzero(commit >= 0)[::-1]
    position = np.full(len(accepted), -1, np.int64)
    position[commit[known]] = known  # the last assignment, of the first record, counts
    there, missing = np.flatnonzero(position >= 0), np.flatnonzero(position < 0)
    first = np.zeros(len(log), np.bool_)
    first[position[there]] = True
    begun, done, offset = (accepted.ints(name) for name in ("begun_ns", "done_ns", "offset"))
    missing = missing[np.argsort(done[missing], kind="stable")]
    behind = 1 + _last_before(done[there], position[there], begun[missing])
    return (
        np.insert(commit, behind, missing),
        np.insert(first, behind, True),
        np.insert(log.ints("offset"), behind, offset[missing]),
    )


def _last_before(done: Ints, position: Ints, times: Ints) -> Ints:
    """Return for each of `times` the greatest `position` whose `done` is earlier; -1 if there is none. `done`
    and `position` are parallel."""
    order = np.argsort(done, kind="stable")
    greatest = np.concatenate([[-1], np.maximum.accumulate(position[order])])
    last: Ints = greatest[np.searchsorted(done[order], times)]
    return last


def _find_by_time(
    accepted: Rows,
    observed: Sequence[_Observation],
    resets: Sequence[tuple[int, int]],
    others: tuple[Ints, Ints],
) -> Iterator[Regression]:
    """Yield each time that the committed offset went back, judged by the times of the commits `accepted` and of the
    answers `observed`. This serves partitions for which no log of `__consumer_offsets` has the whole history.

    `resets`: (time, new offset) of each reset. `others`: begins and offsets of further commits, each of which may have
    reached the log at any time after its begin. These are commits without an answer, and commits that only a log shows
    (begin 0).
    """
    count = len(accepted)
    answers = np.array([answer[:3] for answer in observed], np.int64).reshape(-1, 3)
    begun, done, offset = (
        np.concatenate([accepted.ints(name), answers[:, column]])
        for column, name in enumerate(("begun_ns", "done_ns", "offset"))
    )
    order = np.argsort(done, kind="stable")
    by_done, latest = done[order], np.maximum.accumulate(begun[order])
    before = np.searchsorted(by_done, begun)
    for at in np.flatnonzero((before > 0) & (offset < offset[order[before - 1]])).tolist():
        last = order[np.searchsorted(by_done, latest[before[at] - 1]) : before[at]]
        low = int(last[np.argmin(offset[last])])
        if offset[low] <= offset[at]:
            continue
        together = (begun <= done[at]) & (done >= begun[at])
        together[[at, *range(count, len(begun))]] = False
        possible = np.concatenate([offset[together], others[1][others[0] <= done[at]]])
        if at < count:
            explained = bool((possible <= offset[at]).any())
            explained = explained or _is_explained(resets, offset[at], begun[low], begun[at])
            how = f"member {accepted['member'][at]} committed {offset[at]} after it"
        else:
            explained = bool((possible == offset[at]).any())
            how = str(observed[at - count])
        if low >= count:  # this is an answer: name the last commit that is not below it
            known = np.flatnonzero((accepted["done_ns"] < begun[at]) & (accepted["offset"] >= offset[low]))
            low = int(known[np.argmax(accepted["done_ns"][known])]) if len(known) else -1
        if not explained and low >= 0:
            yield low, how
