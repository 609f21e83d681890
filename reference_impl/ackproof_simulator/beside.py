"""What the model makes of cases that ran elsewhere: `simulation.json` beside each, for the report.

A second or two a case, and nothing rests on it: what cannot be simulated is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ackproof.experiment.case import Case
from ackproof.rundir.layout import CaseDir
from ackproof_simulator.sweep import simulate_beside


def simulate_all(cases: Sequence[tuple[Case, CaseDir]], step: Callable[[str], None]) -> None:
    """Simulate each case that has ledgers. Raises nothing but KeyboardInterrupt."""
    ran = [(case, run) for case, run in cases if run.ledger.exists()]
    if ran:
        step("simulating each case beside its run")
    for case, run in ran:
        try:
            found = simulate_beside(case)
        except Exception as error:  # noqa: BLE001 — what nothing rests on must not take a run along
            step(f"not simulated: {case.id}: {type(error).__name__}: {error}")
            continue
        if found is not None:
            found.save(run.simulation_json)
