"""Plain implementation of rates, latencies, outcomes and errors of requests, and of their times after a fault."""

from __future__ import annotations

import math
from fractions import Fraction

from ackproof.quantities.quantity import Ask
from ackproof.rundir.bounds import Window

from .facts import (
    Attempt,
    Bounds,
    Count,
    Facts,
    asked_for,
    fault_of,
    inside,
    least,
    most,
    since,
    spans,
    under_load,
)

OUTCOMES = {"acked": 0, "failed": 1, "indeterminate": 2}
SHARES = {
    "p50": Fraction(1, 2),
    "p95": Fraction(19, 20),
    "p99": Fraction(99, 100),
    "p99.9": Fraction(999, 1000),
    "max": Fraction(1),
}


def _attempts(facts: Facts, ask: Ask, window: Window) -> list[Attempt] | None:
    """Return the attempts within a window, by the time of their report or, without one, of their sending; None if the
    window never came."""
    found = spans(facts, window)
    if found is None:
        return None
    asked = asked_for(ask, [one.partition for one in facts.attempts])
    return [
        one
        for one in facts.attempts
        if one.partition in asked and inside(one.done if one.done >= 0 else one.sent, found)
    ]


def _sent(facts: Facts, ask: Ask, window: Window) -> bool:
    """Return True if a record was sent within a window. Otherwise a count of 0 failures may prove nothing."""
    found = spans(facts, window) or []
    return any(
        inside(one.sent, found) and ask.place in (None, facts.place(one.partition)) for one in facts.attempts
    )


def latency(facts: Facts, ask: Ask, window: Window) -> Bounds:
    mine = _attempts(facts, ask, window)
    took = sorted(max(0, one.done - one.sent) for one in mine or [] if one.outcome == 0)
    if not took:
        return None
    for number, one in enumerate(took, start=1):
        if number >= SHARES[ask.quantity.variant] * len(took):
            return one / 1e9, one / 1e9
    raise AssertionError


def rate(facts: Facts, ask: Ask, window: Window) -> Bounds:
    found = under_load(facts, window)
    if not found:
        return None
    if ask.quantity.variant == "produce":
        events = [(one.partition, one.done) for one in facts.attempts if one.outcome == 0]
    else:
        events = [(one.partition, one.at) for one in facts.reads if one.phase in (0, 2)]
    asked = asked_for(ask, [partition for partition, _ in events])
    count = sum(partition in asked and inside(at, found) for partition, at in events)
    per_s = count / (sum(end - begin for begin, end in found) / 1e9)
    return per_s, per_s


def attempts(facts: Facts, ask: Ask, window: Window) -> Bounds:
    mine = _attempts(facts, ask, window)
    if mine is None:
        return None
    count = sum(one.outcome == OUTCOMES[ask.quantity.variant] for one in mine)
    if ask.quantity.variant != "acked" and not mine and not _sent(facts, ask, window):
        return None
    return count, count


def errors(facts: Facts, ask: Ask, window: Window) -> Bounds:
    mine = _attempts(facts, ask, window)
    if mine is None:
        return None
    count = sum(one.error == ask.code if ask.code is not None else one.error != 0 for one in mine)
    return (count, count) if mine or _sent(facts, ask, window) else None


def first(facts: Facts, ask: Ask, _: Window) -> Bounds:
    """Measure `time_to(first …)`, which is about records that were sent after the fault was confirmed; None if it was
    not confirmed. Of several partitions, `first refused` takes the earliest time, the others the latest."""
    fault = fault_of(facts, ask)
    if fault is None or fault.confirmed is None:
        return None
    each = []
    for partition in asked_for(ask, [one.partition for one in facts.attempts]):
        mine = [one for one in facts.attempts if one.partition == partition and one.sent >= fault.confirmed]
        times = {
            "first refused": [one.done for one in mine if one.outcome != 0 and one.done >= 0],
            "first accepted": [one.sent for one in mine if one.outcome == 0],
            "first ack": [one.done for one in mine if one.outcome == 0],
        }[ask.quantity.variant]
        end = max(facts.ends, fault.confirmed)
        each.append(since(fault, min(times), min(times)) if times else (since(fault, end, end)[0], math.inf))
    return least(each) if ask.quantity.variant == "first refused" else most(each)


COUNTED: dict[str, Count] = {
    "latency(pN)": latency,
    "latency(max)": latency,
    "rate(produce)": rate,
    "rate(read)": rate,
    **{f"attempts({outcome})": attempts for outcome in OUTCOMES},
    "errors": errors,
    **{f"time_to({what})": first for what in ("first refused", "first accepted", "first ack")},
}
