"""How long a case takes, before it starts: its load, and all of it as an estimate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ackproof.base.units import rate_text, rough_duration
from ackproof.experiment.case import Case
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.triggers import COUNT_WITHIN_S, COUNTS, After, At, When
from ackproof.faults.life import FIRST_ACKS_BOUND_S

_RUN_S: Final = 12.0
"""What a run of three brokers takes beside its load on two idle cores: start, drain, final read, verdict."""
_AUDIT_S: Final = 20.0
"""What the audit and the report of a batch take."""


def begins(spec: ExperimentSpec, fault: FaultSpec) -> float:
    """Return the earliest moment at which a fault begins, in seconds after the start of the workload."""
    match fault.trigger:
        case At() as trigger:
            return trigger.at
        case After() as trigger:
            first = next(one for one in spec.faults if one.number == trigger.fault)
            return trigger.by + begins(spec, first)
    return 0.0


def load_s(spec: ExperimentSpec) -> float:
    """Return how long the load lasts at least: as the file says, and until the last fault has healed."""
    healed = (begins(spec, fault) + (fault.hold or 0.0) for fault in spec.faults)
    return max(spec.workload.duration, *healed, 0.0)


def out_of_reach(spec: ExperimentSpec, trigger: When) -> str | None:
    """Why a count never comes in the time that the load has for it; None where it may."""
    condition, rate = trigger.condition, spec.workload.producers.rate
    growing = condition.gauge in COUNTS and condition.op in {">", ">=", "=="}
    if rate is None or not growing or any(fault.SENDS for fault in spec.faults):
        return None
    rate *= spec.workload.consumers.live if condition.gauge == "read" else 1
    given_s = load_s(spec) if trigger.at_latest is None else trigger.at_latest
    given_s += COUNT_WITHIN_S if trigger.awaited else 0
    # Some are acknowledged before every partition has acknowledged something, from when on times count.
    if not rate or rate * (given_s + FIRST_ACKS_BOUND_S) >= condition.value:
        return None
    takes, given, most = rough_duration(condition.value / rate), rough_duration(given_s), rate * given_s
    return (
        f"{condition} never comes: it takes {takes} at {rate_text(rate)}, and in {given} there are {most:.0f}"
    )


def estimate(cases: Iterable[Case]) -> Iterator[str]:
    """How long the real ones of these cases take, one after the other: a line, where there are any."""
    loads = [load_s(case.planned) for case in cases if not case.experiment.ground.simulated]
    if loads:
        load, rest = sum(loads), _RUN_S * len(loads) + _AUDIT_S
        yield (
            f"estimate: about {rough_duration(load + rest)} for {len(loads)} run(s): {rough_duration(load)} of load, "
            f"{rough_duration(rest)} of start-up, final read and audit; longer on a busy machine"
        )
