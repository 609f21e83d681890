"""A schedule shrunk to the fewest faults that still show a finding: delta debugging over the faults (Zeller 1999).

A fault whose trigger is another fault that was left out begins at the time at which it began before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ackproof.base.errors import AckproofError
from ackproof.base.units import duration_text
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.triggers import After, At
from ackproof.faults.storm import Storm
from ackproof.rundir.model import Shrunk
from ackproof_simulator.clock import SECOND
from ackproof_simulator.counts import Counts, counts_of
from ackproof_simulator.run import Simulation, setting_of

TRIES = 200


def fewest(faults: Sequence[FaultSpec], shows: Callable[[Sequence[FaultSpec]], bool]) -> list[FaultSpec]:
    """A subset that still shows it, none of whose faults can be left out alone. `shows` holds for all of them."""
    kept, parts = list(faults), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        for chunk in chunks:
            rest = [fault for fault in kept if fault not in chunk]
            if rest and shows(rest):
                kept, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(kept):
                return kept
            parts = min(parts * 2, len(kept))
    return kept


def shrink(case: Case, seed: int, what: str) -> Shrunk | None:
    """Shrink the schedule of a case that shows `what` (a quantity of `Counts`) at its own seed; None: it does not."""
    setting = setting_of(case)
    first = Simulation(setting, case)
    first.run()
    value = getattr(counts_of(first, seed), what)
    start = max(first.load_began, 0)
    begun = {life.number: life.asked_ns for life in first.lives if life.asked_ns is not None}
    faults = [fault for fault in case.faults if not isinstance(fault, Storm) and fault.number in begun]
    if value <= 0 or not faults:
        return None
    tries = 0

    def run(chosen: Sequence[FaultSpec]) -> Counts | None:
        nonlocal tries
        tries += 1
        simulation = Simulation(setting, _with(case, chosen, begun, start))
        try:
            simulation.run()
        except AckproofError:
            return None
        return counts_of(simulation, seed)

    def shows(chosen: Sequence[FaultSpec]) -> bool:
        if tries >= TRIES:
            return False
        found = run(chosen)
        return found is not None and found.complete and getattr(found, what) > 0

    kept = fewest(faults, shows) if shows(faults) else faults
    last = run(kept)
    pinned = _with(case, kept, begun, start).faults
    return Shrunk(
        seed=seed,
        what=what,
        value=value if last is None else getattr(last, what),
        faults=tuple(f"{fault}: {_when(fault)}" for fault in pinned),
        before=len(faults),
        runs=tries,
    )


def _with(case: Case, chosen: Sequence[FaultSpec], begun: dict[int, int], start: int) -> Case:
    numbers = {fault.number for fault in chosen}
    faults = tuple(
        fault.model_copy(update={"trigger": At(round((begun[fault.number] - start) / SECOND, 3))})
        if isinstance(fault.trigger, After) and fault.trigger.fault not in numbers
        else fault
        for fault in chosen
    )
    experiment = case.experiment.model_copy(update={"faults": faults})
    return replace(case, experiment=experiment, drawn={})


def _when(fault: FaultSpec) -> str:
    held = "" if fault.hold is None else f", {fault.HEALING} {duration_text(fault.hold)} later"
    return f"{fault.trigger}{held}"
