"""Finds where a group's committed offset of one partition went back behind an accepted commit.

With a whole history the log orders the commits. Without one, times do: commits that were in flight together may have
any order, and a commit without an answer may have reached the log at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ackproof.audit.group_log import GroupLog, find_commits
from ackproof.audit.group_sources import NO_OFFSET, Event, GroupSources
from ackproof.audit.planning import GREATEST, LEAST
from ackproof.ledgers.rows import Bools, Ints, Rows
from ackproof.rundir.groups import CommitResult, MembershipEvent
from ackproof.rundir.partition import TopicPartition

Regression = tuple[int, str]
"""The index of the accepted commit behind which the offset went back, and how it did."""


class Observation(NamedTuple):
    """A committed offset as the coordinator answered it at `done_ns`. `begun_ns`: not asked earlier than this.
    `member`: -1 for the last OffsetFetch."""

    begun_ns: int
    done_ns: int
    offset: int
    member: int

    def __str__(self) -> str:
        offset = "no offset" if self.offset == NO_OFFSET else str(self.offset)
        return f"{'the last OffsetFetch' if self.member < 0 else f'member {self.member}'} was told {offset}"


class _Resets:
    """Resets of members' positions on one partition."""

    def __init__(self, events: Sequence[Event]) -> None:
        found = [(event.t_ns, event.position) for event in events if event.event == MembershipEvent.RESET]
        self._times, self._positions = np.array(found, np.int64).reshape(-1, 2).T

    def explain(self, offset: int, since: int, until: int) -> bool:
        """Return True if a reset between these times went to the offset or below it."""
        between = (self._times >= since) & (self._times <= until)
        return bool((between & (self._positions <= offset)).any())


def find_regressions(
    sources: GroupSources,
    place: TopicPartition,
    rows: Rows,
    accepted: Rows,
    events: Sequence[Event],
    log: GroupLog,
) -> list[Regression]:
    """Return each time that the offset went back. `rows`: all commits of the partition. `events`: of the partition."""
    told: list[Observation] = []
    if sources.plan.commit != "transaction" or sources.plan.isolation == "read_committed":
        told += _list_observations(events)
    if sources.committed is not None:
        told.append(Observation(GREATEST, GREATEST, sources.committed.get(place, NO_OFFSET), -1))
    if sources.history >= 0:
        return _find_by_log(accepted, log.effective(place), told, _Resets(events))
    unknown = rows.take(rows["result"] == CommitResult.UNKNOWN)
    others = log.rows(place)
    others = others.take(find_commits(accepted, others) < 0)
    offsets = np.concatenate([unknown.ints("offset"), others.ints("offset")])
    begun = np.concatenate([unknown.ints("begun_ns"), np.zeros(len(others), np.int64)])
    return list(_find_by_time(accepted, told, _Resets(events), (begun, offsets)))


def _list_observations(events: Sequence[Event]) -> Iterator[Observation]:
    """Yield what members were told of the committed offset. Each asked after its last assignment."""
    assigned: dict[int, int] = {}
    for event in events:
        if event.event == MembershipEvent.ASSIGNED:
            assigned[event.member] = event.t_ns
        elif event.event == MembershipEvent.POSITION and event.member in assigned:
            yield Observation(assigned[event.member], event.t_ns, event.position, event.member)


def _find_by_log(accepted: Rows, log: Rows, told: Sequence[Observation], resets: _Resets) -> list[Regression]:
    """Return each time that the offset went back. `log`: records in force, in order."""
    commit, first, offset = _order_commits(accepted, log)
    if not first.any():
        return []
    begun, done = (accepted.ints(name)[commit] for name in ("begun_ns", "done_ns"))
    begun = np.where(commit >= 0, begun, LEAST)
    answered = np.flatnonzero(first)
    asked = np.array([answer.begun_ns for answer in told], np.int64)
    found: list[Regression] = []
    lowest = offset.copy()
    """The lowest offset that was in force, or told, before the next commit."""
    for answer, after in zip(told, _last_before(done[answered], answered, asked).tolist(), strict=True):
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
        if not resets.explain(offset[at + 1], begun[at], begun[at + 1]):
            how = f"member {member[at + 1]} committed {offset[at + 1]} behind it in the log"
            found.append((int(commit[at]), how))
    return found


def _order_commits(accepted: Rows, log: Rows) -> tuple[Ints, Bools, Ints]:
    """Return the records in the order of the log: index of the accepted commit (-1 for others); whether it is the first
    record of that; offset.

    An accepted commit that the log does not have stands behind the last one that had been answered when it began.
    """
    commit = find_commits(accepted, log)
    known = np.flatnonzero(commit >= 0)
    there, at = np.unique(commit[known], return_index=True)
    first = np.zeros(len(log), np.bool_)
    first[known[at]] = True
    begun, done, offset = (accepted.ints(name) for name in ("begun_ns", "done_ns", "offset"))
    missing = np.setdiff1d(np.arange(len(accepted)), there)
    missing = missing[np.argsort(done[missing], kind="stable")]
    behind = 1 + _last_before(done[there], known[at], begun[missing])
    return (
        np.insert(commit, behind, missing),
        np.insert(first, behind, True),
        np.insert(log.ints("offset"), behind, offset[missing]),
    )


def _last_before(done: Ints, position: Ints, times: Ints) -> Ints:
    """Return for each time the greatest position of what was done before; -1 for none."""
    order = np.argsort(done, kind="stable")
    greatest = np.concatenate([[-1], np.maximum.accumulate(position[order])])
    last: Ints = greatest[np.searchsorted(done[order], times)]
    return last


def _find_by_time(
    accepted: Rows, told: Sequence[Observation], resets: _Resets, others: tuple[Ints, Ints]
) -> Iterator[Regression]:
    """Yield each time that the offset went back, where the log is no whole history.

    `others`: begin and offset of commits that may be in the log at any time from their begin on.
    """
    count = len(accepted)
    answers = np.array([answer[:3] for answer in told], np.int64).reshape(-1, 3)
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
            explained = explained or resets.explain(offset[at], begun[low], begun[at])
            how = f"member {accepted['member'][at]} committed {offset[at]} after it"
        else:
            explained = bool((possible == offset[at]).any())
            how = str(told[at - count])
        if low >= count:  # somebody was told this: name the last commit that is not below it
            known = np.flatnonzero((accepted["done_ns"] < begun[at]) & (accepted["offset"] >= offset[low]))
            low = int(known[np.argmax(accepted["done_ns"][known])]) if len(known) else -1
        if not explained and low >= 0:
            yield low, how
