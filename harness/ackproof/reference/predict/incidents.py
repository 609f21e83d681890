"""What goes wrong, counted in the explorer's words: as a case plans it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.incidents import NOTHING, Exposure, Incidents
from ackproof.experiment.node_settings import SESSION_TIME_OUT, time_out


def unpredictable(fault: FaultSpec) -> str:
    """Why no prediction can be made with this fault; empty when one can."""
    return f"{fault.kind}: {fault.UNPREDICTABLE}" if fault.UNPREDICTABLE else ""


def planned(case: Case, topic: str) -> Iterator[tuple[FaultSpec, Incidents]]:
    """What each fault of a case comes to for a partition of this topic, as far as its duration lets it bite."""
    cluster = case.experiment.cluster
    exposure = Exposure(case, topic, partial(time_out, cluster), SESSION_TIME_OUT[cluster.mode])
    for fault in case.faults:
        count = None if fault.UNPREDICTABLE else fault.planned(exposure)
        if count is not None:
            yield fault, count


def total(found: Sequence[Incidents]) -> Incidents:
    """All of them together."""
    result = NOTHING
    for one in found:
        result = result.plus(one)
    return result
