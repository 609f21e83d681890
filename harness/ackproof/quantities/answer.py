"""One expectation on one quantity of one run, held against the evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import product

from ackproof.base.errors import BadInput
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import Looks, over_time
from ackproof.quantities.quantity import Argument, Ask, Quantity, Value, Witness
from ackproof.quantities.vocabulary import VOCABULARY, is_count
from ackproof.rundir.bounds import WHOLE, Bound, Span, Unit, Window
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import DELETED


@dataclass(frozen=True)
class Answer:
    """Answer to an expectation. `holds` None: unknown, and `why` says what is cut or missing.

    `broken`: an upper bound was exceeded, or a state was wrong; else an expectation that does not hold is merely not
    shown. `value`: the number; None of a state.
    """

    seen: str
    holds: bool | None
    broken: bool = False
    why: str = ""
    value: Value | None = field(default=None, compare=False)


def measured(evidence: Evidence, ask: Ask, window: Window) -> Value:
    """Measure a quantity that is no state. Files that cannot be read make it unknown."""
    import pyarrow as pa

    assert ask.quantity.measure is not None
    if not is_count(str(ask)) and any(evidence.run.produced.glob(f"client=*/{DELETED}")):
        return Value.unknown("ledgers of it were deleted while it went on (--keep)")
    try:
        return ask.quantity.measure(evidence, ask, window)
    except (BadInput, OSError, pa.ArrowException) as error:
        return Value.unknown(f"its files cannot be read: {error}")


def answered(
    evidence: Evidence, ask: Ask, bound: Bound, known: Callable[[Value], Value] = lambda value: value
) -> Answer:
    """Answer a question with its bound. `known`: adjusts a number that was measured."""
    if ask.quantity.state is not None:
        state = over_time(evidence, ask, bound)
        return Answer(state.text, state.holds, state.holds is False, state.why)
    value = known(measured(evidence, ask, bound.window))
    holds = bound.holds_between(value.low, value.high)
    why = (value.why or "it is not known more closely") if holds is None else ""
    return Answer(value.text(bound.unit), holds, bound.is_exceeded_by(value.low, value.high), why, value)


ABOVE_S = 1.0
"""Rows count gaps above this length."""
_ANY = Bound(">", 0, Unit.NUMBER)


@dataclass(frozen=True)
class Row:
    """One number. `low` and `high` are its bounds; of a state the least and the greatest that was seen.

    `partition` empty: all together; `window` empty: the whole run.
    """

    quantity: str
    partition: str
    window: str
    unit: str
    low: float
    high: float
    why: str
    timing: str = ""
    """Whose time-outs a time was measured under; '' of what is none, and in runs of older versions."""


def rows(evidence: Evidence, *, partitions: bool = True) -> Iterator[Row]:
    """Yield every quantity of a run as rows.

    Of all partitions and (with `partitions`) of each, after each fault, within and without faults; of metrics where
    they were scraped, of all nodes together, and what an alert above 0 would have shown.
    """
    places = sorted(evidence.samples_of) if partitions else []
    nodes = sorted({node for sample in evidence.samples for node in sample.replicas})
    viewers = sorted({told.viewer for one in evidence.rounds for told in one.told})
    for quantity in VOCABULARY.values():
        if not _looked_for(quantity, evidence):
            continue
        for ask in _asks(quantity, [None, *places], sorted(evidence.faults), nodes, viewers):
            for window in _windows(quantity):
                yield _row(evidence, ask, window)


def _looked_for(quantity: Quantity, evidence: Evidence) -> bool:
    """Return True if the run has the evidence of a quantity that only some experiments ask for."""
    made_of: dict[Witness | None, Sized] = {
        Witness.METRICS: evidence.scrapes,
        Witness.BROKERS: evidence.rounds,
        Witness.SOURCES: evidence.fetching,
        Witness.COMMITS: evidence.commits,
    }
    return quantity.needs not in made_of or bool(made_of[quantity.needs])


def _asks(
    quantity: Quantity,
    places: Sequence[TopicPartition | None],
    faults: Sequence[int],
    nodes: Sequence[int],
    viewers: Sequence[int],
) -> Iterator[Ask]:
    above = ABOVE_S if Argument.ABOVE in quantity.required else None
    shows = _ANY if Argument.SHOWS in quantity.required else None
    if shows is not None and quantity.compared is Unit.SECONDS:
        return  # every latency is above 0
    for fault, node, viewer, place in product(
        faults if Argument.FAULT in quantity.required else [None],
        nodes if Argument.NODE in quantity.required else [None],
        viewers if Argument.VIEWER in quantity.required else [None],
        places if Argument.PLACE in quantity.optional else [None],
    ):
        if quantity.state is None or quantity.state.among is not None or place is not None:
            yield Ask(quantity, fault, above, None, place, node, shows, viewer)


def _windows(quantity: Quantity) -> Sequence[Window]:
    if not quantity.windows:
        return [WHOLE]
    return [WHOLE, Window(Span.DURING_FAULTS), Window(Span.OUTSIDE)]


def _row(evidence: Evidence, ask: Ask, window: Window) -> Row:
    value = measured(evidence, ask, window) if ask.quantity.state is None else _range(evidence, ask, window)
    name = str(replace(ask, place=None))
    place = "" if ask.place is None else str(ask.place)
    unit = ask.quantity.unit
    timing = evidence.timing if unit is Unit.SECONDS else ""
    return Row(name, place, str(window), unit.value, value.low, value.high, value.why, timing)


def _range(evidence: Evidence, ask: Ask, window: Window) -> Value:
    spans = evidence.spans(window)
    if isinstance(spans, str):
        return Value.unknown(spans)
    state = ask.quantity.state
    assert state is not None
    if state.among is not None:
        found = state.among(evidence, ask)
    else:
        assert ask.place is not None
        found = {"": Looks.read(evidence, state, ask.place)}
    if isinstance(found, str):
        return Value.unknown(found)
    numbers = [
        number for looks in found.values() for begin, end in spans for _, number in looks.inside(begin, end)
    ]
    return Value(min(numbers), max(numbers)) if numbers else Value.unknown("no look tells it")
