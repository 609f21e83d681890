"""Report sections about the reference implementation: its predictions, their counterexamples, and simulated runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from ackproof.rundir.anomaly_terms import Chance
from ackproof.rundir.model import PredictedClass, PredictionFile, SimulatedSpread, StoryStep
from ackproof.rundir.timeline import Event, EventKind, IsrChanged, LeaderChanged
from ackproof_reports.facts import CaseFacts
from ackproof_reports.loading import CaseView
from ackproof_reports.story import sequence
from ackproof_reports.wording import ABSENT, duration, number

MAX_DRAWN: Final = 24
"""Greatest number of counterexample diagrams on one page; further ones stay in `prediction.json`."""


@dataclass(frozen=True)
class Story:
    """A counterexample of the prediction: the anomaly classes that it shows, the reason, and its sequence diagram.

    `drawing`: the diagram as SVG; None if an earlier case has the same one (`same_as`), or if the report has too
    many."""

    anomalies: str
    why: str
    drawing: Markup | None
    same_as: str
    """Title of the earlier case that draws the same counterexample; '' if it is drawn here, or not at all."""


def stories_of(facts: Sequence[CaseFacts]) -> list[tuple[Story, ...]]:
    """Return the counterexamples of each case, in the order of the cases; an empty tuple if nothing was
    predicted.
    """
    drawn: dict[tuple[StoryStep, ...], str] = {}
    return [tuple(_stories(fact.case.prediction, fact.title, drawn)) for fact in facts]


def _stories(
    file: PredictionFile | None, title: str, drawn: dict[tuple[StoryStep, ...], str]
) -> Iterator[Story]:
    alike: dict[tuple[StoryStep, ...], list[PredictedClass]] = {}
    for one in file.classes if file else ():
        if one.steps:
            alike.setdefault(one.steps, []).append(one)
    for steps, classes in alike.items():
        names = ", ".join(one.anomaly for one in classes)
        before = drawn.get(steps, "")
        drawing = None
        if not before and len(drawn) < MAX_DRAWN:
            drawn[steps] = title
            drawing = Markup(sequence(steps, classes[0].ending or names, f"The shortest way to: {names}"))
        yield Story(names, classes[0].why, drawing, before)


_COUNTED: Final = (("lost", "lost"), ("duplicate", "duplicates"), ("surfaced", "surfaced"))
_TIMED: Final = (
    ("new_leader_ms", "time to a new leader"),
    ("shrink_ms", "time until an ISR shrank"),
    ("full_isr_ms", "time until all ISRs were full"),
    ("unavailable_ms", "longest gap between acks"),
)
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True)
class ReferenceRow:
    """One quantity (`what`) as predicted, simulated and observed, each as text. `differs`: the differences in words; ""
    for none."""

    what: str
    predicted: str
    simulated: str
    observed: str
    differs: str


@dataclass(frozen=True)
class Reference:
    """Comparison of one case with its prediction and its simulated runs. `notes`: sentences on the limits of the
    comparison."""

    rows: tuple[ReferenceRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Times:
    new_leader_ms: float | None = None
    shrink_ms: float | None = None
    full_isr_ms: float | None = None
    leader: str = ABSENT


def reference_of(case: CaseView, gap_ms: float | None) -> Reference | None:
    """Return the comparison of a case. None if it has no prediction, no simulation and no replay. `gap_ms`:
    longest time between two acknowledgements, observed; None if unknown.
    """
    if case.prediction is None and case.simulation is None and case.conformance is None:
        return None
    times = _times(case.events)
    rows = [*(_count_row(case, name, label) for name, label in _COUNTED), *_timed(case, times, gap_ms)]
    rows.append(_elected(case, times.leader))
    simulation = case.simulation
    notes = []
    if simulation is not None:
        notes.append(
            f"Simulated: the median of {simulation.runs - simulation.incomplete} runs of the model, and from the "
            f"smallest to the largest; batches of {simulation.linger_ms:g} ms, so counts are as coarse"
        )
    if any(row.observed not in (ABSENT, "0") for row in rows):
        notes.append("Times count from the first fault; leaders and ISRs are sampled five times a second")
    if case.starved:
        notes.append("The run was starved: its times say nothing of Kafka, and are not compared")
    return Reference(tuple(rows), tuple(notes))


def _count_row(case: CaseView, name: str, label: str) -> ReferenceRow:
    predicted = case.prediction.find_class(name) if case.prediction else None
    chance = predicted.chance if predicted else None
    spread = case.simulation.spread(name) if case.simulation else None
    coarse = case.simulation.coarseness if case.simulation else 0.0
    seen = case.counts.get(name)
    differs = []
    if seen is not None:
        judged = case.judged.classes if case.judged else ()
        # What expired, or was sent again by a client, is in the count and is no step of Kafka's.
        excused = any(one.anomaly == name and one.forbidden is False for one in judged)
        if chance is Chance.IMPOSSIBLE and seen and not excused:
            differs.append("predicted impossible, and seen")
        if spread is not None and spread.runs and not spread.least - coarse <= seen <= spread.most + coarse:
            differs.append(f"{'more' if seen > spread.most else 'less'} than in any simulated run")
    if chance is Chance.IMPOSSIBLE and spread is not None and spread.seen:
        differs.append("predicted impossible, and simulated")
    return ReferenceRow(
        label,
        ABSENT if chance is None else chance.value,
        _range(spread, lambda value: number(round(value))),
        ABSENT if seen is None else number(seen),
        "; ".join(differs),
    )


def _range(spread: SimulatedSpread | None, told: Callable[[float], str]) -> str:
    if spread is None or not spread.runs:
        return ABSENT
    if spread.least == spread.most:
        return told(spread.p50)
    return f"{told(spread.p50)} ({told(spread.least)} – {told(spread.most)})"


def _timed(case: CaseView, times: _Times, gap_ms: float | None) -> Iterator[ReferenceRow]:
    for name, label in _TIMED:
        spread = case.simulation.spread(name) if case.simulation else None
        seen = gap_ms if name == "unavailable_ms" else getattr(times, name)
        differs = ""
        if case.starved:
            pass  # its times are not Kafka's
        elif spread is not None and spread.runs and seen is not None:
            if seen > 1.5 * spread.most + _SLACK_MS:
                differs = "later than in any simulated run by half and more"
            elif seen < spread.least / 1.5 - _SLACK_MS:
                differs = "earlier than in any simulated run by a third and more"
        elif spread is not None and (spread.runs > 0) != (seen is not None):
            differs = "simulated, not seen" if spread.runs else "seen, never simulated"
        yield ReferenceRow(label, ABSENT, _range(spread, duration), duration(seen), differs)


_SLACK_MS: Final = 250.0
"""Tolerance in ms when times are compared: observed times are those of samples, and late by up to this."""


def _elected(case: CaseView, leader: str) -> ReferenceRow:
    elections = case.conformance.elections if case.conformance else ()
    if not elections:
        return ReferenceRow("who was elected", ABSENT, ABSENT, leader, "")
    differs = ""
    if wrong := next((one for one in elections if one.observed != one.reference), None):
        differs = (
            f"{wrong.topic}/{wrong.partition} epoch {wrong.leader_epoch}: the reference names "
            f"{_who(wrong.reference)}, Kafka {_who(wrong.observed)}"
        )
    named = ", ".join(_who(one.reference) for one in elections[:_ELECTIONS])
    seen = ", ".join(_who(one.observed) for one in elections[:_ELECTIONS])
    more = len(elections) - _ELECTIONS
    seen += f" and {more} more" if more > 0 else ""
    return ReferenceRow("who was elected", named, ABSENT, seen, differs)


_ELECTIONS: Final = 6


def _who(broker: int) -> str:
    return "nobody" if broker < 0 else f"broker {broker}"


def _times(events: tuple[Event, ...]) -> _Times:
    first = next((event.t_ns for event in events if event.kind is EventKind.FAULT_ASKED), None)
    if first is None:
        return _Times()
    before: dict[tuple[str | None, int | None], int] = {}
    whole: dict[tuple[str | None, int | None], int] = {}
    leader = shrink = full = None
    who = ABSENT
    for event in events:
        place = event.topic, event.partition
        what = event.what
        if isinstance(what, LeaderChanged) and what.leader >= 0 and event.t_ns > first and leader is None:
            leader, who = (event.t_ns - first) / _NS_PER_MS, _who(what.leader)
        if not isinstance(what, IsrChanged):
            continue
        size = len(what.isr)
        if event.t_ns > first and size < before.get(place, size) and shrink is None:
            shrink = (event.t_ns - first) / _NS_PER_MS
        before[place] = size
        whole[place] = max(size, whole.get(place, 0))
        if event.t_ns > first and shrink is not None and before == whole:
            full = (event.t_ns - first) / _NS_PER_MS
    return _Times(leader, shrink, full, who)
