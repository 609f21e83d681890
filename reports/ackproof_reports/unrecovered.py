"""The story of what did not recover: the faults, what became of its partition, and what the cluster said of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.rundir.anomalies import TABLE
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import RecoveryFile, Unrecovered
from ackproof.rundir.timeline import Event, EventKind, read_timeline
from ackproof_reports.one_record import tell_event
from ackproof_reports.wording import one_line

_OF_A_PLACE: Final = frozenset({EventKind.LEADER, EventKind.ISR})
_MOST_EVENTS: Final = 40


def tell_unrecovered(run: CaseDir, anomaly: str) -> Iterator[str]:
    """Each of this class as lines of text. Raises `BadInput` where there is none."""
    file = RecoveryFile.load(run.recovery) if run.recovery.exists() else None
    found = file.of_class(anomaly) if file is not None else ()
    if file is None or not found:
        raise BadInput(f"{run.path}: no finding of class {anomaly}")
    events, _ = read_timeline(run.timeline)
    for number, one in enumerate(found):
        yield from [""] * bool(number)
        yield f"{anomaly} ({TABLE[anomaly].short})"
        for event in [event for event in events if _concerns(event, one)][-_MOST_EVENTS:]:
            yield f"{event.t_ns / 1e9:9.3f} s  {one_line(tell_event(event), 200)}"
        yield f"  {one_line(one.seen, 600)}"
        yield f"  nothing of it moved for {one.for_s:.1f} s; its bound is {file.bounds.get(anomaly, 0):g} s"


def _concerns(event: Event, one: Unrecovered) -> bool:
    if event.kind in _OF_A_PLACE:
        return (event.topic, event.partition) == (one.topic, one.partition)
    return event.fault is not None or (bool(one.client) and event.client == one.client)
