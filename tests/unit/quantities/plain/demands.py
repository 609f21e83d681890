"""Plain implementation of expectations on states, from `docs/experiments.md`: `always`, `never`, `eventually`,
`settles`. True: holds, False: broken, None: unknown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from ackproof.rundir.bounds import WHOLE, Bound, Mode, Span

from .facts import SECOND, Facts, Look, Looks, spans, under_load


def together(each: list[bool | None]) -> bool | None:
    """Combine the answers of several partitions: False if any is False, else None if any is None or there are none."""
    if False in each:
        return False
    return None if None in each or not each else True


def demanded(
    facts: Facts, looks: Looks, bound: Bound, decided: dict[str, list[float]], log_whole: bool
) -> bool | None:
    """Return whether the bound holds; None: undecided. `looks`: observations by partition. `decided`: numbers of the
    state in the metadata log, by partition. `log_whole`: whether that log is complete."""
    each = []
    for name, mine in looks.items():
        told = decided.get(name, []) if bound.window == WHOLE else []
        if bound.mode is Mode.EVENTUALLY:
            one = _eventually(facts, mine, bound)
        elif bound.mode is Mode.SETTLES:
            one = settles(facts, mine, bound, hole)
        else:
            one = _without_holes(facts, mine, bound, told, log_whole)
        each.append(one)
    return together(each)


def is_wrong(bound: Bound, number: float) -> bool:
    return bound.holds(number) if bound.mode is Mode.NEVER else not bound.holds(number)


def _without_holes(
    facts: Facts, looks: list[Look], bound: Bound, told: list[float], log_whole: bool
) -> bool | None:
    if any(is_wrong(bound, number) for number in told):
        return False
    if spans(facts, bound.window) is None:
        return None
    found = under_load(facts, bound.window) or []
    numbers = [number for at, number in looks if any(begin <= at < end for begin, end in found)]
    if any(is_wrong(bound, number) for number in numbers):
        return False
    if told and log_whole:
        return True
    if any(hole(looks, begin, end, 5 if bound.window == WHOLE else 1) for begin, end in found):
        return None
    return True if numbers else None


def hole(looks: list[Look], begin: float, end: float, first_s: float) -> bool:
    """Return True if there is no observation for more than 1 s at some moment from `begin` to `end`. `first_s`: limit
    in s, instead of 1 s, before the first of all observations."""
    known = [begin, *(at for at, _ in looks if begin < at < end)]
    early = [at for at, _ in looks if at <= begin]
    late = [at for at, _ in looks if at >= end]
    if early:
        known[0] = early[-1]
    known.append(late[0] if late else end)
    allowed = [SECOND if early else first_s * SECOND] + [SECOND] * len(known)
    return any(two - one > least for one, two, least in zip(known, known[1:], allowed, strict=False))


def _eventually(facts: Facts, looks: list[Look], bound: Bound) -> bool | None:
    found = spans(facts, bound.window)
    if found is None:
        return None
    if bound.window == WHOLE:
        found = [(facts.begins, math.inf)]
    each: list[bool | None] = []
    for begin, end in found:
        until = end
        if bound.by_s is not None and begin + bound.by_s * SECOND < end:
            until = begin + bound.by_s * SECOND
        in_time = [number for at, number in looks if begin <= at <= until and at != end]
        if any(bound.holds(number) for number in in_time):
            if not stale(facts, looks, bound, in_time):
                return True
            each.append(None if until > max([facts.ends, *(at for at, _ in looks)]) else False)
            continue
        last = max([facts.ends, *(at for at, _ in looks)])
        unseen = not in_time or until > last or hole(looks, begin, until, 5 if bound.window == WHOLE else 1)
        each.append(None if unseen else False)
    return None if None in each else False


Hidden: TypeAlias = Callable[[list[Look], float, float, float], bool]
"""Function of (observations, begin, end, limit before the first, in s). It returns True if the state may have changed
unseen between the two times."""


def stale(facts: Facts, looks: list[Look], bound: Bound, in_time: list[float]) -> bool:
    """Return True if the state met the bound when its time began, and before its fault, but no longer when its time
    ended. Then `eventually` is not met. `in_time`: the observed numbers in that time."""
    if bound.by_s is None and bound.window.span is not Span.AFTER:
        return False
    if not bound.holds(in_time[0]) or bound.holds(in_time[-1]):
        return False
    if bound.window.fault is None:
        return True
    asked = facts.faults[bound.window.fault - 1].asked
    earlier = [number for at, number in looks if at < asked]
    return not earlier or bound.holds(earlier[-1])


def settles(facts: Facts, looks: list[Look], bound: Bound, hidden: Hidden) -> bool | None:
    found = spans(facts, bound.window)
    if found is None:
        return None
    begin = facts.begins if bound.window == WHOLE else max(found[0][0], facts.begins)
    by = facts.ends if bound.by_s is None else begin + bound.by_s * SECOND
    mine = [(at, number) for at, number in looks if begin <= at < facts.ends]
    if not mine:
        return None
    if not bound.holds(mine[-1][1]):
        return None if by > facts.ends else False
    wrong = [at for at, number in mine if not bound.holds(number)]
    if hidden(looks, wrong[-1] if wrong else begin, facts.ends, 5 if bound.window == WHOLE else 1):
        return None
    return not wrong or min(at for at, _ in mine if at > wrong[-1]) <= by
