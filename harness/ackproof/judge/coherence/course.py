"""The course of a run, as its timeline tells it: its phases, and each fault's life, in order and whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.rundir.timeline import (
    DRAWN_FROM,
    Event,
    EventKind,
    FaultAsked,
    FaultHealed,
    PhaseBegan,
    fault_name,
    seconds,
)

PHASES: Final = ("start", "load", "heal", "drain", "read", "end")
_FAULT: Final = frozenset(
    {
        EventKind.FAULT_ASKED,
        EventKind.FAULT_CONFIRMED,
        EventKind.FAULT_HEALED,
        EventKind.FAULT_RECOVERED,
        EventKind.FAULT_MISSED,
        EventKind.FAULT_FAILED,
    }
)
_BEFORE: Final[Mapping[EventKind, EventKind]] = {
    EventKind.FAULT_CONFIRMED: EventKind.FAULT_ASKED,
    EventKind.FAULT_HEALED: EventKind.FAULT_ASKED,
    EventKind.FAULT_RECOVERED: EventKind.FAULT_HEALED,
}
"""What must have been said of a fault before."""
_ONCE: Final = frozenset({*_BEFORE, EventKind.FAULT_ASKED})


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions of the timeline with itself and with the case."""
    if not facts.events:
        return  # said by the check of the run's end
    began = facts.phases
    yield from map(contradicts, _of_the_phases(facts, tuple(began)))
    yield from map(contradicts, _of_times(facts.events))
    lives: dict[int, list[Event]] = defaultdict(list)
    for event in facts.events:
        if event.fault is not None and event.kind in _FAULT:
            lives[event.fault].append(event)
    for number, events in sorted(lives.items()):
        yield from map(contradicts, _of_a_life(facts, number, events))
        yield from _missed(facts, number, events)
        yield from map(contradicts, _beside_the_phases(number, events, began))


def _of_the_phases(facts: Facts, told: tuple[str, ...]) -> Iterator[str]:
    every = [event.what.phase for event in facts.events if isinstance(event.what, PhaseBegan)]
    through = facts.events[-1].kind is EventKind.END
    if tuple(every) != PHASES[: len(every)]:
        yield f"the timeline has the phases {', '.join(every)}, and a run has {', '.join(PHASES)}"
    elif through and told != PHASES:
        yield f"the timeline has the end of the run, and no phase {', '.join(PHASES[len(told) :])}"
    if any(event.kind is EventKind.END for event in facts.events[:-1]):
        yield "the timeline goes on after the end of the run"


def _of_times(events: Sequence[Event]) -> Iterator[str]:
    """What happened is written when it happens, but for what clients and nodes did, which is heard of later."""
    last: Event | None = None
    for event in events:
        if event.kind not in {*_FAULT, EventKind.PHASE, EventKind.END}:
            continue
        if last is not None and event.t_ns < last.t_ns:
            before, after = (f"{one.kind} at {seconds(one.t_ns)}" for one in (last, event))
            yield f"the timeline goes back from {before} to {after}"
            return
        last = event


def _of_a_life(facts: Facts, number: int, events: Sequence[Event]) -> Iterator[str]:
    name = f"fault {fault_name(number)}"
    spec = next((fault for fault in facts.case.faults if fault.number == number), None)
    if spec is None:
        yield f"the timeline tells of {name}, which the case does not have"
        return
    seen: dict[EventKind, Event] = {}
    for event in events:
        if event.kind in _ONCE & seen.keys():
            yield f"{name} has {event.kind} twice"
        needed = _BEFORE.get(event.kind)
        if needed is not None and needed not in seen:
            yield f"{name} has {event.kind} at {seconds(event.t_ns)} and no {needed} before"
        if event.kind is EventKind.FAULT_CONFIRMED and EventKind.FAULT_HEALED in seen:
            yield f"{name} is confirmed at {seconds(event.t_ns)}, after it was healed"
        if isinstance(event.what, FaultAsked) and event.what.kind != spec.kind:
            yield f"{name} is {event.what.kind} in the timeline and {spec.kind} in the case"
        if isinstance(event.what, FaultHealed) and event.what.begun_ns:
            yield from _of_a_healing(name, event.what.begun_ns, event, seen)
        seen[event.kind] = event
    if {EventKind.FAULT_CONFIRMED, EventKind.FAULT_MISSED} <= seen.keys():
        yield f"{name} was confirmed, and missed"


def _of_a_healing(name: str, begun_ns: int, healed: Event, seen: Mapping[EventKind, Event]) -> Iterator[str]:
    """It begins once the fault was seen to bite, or (of one that did not) was asked for, and is told when it is done:
    windows end where it began."""
    before = seen.get(EventKind.FAULT_CONFIRMED) or seen.get(EventKind.FAULT_ASKED)
    if before is not None and not before.t_ns <= begun_ns <= healed.t_ns:
        yield (
            f"{name} has a healing that began at {seconds(begun_ns)}, and {before.kind} at {seconds(before.t_ns)}, "
            f"{healed.kind} at {seconds(healed.t_ns)}"
        )


def _missed(facts: Facts, number: int, events: Sequence[Event]) -> Iterator[Opinion]:
    if number < DRAWN_FROM and any(event.kind is EventKind.FAULT_MISSED for event in events):
        yield lacks(f"fault {fault_name(number)} missed, and only one that a storm drew may")


def _beside_the_phases(number: int, events: Sequence[Event], began: Mapping[str, int]) -> Iterator[str]:
    """Faults live under load: what counts as after the healing must come after it."""
    first, last = (
        f"fault {fault_name(number)} has {one.kind} at {seconds(one.t_ns)}" for one in (events[0], events[-1])
    )
    if "load" in began and events[0].t_ns < began["load"]:
        yield f"{first}, before the load began"
    if "drain" in began and events[-1].t_ns > began["drain"]:
        yield f"{last}, after the load had ended"
