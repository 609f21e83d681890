"""Report sections about recovery: times after faults, what has not recovered, and metrics of the nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from ackproof.base.errors import BadInput
from ackproof.quantities.answer import measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Argument, Ask, Quantity, Value, Witness
from ackproof.quantities.scrapes import Scraped, scraped
from ackproof.quantities.vocabulary import VOCABULARY
from ackproof.repeats.demand import span_text
from ackproof.repeats.intervals import spread_of
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.bounds import WHOLE, Bound, Unit
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.metrics import METRICS, Shape
from ackproof.rundir.narrator import tell_event
from ackproof.rundir.observed import RecoveryFile, Unrecovered
from ackproof.rundir.timeline import Event, EventKind, read_timeline
from ackproof_reports.answer import by_experiment
from ackproof_reports.course import struck_faults
from ackproof_reports.expectations import RepeatsView, picture, row_of
from ackproof_reports.facts import CaseFacts
from ackproof_reports.loading import BatchView
from ackproof_reports.picture import Bar, Lanes, ShownTime, draw_lanes, draw_request_lanes, find_shown_time
from ackproof_reports.wording import one_line

MAX_FAULTS: Final = 8
"""Greatest number of faults shown; a storm can draw more."""
PHASES: Final = tuple(
    one
    for one in VOCABULARY.values()
    if one.name == "time_to" and one.required == (Argument.FAULT,) and one.needs is not Witness.METRICS
)
"""The recovery times of the report: quantities `time_to(…)` that need only the number of a fault, and no metrics."""


@dataclass(frozen=True)
class Recovery:
    """Recovery times after each confirmed fault of one run. `after`: each fault with its recovery times, as (name of
    the quantity, time). `left_out`: number of further faults that are not shown.

    `lanes`: a picture of acknowledged and refused records over time, by partition; None if the run has no series.
    """

    after: tuple[tuple[FaultLife, tuple[tuple[str, Value], ...]], ...]
    lanes: Lanes | None
    left_out: int


def evidence_of_run(fact: CaseFacts) -> Evidence | None:
    """Return the evidence from which quantities are measured. None if a file cannot be read, or if the judge judged no
    class because the files are not those that the run wrote."""
    if fact.case.case is None or (fact.case.judged is not None and not fact.case.judged.classes):
        return None
    try:
        return Evidence.of_run(fact.case.run)
    except BadInput:
        return None  # what cannot be read is named in what is absent


def recovery_of(fact: CaseFacts, evidence: Evidence | None) -> Recovery | None:
    """Return the recovery times of a run, after at most `MAX_FAULTS` faults; None without evidence or without a
    confirmed fault."""
    struck = struck_faults(fact.course.faults)
    if evidence is None or not struck:
        return None
    begins = [*(fault.asked_ns or 0 for fault in struck[1:]), math.inf]
    return Recovery(
        tuple(
            (fault, tuple(_phases(evidence, fault.number, (begin - (fault.asked_ns or 0)) / 1e9)))
            for fault, begin in zip(struck[:MAX_FAULTS], begins, strict=False)
        ),
        draw_request_lanes(fact, struck),
        max(0, len(struck) - MAX_FAULTS),
    )


def _phases(evidence: Evidence, fault: int, next_s: float) -> Iterator[tuple[str, Value]]:
    """Yield (name, value) of each recovery time after one fault. `next_s`: seconds from this fault to the next.

    The election of a controller is left out if its time is unknown. It is also left out if it came after the next
    fault, which may be its cause.
    """
    for quantity in PHASES:
        value = measured(evidence, Ask(quantity, fault=fault), WHOLE)
        if quantity.needs is not Witness.QUORUM or (value.is_known and value.high < next_s):
            yield quantity.variant, value


# -- over repeats ---------------------------------------------------------------------------------------------------


def spreads(batch: BatchView, told: Sequence[tuple[CaseFacts, Recovery | None]]) -> list[RepeatsView]:
    """Return a view of each recovery time after each fault, over the repeats of each case that has several.

    Times that no repeat has are left out. `told`: the facts of each case of the batch, with its recovery times (None:
    it has none).
    """
    by_index = {fact.case.index: (fact, recovery) for fact, recovery in told}
    found = []
    for name, cases in by_experiment(batch).items():
        runs = [by_index[case.index] for case in cases]
        whose = f"{name}: " if len(by_experiment(batch)) > 1 else ""
        found += [replace(one, title=whose + one.title) for one in _of_experiment(runs)]
    return found


def _of_experiment(runs: Sequence[tuple[CaseFacts, Recovery | None]]) -> Iterator[RepeatsView]:
    cells: dict[str, list[tuple[CaseFacts, Recovery | None]]] = {}
    for fact, recovery in runs:
        cells.setdefault(fact.case.entry.cell_name, []).append((fact, recovery))
    cells = {name: group for name, group in cells.items() if len(group) > 1}
    faults = {
        fault.number: fault
        for group in cells.values()
        for _, one in group
        for fault, _ in (one.after if one else ())
    }
    for number, fault in sorted(faults.items()):
        for quantity in PHASES:
            values = {
                cell: [_value(*run, quantity, number) for run in group] for cell, group in cells.items()
            }
            if any(value.is_known for group in values.values() for value in group):
                yield _spread(f"After fault {fault.name}, {fault.title}: {quantity.variant}", values)


def _value(fact: CaseFacts, recovery: Recovery | None, quantity: Quantity, number: int) -> Value:
    """Return the recovery time `quantity` after fault `number` in one repeat; unknown if the repeat has none. If the
    machine was starved, it is only an upper bound, so `low` is 0."""
    for fault, phases in recovery.after if recovery else ():
        for name, value in phases:
            if (fault.number, name) == (number, quantity.variant):
                starved = value.is_known and fact.case.starved
                return Value(0.0, value.high, value.why) if starved else value
    return Value.unknown("the fault was not confirmed")


def _spread(title: str, values: dict[str, list[Value]]) -> RepeatsView:
    rows = tuple(row_of(cell, group, Unit.SECONDS) for cell, group in values.items())
    between = None
    if len(values) == 1 and (spread := spread_of(next(iter(values.values())))):
        median = spread.median
        between = (median.low, median.high) if 0 < median.low <= median.high < math.inf else None
    return RepeatsView(title, rows, picture(values, Unit.SECONDS, between))


_OF_A_PLACE: Final = frozenset({EventKind.LEADER, EventKind.ISR})
_MOST_EVENTS: Final = 40


def tell_unrecovered(run: CaseDir, anomaly: str) -> Iterator[str]:
    """Yield lines of text about each finding of this liveness class in a run. Raises `BadInput` if the run has none, or
    for an unreadable `recovery.json`; OSError if the timeline cannot be read."""
    file = RecoveryFile.load(run.recovery) if run.recovery.exists() else None
    found = file.of_class(anomaly) if file is not None else ()
    if file is None or not found:
        raise BadInput(f"{run.path}: no finding of class {anomaly}")
    events, _ = read_timeline(run.timeline)
    for number, one in enumerate(found):
        yield from [""] * bool(number)
        yield f"{anomaly} ({TABLE[anomaly].short})"
        near = [event for event in events if _concerns(event, one)]
        for event in near[-_MOST_EVENTS:]:
            yield f"{event.t_ns / 1e9:9.3f} s  {one_line(tell_event(event), 200)}"
        yield f"  {one_line(one.seen, 600)}"
        yield f"  nothing of it moved for {one.for_s:.1f} s; its bound is {file.bounds.get(anomaly, 0):g} s"


def _concerns(event: Event, one: Unrecovered) -> bool:
    if event.kind in _OF_A_PLACE:
        return (event.topic, event.partition) == (one.topic, one.partition)
    return event.fault is not None or (bool(one.client) and event.client == one.client)


_ABOVE: Final = Bound(">", 0, Unit.NUMBER)
_NONE: Final = Bound("==", 0, Unit.NUMBER)
ALERTS: Final = (
    ("under_replicated_partitions", _ABOVE, "time_to(isr shrunk)"),
    ("isr_shrinks", _ABOVE, "time_to(isr shrunk)"),
    ("isr_expands", _ABOVE, "time_to(isr full)"),
    ("under_min_isr_partition_count", _ABOVE, ""),
    ("offline_partitions_count", _ABOVE, ""),
    ("offline_replica_count", _ABOVE, ""),
    ("fenced_broker_count", _ABOVE, ""),
    ("active_controller_count", _NONE, "time_to(controller elected)"),
    ("leader_elections", _ABOVE, "time_to(new leader)"),
    ("unclean_leader_elections", _ABOVE, ""),
)
"""(metric, alert condition on its value, quantity of the run that the alert should detect); '' if no quantity
is measured for it.
"""


@dataclass(frozen=True)
class Alert:
    """Reaction of one metric's alert to one fault, in words. Times count from the fault. `alert`: metric and condition.

    `shown`: when the metric met the condition. `truth`: when the event happened that the alert is meant to show; '' if
    no quantity measures it. `late`: the delay between the two; `never` if the alert did not fire, `unknown` if it may
    not have fired; '' without a delay. `why`: why `shown` is not exact.
    """

    alert: str
    shown: str
    truth: str
    late: str
    why: str


@dataclass(frozen=True)
class Alerts:
    """Alerts of one run whose nodes' metrics were scraped. `after`: each confirmed fault, at most `MAX_FAULTS`, with
    the reaction of every alert to it. `lanes`: a lane per alert with the times at which it was on."""

    after: tuple[tuple[FaultLife, tuple[Alert, ...]], ...]
    lanes: Lanes
    holes: tuple[str, ...]
    """Times at which metrics are unknown, in words."""


def alerts_of(fact: CaseFacts, evidence: Evidence | None, absent: list[str]) -> Alerts | None:
    """Return the alerts of a run, after at most `MAX_FAULTS` faults; None without evidence, a confirmed fault or
    scraped metrics. None also if the scrapes cannot be read; then `absent` gets a sentence."""
    struck = struck_faults(fact.course.faults)
    if evidence is None or not struck or not evidence.run.metrics.exists():
        return None
    mode = "zookeeper" if evidence.zookeeper else "kraft"
    asked = [one for one in ALERTS if METRICS[one[0]].mode in ("", mode)]
    try:
        told = {name: scraped(evidence, METRICS[name], None) for name, _, _ in asked}
    except (BadInput, OSError, pa.ArrowException) as error:
        absent.append(f"observed/{evidence.run.metrics.name}: cannot be read: {one_line(str(error), 200)}")
        return None
    holes = {str(hole) for one in told.values() if isinstance(one, Scraped) for hole in one.holes}
    return Alerts(
        tuple(
            (fault, tuple(_alert(evidence, *one, fault.number) for one in asked))
            for fault in struck[:MAX_FAULTS]
        ),
        _lanes(fact, struck, [(name, bound, told[name]) for name, bound, _ in asked]),
        tuple(sorted(holes)),
    )


def _alert(evidence: Evidence, name: str, bound: Bound, truth: str, fault: int) -> Alert:
    metric = VOCABULARY[f"time_to(metric {name})"]
    shown = measured(evidence, Ask(metric, fault=fault, shows=bound), WHOLE)
    real = measured(evidence, Ask(VOCABULARY[truth], fault=fault), WHOLE) if truth else None
    return Alert(
        f"{name} {bound}",
        shown.text(Unit.SECONDS),
        real.text(Unit.SECONDS) if real is not None else "",
        _late(shown, real) if real is not None else "",
        shown.why,
    )


def _late(shown: Value, real: Value) -> str:
    """Return the delay of an alert after the event, as text. `never`: the alert did not fire. `unknown`: it may not
    have fired. '': one of the two times is unknown, or the event did not happen."""
    if not (shown.is_known and real.is_known) or real.high == math.inf:
        return ""
    if shown.high == math.inf:
        return "never" if shown.never else "unknown"
    low, high = shown.low - real.high, shown.high - real.low
    return span_text(max(0.0, low), max(0.0, high), Unit.SECONDS)


def _lanes(
    fact: CaseFacts, struck: Sequence[FaultLife], told: Sequence[tuple[str, Bound, Scraped | str]]
) -> Lanes:
    span = find_shown_time(fact, struck)
    rows = []
    for name, bound, one in told:
        bars = list(_bars(span, name, bound, one))
        known = sum(bar.kind == "shown" for bar in bars)
        hidden = sum(bar.kind == "unknown" for bar in bars)
        said = f"{known or 'no'} times {bound}" + (f", unknown {hidden} times" if hidden else "")
        rows.append((name, bars, said))
    return draw_lanes(span, struck, rows)


def _bars(span: ShownTime, name: str, bound: Bound, told: Scraped | str) -> Iterator[Bar]:
    """Yield the bars that show one metric in the time `span`.

    A bar `shown` lies between two successive scrapes: a counter rose between them, or a gauge met `bound` at the first.
    A bar `unknown` lies where scrapes are missing. If `told` is a text (why there is no data), one bar `unknown` covers
    all.
    """
    if isinstance(told, str):
        whole = span.bar(span.begin, span.end, "unknown", "unknown")
        assert whole is not None
        yield whole
        return
    rising = METRICS[name].shape is Shape.COUNTER
    last = None
    for one in told.rounds:
        number = one.number
        if last is not None and last.number is not None and number is not None:
            so = number > last.number if rising else bound.holds(last.number)
            if so and (bar := span.bar(last.t_ns, one.t_ns, "shown")):
                yield bar
        last = one
    for hole in told.holes:
        if bar := span.bar(max(hole.begin, span.begin), min(hole.end, span.end), "unknown", "unknown"):
            yield bar
