"""Quantities of each metric in `rundir.metrics`, measured from scrapes of the nodes.

Every metric has `time_to(metric M > X, fault N)`. Gauges and latencies have `metric_max(M)` and
`metric_last(M)`, gauges also `metric(M)` over time. Counters have `metric_increase(M)`. Nodes are scraped once
a second, so a time or an increase is a range: its ends are what the scrapes before and after an event allow. A
hole in the scrapes (a live node that did not answer) widens the range, or makes it unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.over_time import Observations
from ackproof.quantities.quantity import (
    Argument,
    Ask,
    Quantity,
    State,
    Unknown,
    Value,
    Witness,
    longest,
    total,
)
from ackproof.quantities.scrapes import HOLE_NS, Round, Scraped, ScrapedObservations, scraped
from ackproof.quantities.times import between, not_until
from ackproof.rundir.bounds import Bound, Unit, Window
from ackproof.rundir.metrics import METRICS, Metric, Shape

Measure = Callable[[Metric, Evidence, Ask, Window], Value]


def _scraped(metric: Metric, evidence: Evidence, ask: Ask) -> Scraped:
    """Return a metric over time, of the node that `ask` names, or of all nodes combined: its number at each round of
    scrapes, and the times without usable scrapes (holes). Raises `Unknown` if no node ever answered with the metric."""
    found = scraped(evidence, metric, ask.node)
    if isinstance(found, str):
        raise Unknown(found)
    return found


def _time_to(metric: Metric, evidence: Evidence, ask: Ask, _: Window) -> Value:
    """Measure the time from a fault to the first round of scrapes in which the metric meets the comparison `ask.shows`.
    Of a counter, the increase since the last round before the fault is compared.

    The metric began to meet it between that round and the round before, or in a hole (time without usable scrapes)
    before that round. If no round meets it, there is no upper bound. Raises `Unknown` if the fault was not confirmed,
    if no round came before it, or if a metric that is no counter met the comparison before it.
    """
    (life, _confirmed), found = evidence.confirmed_fault(ask.fault), _scraped(metric, evidence, ask)
    assert ask.shows is not None
    shows = ask.shows
    before = [one for one in found.rounds if one.done_ns <= life.asked]
    hole = found.hole(life.asked, math.inf)
    if not before:
        hidden = found.hole(-math.inf, life.asked)
        raise Unknown(f"{metric.name} was not told before the fault{f': {hidden}' if hidden else ''}")
    base = (before[-1].number or 0.0) if metric.shape is Shape.COUNTER else 0.0
    if metric.shape is not Shape.COUNTER and _is_shown(before[-1], shows, base):
        raise Unknown(f"{metric.name} was {shows} before the fault, at {before[-1].t_ns / 1e9:.3f} s")
    last = before[-1]
    for one in found.rounds[len(before) :]:
        if _is_shown(one, shows, base):
            since, why = max(last.t_ns, life.asked), ""
            if hole is not None and hole.begin < one.t_ns:
                since, why = max(int(hole.begin), life.asked), str(hole)
            seen = between(life, since, one.done_ns)
            return Value(seen.low, seen.high, why)
        last = one
    never = f"{metric.name} was not {shows}"
    if hole is None:
        return not_until(life, max(last.t_ns, life.asked), never)
    since = max(int(hole.begin), life.asked)
    return Value(between(life, since, since).low, math.inf, f"{never} in any scrape; {hole}")


def _is_shown(one: Round, shows: Bound, base: float) -> bool:
    return one.number is not None and shows.holds(one.number - base)


def _max(metric: Metric, evidence: Evidence, ask: Ask, window: Window) -> Value:
    found, values = _scraped(metric, evidence, ask), []
    for begin, end in evidence.under_load(window):
        numbers = [one.number for one in found.inside(begin, end) if one.number is not None]
        hole = found.hole(begin, end)
        if numbers:
            values.append(Value.at_least(max(numbers), str(hole or "")))
        elif hole:
            values.append(Value.unknown(str(hole)))
    if not values:
        raise Unknown(f"no scrape told {metric.name} then")
    return longest(values)


def _last(metric: Metric, evidence: Evidence, ask: Ask, window: Window) -> Value:
    found = _scraped(metric, evidence, ask)
    for begin, end in reversed(evidence.under_load(window)):
        inside = found.inside(begin, end)
        if hole := found.hole(inside[-1].t_ns if inside else begin, end):
            raise Unknown(str(hole))
        if inside:
            return Value.exactly(inside[-1].number or 0.0)
    raise Unknown(f"no scrape told {metric.name} then")


def _increase(metric: Metric, evidence: Evidence, ask: Ask, window: Window) -> Value:
    """Measure how much a counter increased in a window, under load. Raises `Unknown` if no scrape has the
    counter, or if the window lies outside the load.

    The lower bound is the increase between rounds inside the window; the upper bound is that between the rounds around
    it. There is no upper bound if one of these is missing, the scrapes have a hole, or a process ended in the window.
    """
    found, spans = _scraped(metric, evidence, ask), evidence.under_load(window)
    told = found.inside(-math.inf, math.inf)
    values = []
    if not told:
        raise Unknown(str(found.hole(-math.inf, math.inf) or f"no scrape told {metric.name}"))
    for begin, end in spans:
        inside = [one for one in found.inside(begin, end) if one.done_ns < end]
        least = (inside[-1].number or 0.0) - (inside[0].number or 0.0) if inside else 0.0
        before = [one for one in told if one.done_ns <= begin]
        behind = [one for one in told if one.t_ns >= end]
        if hole := found.hole(begin, end) or found.lost(begin, end):
            values.append(Value.at_least(least, str(hole)))
        elif not before or not behind:
            edge = f"before {begin / 1e9:.3f} s" if not before else f"after {end / 1e9:.3f} s"
            values.append(Value.at_least(least, f"no scrape told {metric.name} {edge}"))
        else:
            values.append(Value(least, (behind[0].number or 0.0) - (before[-1].number or 0.0)))
    if not values:
        raise Unknown(f"no scrape told {metric.name} then")
    return total(values)


def _observations(metric: Metric, evidence: Evidence, ask: Ask) -> Mapping[str, Observations]:
    found = _scraped(metric, evidence, ask)
    known = [(one.t_ns, one.number) for one in found.rounds if one.number is not None]
    return {
        str(ask): ScrapedObservations(
            [time for time, _ in known], [number for _, number in known], found.holes
        )
    }


_FROM: Final = "observed/metrics.parquet, timeline.jsonl"
_HOLE: Final = f"a live node did not answer for more than {HOLE_NS / 1e9:.0f} s"
_NODES: Final = "Without node N: over all nodes that answered, combined as the metric's row says."
_SHOWN: Final = (Shape.GAUGE, Shape.LATENCY)


def _each_metric(
    name: str,
    shapes: Iterable[Shape],
    measure: Measure | None,
    definition: str,
    unknown: str,
    *,
    prefix: str = "",
    required: tuple[Argument, ...] = (),
    unit: Unit | None = None,
    windows: bool = True,
) -> tuple[Quantity, ...]:  # pragma: no mutate block, makes constants of the module
    return tuple(
        Quantity(
            name=name,
            variant=f"{prefix}{metric.name}",
            stands_for=f"{prefix}M",
            unit=unit or (Unit.SECONDS if metric.shape is Shape.LATENCY else Unit.COUNT),
            compared=Unit.SECONDS if metric.shape is Shape.LATENCY else Unit.COUNT,
            definition=f"{definition} {_NODES}",
            source=_FROM,
            unknown=unknown,
            required=required,
            optional=(Argument.NODE,),
            needs=Witness.METRICS,
            mode=metric.mode,
            windows=windows,
            takes_time=measure is not None and (unit is not None or metric.shape is Shape.LATENCY),
            measure=None if measure is None else partial(measure, metric),
            state=None if measure is not None else State(among=partial(_observations, metric)),
        )
        for metric in METRICS.values()
        if metric.shape in shapes
    )


QUANTITIES: Final = (
    *_each_metric(
        "time_to",
        Shape,
        _time_to,
        "Time from the beginning of fault N until a scrape showed M > X. For a counter, its increase since the last "
        "scrape before the fault is compared with X. The fault began between its request and its confirmation.",
        f"Between two scrapes; the lower bound is earlier if {_HOLE}. No upper bound if no scrape showed it. Unknown "
        "if the fault was not confirmed, if no scrape came before it, if M > X before it (not a counter), or if no "
        "node has M.",
        prefix="metric ",
        required=(Argument.SHOWS, Argument.FAULT),
        unit=Unit.SECONDS,
        windows=False,
    ),
    *_each_metric(
        "metric",
        (Shape.GAUGE,),
        None,
        "Number of M at each scrape.",
        f"Without a violation, `always` and `never` are unknown if {_HOLE}. Unknown if no node has M.",
        unit=Unit.NUMBER,
    ),
    *_each_metric(
        "metric_max",
        _SHOWN,
        _max,
        "Greatest M in a scrape under load, or in the window.",
        f"No upper bound if {_HOLE}. Unknown if no scrape has M.",
    ),
    *_each_metric(
        "metric_last",
        _SHOWN,
        _last,
        "M in the last scrape under load, or in the window.",
        f"Unknown if {_HOLE} after it, or if no scrape has M.",
    ),
    *_each_metric(
        "metric_increase",
        (Shape.COUNTER,),
        _increase,
        "Increase of M under load, or in the window. A node that starts again counts from 0.",
        "Lower bound: the scrapes within the window. Upper bound: the scrapes before and after it. No upper bound if "
        f"one of these is missing, if a node ended in the window (its last counts are lost), or if {_HOLE}. Unknown if "
        "no node has M.",
    ),
)
