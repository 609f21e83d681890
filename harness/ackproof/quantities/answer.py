"""Evaluation of one expectation on one quantity of one run, and all quantities of a run as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import product

from ackproof.base.errors import BadInput
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import Observations, over_time
from ackproof.quantities.quantity import Answer, Argument, Ask, Quantity, Unknown, Value, Witness
from ackproof.quantities.vocabulary import VOCABULARY, is_count
from ackproof.rundir.bounds import WHOLE, Bound, Span, Unit, Window
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import DELETED


def measured(evidence: Evidence, ask: Ask, window: Window) -> Value:
    """Return the value of a quantity in a window of a run. For a state (a number that a partition has at every moment,
    such as `isr`) this is the range of its observed numbers; a state of one partition requires `ask.place`.

    The value is unknown, with a reason, if files cannot be read, or if there is no evidence. It is also unknown if the
    run had no such window, for example because the fault of the window was not confirmed. If a soak deleted ledgers,
    all values but those of states and of the audit's counts are unknown.
    """
    import pyarrow as pa

    of_ledgers = ask.quantity.measure is not None and not is_count(str(ask))
    if of_ledgers and any(evidence.run.produced.glob(f"client=*/{DELETED}")):
        return Value.unknown("ledgers of it were deleted while it went on (--keep)")
    try:
        return (ask.quantity.measure or _range)(evidence, ask, window)
    except Unknown as error:
        return Value.unknown(str(error))
    except (BadInput, OSError, pa.ArrowException) as error:
        return Value.unknown(f"its files cannot be read: {error}")


def answered(
    evidence: Evidence, ask: Ask, bound: Bound, known: Callable[[Value], Value] = lambda value: value
) -> Answer:
    """Measure the quantity of `ask` in a run, and compare it with the bound that an experiment demands.

    A quantity is either measured as one number, or a state: a number that changes over time, such as `isr`. `known`
    adjusts a measured number before the comparison, for example widens it for a starved machine; it is not called for a
    state. `Answer.holds` is None without evidence, or if the number is not known closely enough. If files cannot be
    read, a measured number is unknown; for a state the error is raised (`BadInput`, OSError, ArrowException).
    """
    if ask.quantity.state is not None:
        try:
            return over_time(evidence, ask, bound)
        except Unknown as error:
            return Answer("nothing", None, why=str(error))
    value = known(measured(evidence, ask, bound.window))
    holds = bound.holds_between(value.low, value.high)
    why = (value.why or "it is not known more closely") if holds is None else ""
    return Answer(value.text(bound.unit), holds, bound.is_exceeded_by(value.low, value.high), why, value)


ABOVE_S = 1.0
"""The rows of `gaps` and `total_gap` count gaps longer than this, in seconds."""
_ANY = Bound(">", 0, Unit.NUMBER)
_WINDOWS = (WHOLE, Window(Span.DURING_FAULTS), Window(Span.OUTSIDE))


@dataclass(frozen=True)
class Row:
    """One quantity of a run, measured in one window: between `low` and `high`, in `unit`.

    For a state, `low` and `high` are its least and greatest observed numbers. -inf, inf: no bound is known; `why` then
    says the reason. `partition`: '' for all partitions together. `window`: '' for the whole run. `timing`: name of the
    brokers' time-outs under which a time was measured; '' for other quantities and in runs of older versions.
    """

    quantity: str
    partition: str
    window: str
    unit: str
    low: float
    high: float
    why: str
    timing: str = ""


def rows(evidence: Evidence, *, partitions: bool = True) -> Iterator[Row]:
    """Yield every quantity of a run, for all partitions together and (with `partitions`) for each partition. A
    partition's state, such as `isr`, is yielded only for each partition.

    A quantity whose evidence the run did not collect (metrics, brokers' answers, fetch sources, commits, consumer
    groups) is left out. Each quantity is measured for the whole run, and, if it can be measured in windows, for the
    times during faults and outside of faults. A quantity that requires a fault, node, group or viewer (a broker or
    ZooKeeper, asked for its own view) is measured for each of them.

    `gaps` and `total_gap` count gaps above `ABOVE_S`. A metric is combined over all nodes. `time_to` of a metric is the
    time until the metric is above 0; for latencies, which are always above 0, it is left out. Raises `BadInput`,
    OSError or ArrowException if evidence that runs collect on request, or the samples, cannot be read.
    """
    places = sorted(evidence.samples_of) if partitions else []
    nodes = sorted({node for sample in evidence.samples for node in sample.replicas})
    viewers = sorted({told.viewer for one in evidence.rounds for told in one.told})
    groups = [end.group for end in evidence.groups.groups] if evidence.groups is not None else []
    for quantity in VOCABULARY.values():
        if not _looked_for(quantity, evidence):
            continue
        for ask in _asks(quantity, [None, *places], sorted(evidence.faults), nodes, viewers, groups):
            for window in _WINDOWS if quantity.windows else (WHOLE,):
                value = measured(evidence, ask, window)
                name, place = str(replace(ask, place=None)), "" if ask.place is None else str(ask.place)
                timing = evidence.timing if quantity.unit is Unit.SECONDS else ""
                unit = quantity.unit.value
                yield Row(name, place, str(window), unit, value.low, value.high, value.why, timing)


def _looked_for(quantity: Quantity, evidence: Evidence) -> bool:
    """Return True if the run has the evidence for this quantity. False only if it needs evidence that runs collect on
    request, and this run has none of it."""
    made_of: dict[Witness | None, Sized] = {
        Witness.METRICS: evidence.scrapes,
        Witness.BROKERS: evidence.rounds,
        Witness.SOURCES: evidence.fetching,
        Witness.COMMITS: evidence.commits,
        Witness.GROUPS: evidence.groups.groups if evidence.groups is not None else (),
    }
    return quantity.needs not in made_of or bool(made_of[quantity.needs])


def _asks(
    quantity: Quantity,
    places: Sequence[TopicPartition | None],
    faults: Sequence[int],
    nodes: Sequence[int],
    viewers: Sequence[int],
    groups: Sequence[str],
) -> Iterator[Ask]:
    above = ABOVE_S if Argument.ABOVE in quantity.required else None
    shows = _ANY if Argument.SHOWS in quantity.required else None
    if shows is not None and quantity.compared is Unit.SECONDS:
        return  # every latency is above 0
    for fault, node, viewer, group, place in product(
        faults if Argument.FAULT in quantity.required else [None],
        nodes if Argument.NODE in quantity.required else [None],
        viewers if Argument.VIEWER in quantity.required else [None],
        groups if Argument.GROUP in quantity.required else [None],
        places if Argument.PLACE in quantity.optional else [None],
    ):
        if quantity.state is None or quantity.state.among is not None or place is not None:
            yield Ask(quantity, fault, above, None, place, node, shows, viewer, group)


def _range(evidence: Evidence, ask: Ask, window: Window) -> Value:
    spans, state = evidence.spans(window), ask.quantity.state
    assert state is not None
    if state.among is not None:
        found = state.among(evidence, ask)
    else:
        assert ask.place is not None
        found = {"": Observations.read(evidence, state, ask.place)}
    numbers = [
        number
        for observed in found.values()
        for begin, end in spans
        for _, number in observed.inside(begin, end)
    ]
    if not numbers:
        raise Unknown("no observation of it")
    return Value(min(numbers), max(numbers))
