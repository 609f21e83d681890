"""Plain implementation of the availability quantities: the longest, total and number of gaps without a success."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from ackproof.quantities.quantity import Ask
from ackproof.rundir.bounds import Span, Window
from ackproof.rundir.observed import BrokerRound

from .facts import MS, Bounds, Count, Facts, asked_for, spans

APART = 10 * MS
"""Length in ns up to which a time without a success is no gap."""
TAKEN_BACK = (-152, -151)


class Gap(NamedTuple):
    """Times in ns of a gap between two successes. `begin`, `end`: its greatest possible extent. `begun`, `lasted`:
    begin and end of the time in which certainly nothing succeeded."""

    begin: float
    end: float
    begun: float
    lasted: float


class Length(NamedTuple):
    """Least and greatest possible length of a gap, or of a part of one, in ns."""

    low: float
    high: float


class Watched(NamedTuple):
    """Gaps of one partition, reader or cluster, which was observed from `since` to `until` ns."""

    since: float
    until: float
    gaps: list[Gap]


def between(times: list[int], least: int = APART) -> list[Gap]:
    found = []
    for one, two in itertools.pairwise(times):
        if two - one > least:
            found.append(Gap(one, two, one, two))
    return found


def produced(facts: Facts, ask: Ask) -> list[Watched]:
    found = []
    for partition in asked_for(ask, [one.partition for one in facts.attempts]):
        mine = [
            one
            for one in facts.attempts
            if one.partition == partition and not (one.outcome != 0 and one.error in TAKEN_BACK)
        ]
        if not mine:
            continue
        acks = sorted(one.done for one in mine if one.outcome == 0)
        waiting = [max(one.sent, one.done) for one in mine if one.outcome != 0]
        first = min(one.sent for one in mine)
        gaps, until = between(acks), float(acks[-1]) if acks else first
        if waiting and (not acks or max(waiting) > acks[-1]):
            gaps.append(Gap(until, math.inf, until, max(facts.ends, *waiting)))
            until = math.inf
        found.append(Watched(first, until, gaps))
    return found


def read(facts: Facts, ask: Ask) -> list[Watched]:
    found = []
    live = [one for one in facts.reads if one.phase in (0, 2)]
    if not facts.readers and not live:
        return []
    every = [*[one.partition for one in facts.attempts], *[one.partition for one in live]]
    for partition in asked_for(ask, every):
        acked = [one for one in facts.attempts if one.partition == partition and one.outcome == 0]
        mine = [one for one in live if one.partition == partition]
        times = sorted(one.at for one in mine)
        if not acked and not mine:
            continue
        gaps = between(times)
        first = min([*times, *(one.done for one in acked)])
        until: float = max([*times, *(one.done for one in acked)])
        due = [one.offset for one in acked if one.txn < 0 or one.txn in facts.committed]
        marks = [one.high_watermark for one in facts.samples if one.partition == partition]
        marks = [one for one in marks if one >= 0]
        needed = max(due, default=-1)
        nameless = any(offset < 0 for offset in due)
        if nameless and marks:
            needed = max(needed, max(marks) - 1)
        handed = max([one.offset for one in mine], default=-1)
        begin = times[-1] if times else min(one.done for one in acked) if acked else 0
        if needed > handed:
            gaps.append(Gap(begin, math.inf, begin, max(facts.ends, begin)))
            until = math.inf
        elif nameless and not marks:
            gaps.append(Gap(begin, math.inf, begin, begin))
            until = math.inf
        found.append(Watched(first, until, gaps))
    return found


def commit(facts: Facts, ask: Ask) -> list[Watched]:
    found = []
    for tries in facts.tries.values():
        mine = [one for one in tries if asked_for(ask, one.partitions)]
        if not mine:
            continue
        good = [one.done for one in mine if one.done >= 0 and not one.error]
        gaps = between([mine[0].begun, *good], 0)
        until: float = good[-1] if good else mine[0].begun
        if mine[-1].done < 0 or mine[-1].error:
            gaps.append(Gap(until, math.inf, until, max(facts.ends, until, mine[-1].done)))
            until = math.inf
        found.append(Watched(mine[0].begun, until, gaps))
    return found


def metadata(facts: Facts, ask: Ask) -> list[Watched]:
    if not facts.rounds:
        return []
    gaps, failed = [], list[BrokerRound]()
    before: float = min(facts.begins, facts.rounds[0].t_ns)
    for number, one in enumerate(facts.rounds):
        if _answered(one, ask):
            sure = (failed[0].t_ns, failed[-1].done_ns) if failed else (before, before)
            if number or before < one.t_ns:
                gaps.append(Gap(before, one.done_ns, *sure))
            before, failed = one.t_ns, []
        else:
            failed.append(one)
    if failed:
        gaps.append(Gap(before, math.inf, failed[0].t_ns, failed[-1].done_ns))
    elif facts.ends > facts.rounds[-1].done_ns:
        gaps.append(Gap(before, facts.ends, before, before))
    return [Watched(-math.inf, math.inf, gaps)]


def _answered(one: BrokerRound, ask: Ask) -> bool:
    for told in one.told:
        if told.viewer == 0:
            continue
        if ask.place is None:
            return True
        for row in told.partitions:
            if (row.topic, row.partition) == ask.place and row.leader >= 0:
                return True
    return False


WATCHED = {"produce": produced, "read": read, "commit": commit, "metadata": metadata}


def _within(facts: Facts, ask: Ask, window: Window) -> list[Length] | None:
    """Return the lengths of the gaps that overlap a window; with `outside faults` only of their parts in it. None if
    nothing was observed in the window."""
    found, watched = spans(facts, window), WATCHED[ask.quantity.variant](facts, ask)
    if found is None:
        return None
    if not any(one.since < end and begin <= one.until for one in watched for begin, end in found):
        return None
    lengths = []
    for gap in itertools.chain.from_iterable(one.gaps for one in watched):
        touched = [(begin, end) for begin, end in found if gap.begin < end and begin < gap.end]
        if window.span is Span.OUTSIDE:
            lengths += [_part(gap, begin, math.inf if end == facts.ends else end) for begin, end in touched]
        elif touched:
            lengths.append(Length(gap.lasted - gap.begun, gap.end - gap.begin))
    return lengths


def _part(gap: Gap, begin: float, end: float) -> Length:
    """Return the bounds of how long a gap overlaps the time from `begin` to `end`, in ns. Each is a sum over the pieces
    between all times at which something changes."""
    low, high = 0.0, 0.0
    for one, two in itertools.pairwise(sorted({begin, end, *gap})):
        if begin <= one < end and gap.begin <= one < gap.end:
            high += two - one
            if gap.begun <= one < gap.lasted:
                low += two - one
    return Length(low, high)


def longest(facts: Facts, ask: Ask, window: Window) -> Bounds:
    each = _within(facts, ask, window)
    if each is None:
        return None
    return max([0, *(one.low for one in each)]) / 1e9, max([APART, *(one.high for one in each)]) / 1e9


def total(facts: Facts, ask: Ask, window: Window) -> Bounds:
    each = _within(facts, ask, window)
    if each is None:
        return None
    above = (ask.above_s or 0) * 1e9
    low = sum(one.low for one in each if one.low > above)
    return low / 1e9, sum(one.high for one in each if one.high > above) / 1e9


def how_many(facts: Facts, ask: Ask, window: Window) -> Bounds:
    each = _within(facts, ask, window)
    if each is None:
        return None
    above = (ask.above_s or 0) * 1e9
    return sum(one.low > above for one in each), sum(one.high > above for one in each)


COUNTED: dict[str, Count] = {
    f"{name}({operation})": measure
    for operation in WATCHED
    for name, measure in (("longest_gap", longest), ("total_gap", total), ("gaps", how_many))
}
