"""Availability: for how long no request of a kind succeeded, of those that clients made."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from ackproof.quantities.evidence import Evidence, Spans
from ackproof.quantities.gaps import GAPS, Gap
from ackproof.quantities.quantity import LEAST_GAP_S, Argument, Ask, Quantity, Witness
from ackproof.quantities.value import Value, longest, total
from ackproof.rundir.bounds import Span, Unit, Window

_SHORT: Final = f"gaps below {LEAST_GAP_S:g} s are not told apart"


def _each(evidence: Evidence, ask: Ask, window: Window) -> list[tuple[Gap, str]] | str:
    """The gaps that count, each with why it is not one number."""
    spans = evidence.spans(window)
    if isinstance(spans, str):
        return spans
    found = GAPS[ask.quantity.variant](evidence, ask.place)
    if isinstance(found, str):
        return found
    if not any(one.met(*span) for one in found.values() for span in spans):
        return "nothing was there to be seen within that time"
    counted = partial(_between_faults, evidence) if window.span is Span.OUTSIDE else _whole
    return [
        (part, part.why.format(where=where))
        for where, one in found.items()
        for gap in one.gaps
        for part in counted(gap, spans)
    ]


def _whole(gap: Gap, spans: Spans) -> list[Gap]:
    return [gap] if any(gap.met(*span) for span in spans) else []


def _between_faults(evidence: Evidence, gap: Gap, spans: Spans) -> list[Gap]:
    """Its parts that no fault was at work in: what a fault began lasts since a moment before it, the last success, and
    would else be outside of it. The end of the load ends no gap: how it went on then is known, or open."""
    return [
        gap.part(begin, math.inf if end == evidence.load_ends else end)
        for begin, end in spans
        if gap.met(begin, end)
    ]


def _longest(evidence: Evidence, ask: Ask, window: Window) -> Value:
    each = _each(evidence, ask, window)
    if isinstance(each, str):
        return Value.unknown(each)
    return longest([Value(0, LEAST_GAP_S, _SHORT), *(Value(gap.low_s, gap.high_s, why) for gap, why in each)])


def _added(evidence: Evidence, ask: Ask, window: Window, *, lengths: bool) -> Value:
    """The gaps above D: how long they are together, or how many."""
    each = _each(evidence, ask, window)
    if isinstance(each, str):
        return Value.unknown(each)
    assert ask.above_s is not None
    values = [Value.exactly(0)]
    for gap, why in each:
        low, high = (gap.low_s, gap.high_s) if lengths else (1.0, 1.0)
        if gap.low_s > ask.above_s:
            values.append(Value(low, high, why if lengths else ""))
        elif gap.high_s > ask.above_s:
            values.append(Value(0, high, why))
    return total(values)


_WHERE: Final = {
    "produce": (
        "partitions",
        "two successive acknowledgements of a partition",
        "ledger/produced: done_ns of what was acknowledged",
        "Open above where the load ended in a gap in which something was sent or given up that was never acknowledged, "
        "and not taken back by its producer with its transaction; unknown where nothing was sent.",
        None,
    ),
    "read": (
        "partitions",
        "two successive records of a partition that live readers, all together, were handed",
        "ledger/consumed: read_ns of live reads",
        "Open above where live readers were never handed the last acknowledged record, or nobody knows which that is "
        "(acks=0); unknown where nothing was acknowledged or read, or there is no live reader.",
        Witness.READERS,
    ),
    "commit": (
        "readers",
        "two successive commits of offsets of a reader that the group coordinator took, or the first attempt and the "
        "first of these (`consumers: {commit_every}` is part of it)",
        "clients/*/commits.jsonl",
        "Open above where the load ended before an attempt was answered, or granted; unknown where no reader commits.",
        Witness.COMMITS,
    ),
    "metadata": (
        "rounds",
        "two successive rounds in which some broker answered a Metadata request (with t/p: and named its leader)",
        "observed/brokers.jsonl",
        "At least the rounds in between that nobody answered, at most from the round before to that after, or "
        "to the end of the load.",
        Witness.BROKERS,
    ),
}

_PARTS: Final = "`outside faults` of each gap the parts that no fault was at work in, each for itself"


def _family() -> tuple[Quantity, ...]:  # pragma: no mutate block, makes constants of the module
    found = []
    for operation, (each, between, source, unknown, needs) in _WHERE.items():
        for name, unit, definition, required, measure in (
            (
                "longest_gap",
                Unit.SECONDS,
                f"The longest time between {between}; of all {each} the longest.",
                (),
                _longest,
            ),
            (
                "total_gap",
                Unit.SECONDS,
                f"All times between {between} that are longer than D, added up, over all {each}.",
                (Argument.ABOVE,),
                partial(_added, lengths=True),
            ),
            (
                "gaps",
                Unit.COUNT,
                f"How many times between {between} are longer than D, over all {each}.",
                (Argument.ABOVE,),
                partial(_added, lengths=False),
            ),
        ):
            found.append(
                Quantity(
                    name=name,
                    variant=operation,
                    unit=unit,
                    definition=f"{definition} Within a window: of the gaps that touch it, whole; {_PARTS}.",
                    source=source,
                    unknown=f"{unknown} Unknown, too, where all was over before the window, or came later.",
                    required=required,
                    optional=(Argument.PLACE,),
                    needs=needs,
                    windows=True,
                    measure=measure,
                )
            )
    return tuple(found)


QUANTITIES: Final = _family()
