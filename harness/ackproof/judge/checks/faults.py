"""Whether each fault bit and was healed, as its witnesses say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, lacks
from ackproof.rundir.timeline import Event, EventKind, FaultFailed, fault_name


def check(facts: Facts) -> Iterator[Opinion]:
    """Lacks of the faults, by their numbers."""
    for fault in facts.case.faults:
        name = f"fault {fault_name(fault.number)} ({fault})"
        for text in _lacks([event for event in facts.events if event.fault == fault.number]):
            yield lacks(f"{name}{text}")


def _lacks(events: Sequence[Event]) -> Iterator[str]:
    kinds = {event.kind for event in events}
    if EventKind.FAULT_FAILED in kinds:
        for event in events:
            if isinstance(event.what, FaultFailed):
                yield f": {event.what.reason}"
    elif EventKind.FAULT_MISSED in kinds:
        return  # drawn by a storm, which says whether enough of them bit
    elif EventKind.FAULT_ASKED not in kinds:
        yield " was never injected"
    elif EventKind.FAULT_CONFIRMED not in kinds:
        yield " was not confirmed"
    elif EventKind.FAULT_RECOVERED not in kinds:
        yield " was not confirmed as healed"
