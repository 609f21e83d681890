"""Finds where a group's committed offset of one partition went back behind an accepted commit.

With a whole history the log orders the commits. Without one, times do: commits that were in flight together may have
any order, and a commit without an answer may have reached the log at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ackproof.audit.group_log import commit_keys
from ackproof.audit.group_sources import NO_OFFSET
from ackproof.ledgers.rows import Bools, Ints, Rows

_ALWAYS = int(np.iinfo(np.int64).min)


class Observation(NamedTuple):
    """A committed offset as the coordinator answered it. `asked`: not earlier than this. `member`: -1 for the last
    OffsetFetch."""

    asked: int
    t_ns: int
    offset: int
    member: int

    def describe(self) -> str:
        offset = "no offset" if self.offset == NO_OFFSET else str(self.offset)
        return f"{'the last OffsetFetch' if self.member < 0 else f'member {self.member}'} was told {offset}"


class Regression(NamedTuple):
    """The offset went back behind an accepted commit. `commit`: its number among the accepted ones."""

    commit: int
    how: str


def find_by_log(
    accepted: Rows, log: Rows, told: Sequence[Observation], resets: Sequence[tuple[int, int]]
) -> list[Regression]:
    """Return each time that the offset went back. `accepted`: commits. `log`: records in force, in order. `resets`:
    (time, new position) of members."""
    who, first, value = _order(accepted, log)
    begun = np.where(who >= 0, accepted.ints("begun_ns")[who], _ALWAYS) if len(accepted) else who
    seen = _find_low_observations(accepted, (who, first, value, begun), told)
    found: list[Regression] = []
    lowered: dict[int, int] = {}
    """By position in the order: the lowest offset that was told behind it."""
    for after, observation in seen:
        now = lowered.get(after, int(value[after]))
        if observation.offset < now:
            lowered[after] = observation.offset
            found.append(Regression(int(who[after]), observation.describe()))
    for at in (np.flatnonzero(value[1:] < value[:-1]) + 1).tolist():
        before = lowered.get(at - 1, int(value[at - 1]))
        if value[at] >= before or not first[at] or who[at - 1] < 0:
            continue
        if _is_together(accepted, who[at - 1], who[at]):
            continue
        since, until = begun[at - 1], begun[at]
        if any(since <= t_ns <= until and offset <= value[at] for t_ns, offset in resets):
            continue
        member = accepted["member"][who[at]]
        found.append(
            Regression(int(who[at - 1]), f"member {member} committed {value[at]} behind it in the log")
        )
    return found


def _order(accepted: Rows, log: Rows) -> tuple[Ints, Bools, Ints]:
    """Return the commits in the order of the log: number among the accepted ones (-1 for others); whether it is the
    first record of an accepted one; offset.

    An accepted commit that the log does not have stands behind the last one that had been answered when it began.
    """
    keys, wanted = commit_keys(accepted), commit_keys(log)
    by_key = np.argsort(keys, kind="stable")
    who = np.full(len(log), -1, np.int64)
    if len(accepted):
        at = by_key[np.minimum(np.searchsorted(keys[by_key], wanted), len(by_key) - 1)]
        who = np.where((keys[at] == wanted) & (log["member"] >= 0) & ~log.flags("removed"), at, -1)
    known = np.flatnonzero(who >= 0)[::-1]
    record = np.full(len(accepted), -1, np.int64)
    record[who[known]] = known  # the last assignment is that of the first record
    first = np.zeros(len(log), np.bool_)
    first[record[record >= 0]] = True
    value = np.where(log.flags("removed"), NO_OFFSET, log.ints("offset"))
    position = log.ints("log_offset")
    missing = np.flatnonzero(record < 0)
    if not len(missing):
        return who, first, value
    there = np.flatnonzero(first)
    lower = np.full(len(missing), _ALWAYS)
    if len(there):
        done = accepted.ints("done_ns")[who[there]]
        by_done = np.argsort(done, kind="stable")
        highest = np.maximum.accumulate(position[there][by_done])
        behind = np.searchsorted(done[by_done], accepted.ints("begun_ns")[missing]) - 1
        lower = np.where(behind >= 0, highest[np.maximum(behind, 0)], _ALWAYS)
    position = np.concatenate([position, lower])
    who = np.concatenate([who, missing])
    first = np.concatenate([first, np.ones(len(missing), np.bool_)])
    value = np.concatenate([value, accepted.ints("offset")[missing]])
    late = np.concatenate([np.full(len(log), _ALWAYS), accepted.ints("done_ns")[missing]])
    order = np.lexsort((late, position))
    return who[order], first[order], value[order]


def _is_together(accepted: Rows, one: int, two: int) -> bool:
    """Return True for two commits of one member that were in flight together: the member chose no order."""
    begun, done = accepted["begun_ns"], accepted["done_ns"]
    same = accepted["member"][one] == accepted["member"][two]
    return bool(same and begun[one] <= done[two] and begun[two] <= done[one])


def _find_low_observations(
    accepted: Rows, order: tuple[Ints, Bools, Ints, Ints], told: Sequence[Observation]
) -> list[tuple[int, Observation]]:
    """Return observations that no commit explains, by time, each with the position in the order of the last commit that
    had been answered before."""
    who, first, value, begun = order
    answered = np.flatnonzero(first)
    if not len(answered):
        return []
    done = accepted.ints("done_ns")[who[answered]]
    by_done = np.argsort(done, kind="stable")
    latest, done = np.maximum.accumulate(answered[by_done]), done[by_done]
    found: list[tuple[int, Observation]] = []
    for observation in told:
        number = int(np.searchsorted(done, observation.asked)) - 1
        if number < 0 or observation.offset >= value[after := int(latest[number])]:
            continue
        later = slice(after + 1, None)
        if not ((value[later] == observation.offset) & (begun[later] <= observation.t_ns)).any():
            found.append((after, observation))
    return found


def find_by_time(
    accepted: Rows,
    told: Sequence[Observation],
    resets: Sequence[tuple[int, int]],
    others: tuple[Ints, Ints],
) -> list[Regression]:
    """Return each time that the offset went back, where the log is no whole history.

    `others`: begin and offset of commits that may be in the log at any time from their begin on.
    """
    count, total = len(accepted), len(accepted) + len(told)
    begun = np.concatenate([accepted.ints("begun_ns"), np.array([one.asked for one in told], np.int64)])
    done = np.concatenate([accepted.ints("done_ns"), np.array([one.t_ns for one in told], np.int64)])
    value = np.concatenate([accepted.ints("offset"), np.array([one.offset for one in told], np.int64)])
    order = np.argsort(done, kind="stable")
    by_done, latest = done[order], np.maximum.accumulate(begun[order])
    before = np.searchsorted(by_done, begun)
    lower = (before > 0) & (value < value[order][np.maximum(before, 1) - 1]) if total else np.empty(0, bool)
    found: list[Regression] = []
    for at in np.flatnonzero(lower).tolist():
        last = order[np.searchsorted(by_done, latest[before[at] - 1]) : before[at]]
        low = int(last[np.argmin(value[last])])
        if value[low] <= value[at]:
            continue
        together = (begun <= done[at]) & (done >= begun[at])
        together[at] = False
        late = others[1][others[0] <= done[at]]
        if at < count:
            own = accepted["begun_ns"][low] if low < count else told[low - count].asked
            if any(own <= t_ns <= begun[at] and offset <= value[at] for t_ns, offset in resets):
                continue
            explained = bool(
                (value[:count][together[:count]] <= value[at]).any() or (late <= value[at]).any()
            )
            how = f"member {accepted['member'][at]} committed {value[at]} after it"
        else:
            explained = bool(
                (value[:count][together[:count]] == value[at]).any() or (late == value[at]).any()
            )
            how = told[at - count].describe()
        if not explained and (commit := _name_commit(accepted, value, low, int(begun[at]))) is not None:
            found.append(Regression(commit, how))
    return found


def _name_commit(accepted: Rows, value: Ints, low: int, until: int) -> int | None:
    """Return the accepted commit behind which the offset went: `low`, or, if that is what somebody was told, the last
    one that had been answered by then and is not below it; None if there is none."""
    if low < len(accepted):
        return low
    known = np.flatnonzero((accepted["done_ns"] < until) & (accepted["offset"] >= value[low]))
    return int(known[np.argmax(accepted["done_ns"][known])]) if len(known) else None
