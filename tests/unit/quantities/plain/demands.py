"""What is demanded of a state, by the words of `docs/experiments.md`: `always`, `never`, `eventually`."""

from __future__ import annotations

import math

from ackproof.rundir.bounds import WHOLE, Bound, Mode

from .facts import SECOND, Facts, Look, Looks, spans, under_load


def together(each: list[bool | None]) -> bool | None:
    """One that is not so breaks it; one of which it is not known leaves it open."""
    if False in each:
        return False
    return None if None in each or not each else True


def demanded(
    facts: Facts, looks: Looks, bound: Bound, decided: dict[str, list[float]], log_whole: bool
) -> bool | None:
    """`decided`: what the metadata log says that each was over the whole run."""
    each = []
    for name, mine in looks.items():
        told = decided.get(name, []) if bound.window == WHOLE else []
        one = _eventually(facts, mine, bound) if bound.mode is Mode.EVENTUALLY else None
        if bound.mode is not Mode.EVENTUALLY:
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
    """Whether no look tells it for more than 1 s, a moment of which lies between these; `first_s`: so long it may take
    until the first."""
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
            return True
        last = max([facts.ends, *(at for at, _ in looks)])
        unseen = not in_time or until > last or hole(looks, begin, until, 5 if bound.window == WHOLE else 1)
        each.append(None if unseen else False)
    return None if None in each else False
