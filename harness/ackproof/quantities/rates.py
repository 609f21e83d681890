"""Quantities of clients' requests: rates, latencies, outcomes and errors of all attempts, or of those in a window."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Argument, Ask, Quantity, Unknown, Value, Witness, quantile_share
from ackproof.rundir.bounds import Unit, Window
from ackproof.rundir.lifelines import Spans
from ackproof.rundir.outcome import Outcome

if TYPE_CHECKING:
    from ackproof.quantities.ledgers import Tally

_UNSENT: Final = "nothing was sent then, and nothing told that was sent before"
QUANTILES: Final = ("p50", "p95", "p99", "p99.9")
"""Quantiles of latency that are measured in every run. An experiment may ask for any other."""


def _tally(evidence: Evidence, ask: Ask, spans: Spans) -> Tally:
    from ackproof.quantities.ledgers import Tally

    whole = Tally()
    for place, one in evidence.ledgers.tally(spans).items():
        if ask.place in (None, place):
            whole.add(one)
    return whole


def _latency(evidence: Evidence, ask: Ask, window: Window) -> Value:
    tally = _tally(evidence, ask, evidence.spans(window))
    if tally.longest_ns < 0:
        raise Unknown("nothing was acknowledged")
    share = quantile_share(ask.quantity.variant)
    if share is None:
        return Value.exactly(tally.longest_ns / 1e9)
    found = tally.quantile(share)
    assert found is not None
    low, high = found
    return Value(low / 1e9, min(high, tally.longest_ns) / 1e9)


def _rate(evidence: Evidence, ask: Ask, window: Window) -> Value:
    under_load, length = evidence.under_load(window), evidence.load_s(window)
    if ask.quantity.variant == "produce":
        return Value.exactly(_tally(evidence, ask, under_load).outcomes[int(Outcome.ACKED)] / length)
    reads = evidence.ledgers.reads(under_load)
    return Value.exactly(sum(count for place, count in reads.items() if ask.place in (None, place)) / length)


def _attempts(outcome: Outcome, evidence: Evidence, ask: Ask, window: Window) -> Value:
    tally = _tally(evidence, ask, evidence.spans(window))
    count = tally.outcomes[int(outcome)]
    return Value.exactly(count) if outcome is Outcome.ACKED else _of_bad(count, tally)


def _errors(evidence: Evidence, ask: Ask, window: Window) -> Value:
    tally = _tally(evidence, ask, evidence.spans(window))
    every = sum(count for code, count in tally.errors.items() if code)
    return _of_bad(every if ask.code is None else tally.errors[ask.code], tally)


def _of_bad(count: int, tally: Tally) -> Value:
    """Return a number of failures as a value. A count of 0 becomes unknown if no attempt was sent or reported in the
    time that the tally covers: it then proves nothing."""
    return Value.exactly(count) if count or tally.at_work else Value.unknown(_UNSENT)


_of_load = partial(Quantity, optional=(Argument.PLACE,), windows=True)
_PRODUCED: Final = "ledger/produced"
_WINDOW: Final = "Unknown where the window never was"
_VACUOUS: Final = (
    f"{_WINDOW}; where nothing was sent in it, nor told that was sent before, an absence says nothing."
)


def latency(quantile: str) -> Quantity:
    """Return the definition of the quantity `latency(quantile)`: the time from a produce call to its acknowledgement.
    `quantile`: a word such as `p95`, or `max`."""
    is_max = quantile == "max"
    return _of_load(
        name="latency",
        variant=quantile,
        stands_for="" if is_max else "pN",
        unit=Unit.SECONDS,
        definition=(
            "The longest time from a produce call to its acknowledgement."
            if is_max
            else "The time from the produce call that N % of all acknowledgements did not exceed; any quantile, "
            "such as p50, p95 or p99.99."
        )
        + " Within a window: of those that came in it.",
        source=f"{_PRODUCED}: done_ns - sent_ns of what was acknowledged",
        unknown=f"{'' if is_max else 'Known to 0.05 %. '}{_WINDOW}, or nothing was acknowledged in it.",
        measure=_latency,
    )


QUANTITIES: Final = (
    *map(latency, (*QUANTILES, "max")),
    _of_load(
        name="rate",
        variant="produce",
        unit=Unit.PER_SECOND,
        definition="Acknowledgements per second under load, from when clients are started until producers close.",
        source=f"{_PRODUCED}, timeline.jsonl",
        unknown=f"{_WINDOW}, or lies outside the load.",
        falls=True,
        measure=_rate,
    ),
    _of_load(
        name="rate",
        variant="read",
        unit=Unit.PER_SECOND,
        definition="Records per second that live readers are handed under load.",
        source="ledger/consumed, timeline.jsonl",
        unknown=f"{_WINDOW}, or lies outside the load.",
        needs=Witness.READERS,
        falls=True,
        measure=_rate,
    ),
    *(
        _of_load(
            name="attempts",
            variant=outcome.name.lower(),
            unit=Unit.COUNT,
            definition=f"Produce attempts that ended as {outcome.name.lower()}. Within a window: by when they were "
            "told, or, if they never were, sent.",
            source=f"{_PRODUCED}: outcome",
            unknown=f"{_WINDOW}." if outcome is Outcome.ACKED else _VACUOUS,
            falls=outcome is Outcome.ACKED,
            measure=partial(_attempts, outcome),
        )
        for outcome in Outcome
    ),
    _of_load(
        name="errors",
        unit=Unit.COUNT,
        definition="Produce attempts that ended with an error, or with this code, Kafka's or librdkafka's (`code 19`, "
        "`code -192`).",
        source=f"{_PRODUCED}: error",
        unknown=_VACUOUS,
        optional=(Argument.CODE, Argument.PLACE),
        measure=_errors,
    ),
)
