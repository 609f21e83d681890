"""Availability: for how long nothing was acknowledged, and live readers were handed nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ackproof.quantities.evidence import Evidence, Spans
from ackproof.quantities.quantity import LEAST_GAP_S, Argument, Ask, Quantity, Witness
from ackproof.quantities.value import Value, longest, total
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from ackproof.quantities.ledgers import Asked

PRODUCE: Final = "produce"
READ: Final = "read"
_CUT: Final = "the end of the load cut a gap on {place} at {length:.3f} s"
_SHORT: Final = f"gaps below {LEAST_GAP_S:g} s are not told apart"


class Gap(NamedTuple):
    """From one success to the next, in ns; `cut`: the load ended first, and somebody was still waiting."""

    begin: float
    end: float
    cut: bool = False

    @property
    def s(self) -> float:
        """How long it is, or was when the load ended."""
        return (self.end - self.begin) / 1e9


def gaps(evidence: Evidence, operation: str, place: TopicPartition) -> list[Gap]:
    """The gaps of one partition that are longer than `LEAST_GAP_S`, in order."""
    one = (evidence.ledgers.produced if operation == PRODUCE else evidence.ledgers.read).get(place)
    first, last = one.done.bins if one is not None else ((), ())
    found = [
        Gap(int(end), int(begin))
        for end, begin in zip(last[:-1], first[1:], strict=True)
        if begin - end > LEAST_GAP_S * 1e9
    ]
    cut = _unanswered(evidence, place, one) if operation == PRODUCE else _unread(evidence, place, one)
    return found if cut is None else [*found, cut]


def _unanswered(evidence: Evidence, place: TopicPartition, one: Asked | None) -> Gap | None:
    """The gap behind the last acknowledgement, if something was sent or given up in it."""
    if one is None:
        return None
    last = one.done.last
    begin = one.begun_ns if last is None else last
    if last is not None and one.waiting_ns <= last:
        return None
    return Gap(begin, max(evidence.load_ends, one.waiting_ns), cut=True)


def _unread(evidence: Evidence, place: TopicPartition, one: Asked | None) -> Gap | None:
    """The gap behind the last read, if a record that live readers were not handed was acknowledged, or lay below the
    high watermark where acknowledgements name no offset."""
    sent = evidence.ledgers.produced.get(place)
    acked = sent.done.last if sent is not None else None
    if sent is None or acked is None:
        return None
    end = sent.last_offset if sent.last_offset >= 0 else _seen_end(evidence, place) - 1
    had = -1 if one is None else one.last_offset
    if end <= had:
        return None
    last = one.done.last if one is not None else None
    begin = int(sent.done.bins[0][0]) if last is None else last
    return Gap(begin, max(evidence.load_ends, begin), cut=True)


def _seen_end(evidence: Evidence, place: TopicPartition) -> int:
    return max((sample.high_watermark for sample in evidence.samples_of.get(place, ())), default=0)


def _places(evidence: Evidence, ask: Ask) -> list[TopicPartition]:
    ledgers = evidence.ledgers
    known = {**ledgers.produced, **(ledgers.read if ask.quantity.variant == READ else {})}
    return [place for place in sorted(known) if ask.place in (None, place)]


def _met(found: Sequence[Gap], spans: Spans) -> list[Gap]:
    """Those that have a moment in common with a window, whole."""
    return [gap for gap in found if any(gap.begin < end and begin < gap.end for begin, end in spans)]


def _each(evidence: Evidence, ask: Ask, window: Window) -> list[tuple[TopicPartition, list[Gap]]] | str:
    spans = evidence.spans(window)
    if isinstance(spans, str):
        return spans
    places = _places(evidence, ask)
    if not places:
        return f"nothing was sent to {ask.place}" if ask.place else "nothing was sent"
    return [(place, _met(gaps(evidence, ask.quantity.variant, place), spans)) for place in places]


def _longest(evidence: Evidence, ask: Ask, window: Window) -> Value:
    each = _each(evidence, ask, window)
    if isinstance(each, str):
        return Value.unknown(each)
    values = [Value(0, LEAST_GAP_S, _SHORT)]
    for place, found in each:
        for gap in found:
            why = _CUT.format(place=place, length=gap.s) if gap.cut else ""
            values.append(Value(gap.s, math.inf if gap.cut else gap.s, why))
    return longest(values)


def _added(evidence: Evidence, ask: Ask, window: Window, *, lengths: bool) -> Value:
    """The gaps above D: how long they are together, or how many."""
    each = _each(evidence, ask, window)
    if isinstance(each, str):
        return Value.unknown(each)
    above = ask.above_s or 0.0
    values = [Value.exactly(0)]
    for place, found in each:
        for gap in found:
            size = gap.s if lengths else 1.0
            why = _CUT.format(place=place, length=gap.s) if gap.cut else ""
            if gap.s > above:
                values.append(Value(size, math.inf if gap.cut and lengths else size, why if lengths else ""))
            elif gap.cut:
                values.append(Value(0, math.inf if lengths else 1, why))
    return total(values)


_WHERE: Final = {
    PRODUCE: (
        "two successive acknowledgements of a partition",
        "ledger/produced: done_ns of what was acknowledged",
        "Open above where the load ended in a gap in which something was sent or given up that was never acknowledged",
        None,
    ),
    READ: (
        "two successive records of a partition that live readers, all together, were handed",
        "ledger/consumed: read_ns of live reads",
        "Open above where live readers had not been handed the last acknowledged record when the load ended",
        Witness.READERS,
    ),
}


def _family() -> tuple[Quantity, ...]:
    found = []
    for operation, (between, source, unknown, needs) in _WHERE.items():
        for name, unit, definition, required, measure in (
            (
                "longest_gap",
                Unit.SECONDS,
                f"The longest time between {between}; of all partitions the longest.",
                (),
                _longest,
            ),
            (
                "total_gap",
                Unit.SECONDS,
                f"All times between {between} that are longer than D, added up, over all partitions.",
                (Argument.ABOVE,),
                partial(_added, lengths=True),
            ),
            (
                "gaps",
                Unit.COUNT,
                f"How many times between {between} are longer than D, on all partitions.",
                (Argument.ABOVE,),
                partial(_added, lengths=False),
            ),
        ):
            found.append(
                Quantity(
                    name=name,
                    variant=operation,
                    unit=unit,
                    definition=f"{definition} Within a window: of the gaps that touch it, whole.",
                    source=source,
                    unknown=f"{unknown}; unknown where nothing was sent.",
                    required=required,
                    optional=(Argument.PLACE,),
                    needs=needs,
                    windows=True,
                    measure=measure,
                )
            )
    return tuple(found)


QUANTITIES: Final = _family()
