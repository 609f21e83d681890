"""Tests of when a fault is gone, by the events of the timeline."""

from __future__ import annotations

import pytest

from ackproof.rundir.lifelines import Lifelines
from ackproof.rundir.timeline import (
    Event,
    EventDetail,
    FaultAsked,
    FaultConfirmed,
    FaultFailed,
    FaultMissed,
    FaultRecovered,
)


@pytest.mark.parametrize(
    ("details", "gone_ns"),
    [
        ([FaultAsked(), FaultConfirmed(), FaultRecovered()], 2),
        ([FaultAsked(), FaultMissed()], 1),
        ([FaultAsked(), FaultConfirmed(), FaultFailed()], None),
        ([FaultAsked(), FaultRecovered(), FaultFailed()], 1),
        ([FaultAsked(), FaultMissed(), FaultRecovered()], 2),
        ([FaultRecovered(), FaultAsked()], None),
    ],
)
def test_a_fault_is_gone_when_it_recovered_or_missed_and_not_when_it_failed(
    details: list[EventDetail], gone_ns: int | None
) -> None:
    events = [
        Event(t_ns=t_ns, wall_ns=t_ns, kind=what.KIND, detail=what.detail(), fault=1)
        for t_ns, what in enumerate(details)
    ]
    assert Lifelines.of_events(events).faults[1].gone_ns == gone_ns
