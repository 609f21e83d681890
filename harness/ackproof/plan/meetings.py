"""Faults of one file that certainly meet and cannot: refused where the file is checked.

What a kind cannot follow is its own to say (`FaultSpec.at_odds`); here is whether it surely comes while another is in
force. Drawn roles, leaders and states are left to the run, which composes what can be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import permutations
from typing import Final, TypeAlias

from ackproof.base.errors import FaultNotConfirmed
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec, Grip
from ackproof.experiment.problems import Path
from ackproof.experiment.triggers import After, At
from ackproof.faults.storm import Storm
from ackproof.plan.diagnostics import Problems

Since: TypeAlias = Callable[[int | None, int], tuple[float, float] | None]
"""The least and the most seconds from a fault's confirmation, or the start (None), to another's beginning."""
LATE_S: Final = 1.0
"""So late a fault may begin on a busy machine."""


def check_meetings(spec: ExperimentSpec, found: Problems) -> None:
    """Report each fault that finds nothing to break because of another that is surely in force when it begins."""
    if any(fault.UNPREDICTABLE for fault in spec.faults) or not found.sound_below(("cluster",)):
        return  # of your own commands nobody knows what they start and mend
    sound = {fault.number: fault for fault in spec.faults if found.sound_below(("faults", fault.number - 1))}
    since = _clock(sound)
    for first, second in permutations(sound.values(), 2):
        entry: Path = ("faults", second.number - 1)
        if not _meets(first, second, since, spec) or not found.sound((*entry, second.kind)):
            continue
        try:
            why = second.at_odds(first, spec)
        except FaultNotConfirmed:
            continue  # one of them is aimed at nothing, as the run will say
        if why:
            until = "for good" if first.hold is None else "by then"
            ends = (
                f"give fault {first.number} {first.HOLD_KEY}" if first.hold is None else "let it begin later"
            )
            message = (
                f"nothing to break: fault {first.number} ({first}) {why} {until}; {ends}, or aim it elsewhere"
            )
            found.report((*entry, second.kind), message, key=True)


def _meets(first: FaultSpec, second: FaultSpec, since: Since, spec: ExperimentSpec) -> bool:
    """Whether the second surely begins while what the first did stands."""
    if first.keeps(spec) is Grip.STILL and any(
        other.GRIP is Grip.DOWN or isinstance(other, Storm) for other in spec.faults if other is not second
    ):
        return False  # which may end that process, and start another
    span = _apart(first, second, since)
    return span is not None and span[0] >= 0 and span[1] + LATE_S <= first.lasts


def _apart(first: FaultSpec, second: FaultSpec, since: Since) -> tuple[float, float] | None:
    """The least and the most seconds from the first's confirmation to the second's beginning; None: not known."""
    if (span := since(first.number, second.number)) is not None:
        return span
    base = first.trigger.fault if isinstance(first.trigger, After) else None
    mine, its = since(base, second.number), since(base, first.number)
    return None if mine is None or its is None else (mine[0] - its[1] - first.IN_FORCE_S, mine[1] - its[0])


def _clock(faults: Mapping[int, FaultSpec]) -> Since:
    """How times of these faults follow from one another. Of each nothing is wrong: it waits for one before it."""

    @cache
    def since(base: int | None, number: int) -> tuple[float, float] | None:
        match faults[number].trigger:
            case At(at) if base is None:
                return at, at
            case After(before, by) if before == base:
                return by, by
            case After(before, by) if before in faults and (begun := since(base, before)) is not None:
                return begun[0] + by, begun[1] + faults[before].IN_FORCE_S + by
        return None

    return since
