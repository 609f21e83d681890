"""The stages between a run and its verdict: each reads a run directory and writes one file of facts into it.

The only place that knows their order. The audit stands before them: it takes all runs as one job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackproof import audit
from ackproof.judge import judge_case
from ackproof.reference.predict.prediction import predict
from ackproof.reference.replay.document import replay_run
from ackproof.rundir.layout import CaseDir

Step = Callable[[str], None]
"""Is told, in words, of what takes long."""


@dataclass(frozen=True)
class Stage:
    """What is worked out of a run directory that was audited. `make` raises `BadInput` where it cannot be."""

    name: str
    file: Callable[[CaseDir], Path]
    make: Callable[[CaseDir], object]


STAGES: Final = (
    Stage("replay", lambda run: run.conformance_json, replay_run),
    Stage("prediction", lambda run: run.prediction_json, predict),
    Stage("judge", lambda run: run.verdict_json, judge_case),
)


def run_stages(run: CaseDir, *, anew: bool = True) -> None:
    """Bring an audited run to its verdict, in order; those stages whose file is there are left out unless `anew`.

    What stands behind a stage that was run is run too.
    """
    for stage in STAGES:
        anew = anew or not stage.file(run).exists()
        if anew:
            stage.make(run)


def audit_uncounted(runs: Sequence[CaseDir], step: Step) -> dict[CaseDir, str]:
    """Audit, as one job, the runs that have ledgers and no audit; why it could not, for those where it could not."""
    new = [run for run in runs if run.ledger.exists() and not run.audit_json.exists()]
    if not new:
        return {}
    step(f"auditing {len(new)} {'case' if len(new) == 1 else 'cases'}")
    results = audit.run([run.path for run in new])
    return {
        run: "audit: " + "; ".join(result.reasons)
        for run, result in zip(new, results, strict=True)
        if result.file is None
    }


def simulate(runs: Sequence[CaseDir], step: Step) -> None:
    """Simulate each run that has ledgers, for the report. What cannot be is told of: nothing rests on it."""
    from ackproof_simulator.sweep import simulate_beside

    ran = [run for run in runs if run.ledger.exists()]
    if ran:
        step("simulating each case beside its run")
    for run in ran:
        try:
            simulate_beside(run)
        except Exception as error:  # noqa: BLE001 — nothing rests on it, so it must not take a run along
            step(f"not simulated: {run.path.name}: {type(error).__name__}: {error}")
