"""Metrics against the truth: what each metric would have told an alert after a fault, beside what the run itself shows,
and how much later; where a node that lived did not tell its metrics, nothing is known of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ackproof.quantities.answer import measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Ask, Value
from ackproof.quantities.scrapes import Scraped, scraped
from ackproof.quantities.vocabulary import VOCABULARY
from ackproof.repeats.demand import span_text
from ackproof.rundir.bounds import WHOLE, Bound, Unit
from ackproof.rundir.metrics import METRICS, Shape
from ackproof_reports.course import Fault
from ackproof_reports.facts import CaseFacts
from ackproof_reports.lanes import Bar, Lanes, Span, picture_of, span_of
from ackproof_reports.recovery import MAX_FAULTS

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
"""Metric, what an alert asks of it, and the quantity of the run that it should tell; '' none is measured."""


@dataclass(frozen=True)
class Alert:
    """One metric after one fault. `late`: by how much it was behind what happened."""

    alert: str
    shown: str
    truth: str
    late: str
    why: str


@dataclass(frozen=True)
class AfterFault:
    """All metrics after one fault."""

    fault: Fault
    alerts: tuple[Alert, ...]


@dataclass(frozen=True)
class Alerts:
    """Of one run whose nodes were asked for their metrics."""

    after: tuple[AfterFault, ...]
    lanes: Lanes
    holes: tuple[str, ...]
    """Where metrics are unknown, in words."""


def alerts_of(fact: CaseFacts, evidence: Evidence | None) -> Alerts | None:
    """Of a run with metrics and confirmed faults; None of others."""
    struck = [one for one in fact.course.faults if one.confirmed is not None and one.kind != "storm"]
    if evidence is None or not struck or not evidence.run.metrics.exists():
        return None
    mode = "zookeeper" if evidence.zookeeper else "kraft"
    asked = [one for one in ALERTS if METRICS[one[0]].mode in ("", mode)]
    told = {name: scraped(evidence, METRICS[name], None) for name, _, _ in asked}
    holes = {str(hole) for one in told.values() if isinstance(one, Scraped) for hole in one.holes}
    return Alerts(
        tuple(
            AfterFault(fault, tuple(_alert(evidence, *one, fault.number) for one in asked))
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
    """How much later the metric showed it than it was so."""
    if not (shown.known and real.known) or real.high == math.inf:
        return ""
    if shown.high == math.inf:
        return "never" if shown.never else "unknown"
    low, high = shown.low - real.high, shown.high - real.low
    return span_text(max(0.0, low), max(0.0, high), Unit.SECONDS)


def _lanes(
    fact: CaseFacts, struck: Sequence[Fault], told: Sequence[tuple[str, Bound, Scraped | str]]
) -> Lanes:
    span = span_of(fact, struck)
    rows = []
    for name, bound, one in told:
        bars = list(_bars(span, name, bound, one))
        known = sum(bar.kind == "shown" for bar in bars)
        hidden = sum(bar.kind == "unknown" for bar in bars)
        said = f"{known or 'no'} times {bound}" + (f", unknown {hidden} times" if hidden else "")
        rows.append((name, bars, said))
    return picture_of(span, struck, rows)


def _bars(span: Span, name: str, bound: Bound, told: Scraped | str) -> Iterator[Bar]:
    """When the metric was so, from one round to the next; and when nobody told it."""
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
