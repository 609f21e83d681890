"""Turns the files of runs into results: audits all runs as one job, then judges each case, stage by stage.

A stage reads a run directory and writes one file of facts into it; only this file knows their order.

`ackproof run`, `ackproof judge` and the pytest plugin conclude here, so that one batch has one outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from ackproof import audit
from ackproof.base.errors import BadInput
from ackproof.experiment.case import Case, cell_of
from ackproof.faults.pairs import Pair, distribute_pairs, pair_storm_of
from ackproof.faults.registry import fault_kinds
from ackproof.judge import judge_case, judge_over_repeats, judge_unwritten, prepare_audit
from ackproof.judge.oracle import predict_run, replay_run
from ackproof.plan.cases import case_from_json
from ackproof.plan.check_faults import able_on
from ackproof.quantities.evidence import Evidence
from ackproof.run.extensions import find_simulator
from ackproof.rundir.batch import BatchCase, BatchFile, PairEntry, PairOutcome, PairsFile, PairTable
from ackproof.rundir.documents import AuditFile, CaseFile, FinalReadFile, VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.outcome import Verdict, batch_exit_code
from ackproof_reports import render_batch

Step = Callable[[str], None]
"""Function that is called with a line of text before each step that takes long."""


STAGES: Final[tuple[Callable[[CaseDir], object], ...]] = (replay_run, predict_run, judge_case)
"""Functions that each write one file of an audited run directory: `conformance.json`, `prediction.json` and
`verdict.json`, in this order."""


@dataclass(frozen=True)
class CaseResult:
    """Result of one run. Without a `verdict`, `error` has the reason, unless the run was not to be judged.

    `audit`: None if no audit can be read, or if the verdict is about files of the run that are missing, changed or
    unreadable.
    """

    run: CaseDir
    audit: AuditFile | None = None
    verdict: VerdictFile | None = None
    error: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Number of findings by class, as far as it may be shown (`AuditFile.counts_to_show`), and of ledger rows
        (`documents.RecordCounts`); empty without an audit."""
        if self.audit is None:
            return {}
        final: FinalReadFile | None = None
        with suppress(BadInput):
            final = FinalReadFile.load(self.run.final_read)
        return {**self.audit.counts_to_show(final), **self.audit.audited.model_dump()}


def conclude(
    runs: Sequence[CaseDir], step: Step, *, failed: Collection[CaseDir] = (), simulate: bool = False
) -> list[CaseResult]:
    """Audit the runs that were not audited yet, as one job, and judge each. Return the results in the order of `runs`.

    Runs in `failed` are audited but not judged, because the harness could not complete them. `simulate`: also simulate
    each run that did not fail, for the report. `step` is called with the name of each long step. A problem with one run
    becomes the `error` of its result. If Spark does not start, all runs that were to be audited get this as `error`.
    Uses the Spark context of this process, if it has one. Raises `MissingTool` without Java and, with `simulate`,
    without the simulator.
    """
    if simulate:
        _simulate([run for run in runs if run not in failed], step)
    not_audited = _audit_new(runs, step)
    return [_result(run, not_audited.get(run), judged=run not in failed) for run in runs]


def _result(run: CaseDir, not_audited: str | None, *, judged: bool) -> CaseResult:
    wrote = run.seal.exists() or run.ledger.exists()
    if judged and wrote and (broken := judge_unwritten(run)) is not None:
        return CaseResult(run, verdict=broken)
    if not_audited is not None or not run.audit_json.exists():
        return CaseResult(run, error=not_audited or "there is nothing to judge: the run was not audited")
    counted: AuditFile | None = None
    try:
        counted = AuditFile.load(run.audit_json)
        if not judged:
            return CaseResult(run, counted)
        run_stages(run)
        return CaseResult(run, counted, VerdictFile.load(run.verdict_json))
    except Exception as error:  # noqa: BLE001 — the other cases must be judged all the same
        return CaseResult(run, counted, error=f"it could not be judged: {type(error).__name__}: {error}")


def judge_run(run: CaseDir) -> None:
    """Judge an audited run and write `verdict.json`. If files of the run are missing, changed or unreadable, the
    verdict is INCONCLUSIVE, and no other file is written.

    Otherwise the model of Kafka's protocol (`judge.oracle`) first replays the observed steps (`conformance.json`) and
    predicts the possible anomalies (`prediction.json`); the verdict uses both. Raises what `run_stages` raises.
    """
    if judge_unwritten(run) is None:
        run_stages(run)


def run_stages(run: CaseDir) -> None:
    """Write `conformance.json`, `prediction.json` and `verdict.json` of an audited run, in this order. Raises what a
    stage raises, such as `BadInput` for a file that cannot be read."""
    for derive in STAGES:
        derive(run)


def _audit_new(runs: Sequence[CaseDir], step: Step) -> dict[CaseDir, str]:
    """Audit, as one job, the runs that have ledgers and no audit. Return the reason for each run that could not be
    audited; {} if all could."""
    new = [run for run in runs if run.ledger.exists() and not run.audit_json.exists()]
    if not new:
        return {}
    prepare_audit(run.path for run in new)
    step(f"auditing {len(new)} {'run' if len(new) == 1 else 'runs'}")
    results = audit.run([run.path for run in new], progress=step)
    return {
        run: "audit: " + "; ".join(result.reasons)
        for run, result in zip(new, results, strict=True)
        if result.file is None
    }


def _simulate(runs: Sequence[CaseDir], step: Step) -> None:
    """Simulate each run that has ledgers, for the report. `step` reports a failure, which is not raised: no verdict
    depends on it. Raises `MissingTool` if there is such a run and no simulator is installed."""
    ran = [run for run in runs if run.ledger.exists()]
    if ran:
        step("simulating each case")
        simulator = find_simulator()
    for run in ran:
        try:
            simulator.simulate_beside(run)
        except Exception as error:  # noqa: BLE001 — no verdict rests on it
            step(f"not simulated: {run.path.name}: {type(error).__name__}: {error}")


def combine_verdicts(batch: BatchFile) -> BatchFile:
    """Return the batch with its exit code and verdict, computed from the verdicts of its cases and of its expectations
    over repeats (`batch_exit_code`).

    The verdict is None if the harness failed to judge a case or expectation and none is FAIL.
    """
    verdicts = [case.verdict for case in batch.cases] + [one.verdict for one in batch.over_repeats]
    code = batch_exit_code(verdicts)
    verdict = next((one for one in Verdict if one.exit_code is code), None)
    return batch.model_copy(update={"exit_code": int(code), "verdict": verdict})


def add_result(entry: BatchCase, result: CaseResult) -> BatchCase:
    """Return an entry of `batch.json` with the result of its run added. An earlier error in the entry is kept."""
    verdict = result.verdict
    return entry.model_copy(
        update={
            "verdict": verdict.verdict if verdict else None,
            "reasons": verdict.reasons if verdict else (),
            "counts": result.counts,
            "permitted": verdict.permitted if verdict else "",
            "expected": verdict.expected if verdict else (),
            "starved": verdict.starved if verdict else (),
            "deleted_windows": result.audit.deleted.windows if result.audit and result.audit.deleted else 0,
            "error": entry.error or result.error,
        }
    )


def conclude_again(directory: BatchDir, step: Step) -> BatchFile:
    """Judge and report a batch again from its files, and return its new `batch.json`. Runs that were not audited yet
    are audited first. Runs that the harness could not complete are judged, too, and keep their error. `step` is called
    with the name of each long step. Raises `BadInput` without a readable `batch.json`, and as `conclude` and `publish`
    do."""
    old = BatchFile.load(directory.batch_json)
    results = conclude([CaseDir(directory.path / case.run) for case in old.cases], step)
    entries = tuple(add_result(case, result) for case, result in zip(old.cases, results, strict=True))
    judged = old.model_copy(update={"cases": entries, "interrupted": False})
    new = combine_verdicts(judge_over_repeats(directory, judged))
    publish(directory, new, step)
    return new


def publish(directory: BatchDir, batch: BatchFile, step: Step) -> None:
    """Write `batch.json`, `pairs.json` (see `write_pairs`) and the reports. `step` is called with the name of each long
    step. Raises OSError if a file cannot be written."""
    batch.save(directory.batch_json)
    write_pairs(directory, batch)
    step("writing the report")
    render_batch(directory.path)


def write_pairs(directory: BatchDir, batch: BatchFile) -> None:
    """Write `pairs.json` if an experiment of the batch tries all pairs of fault kinds (`storm: {pairs: all}`);
    otherwise do nothing.

    The file has an outcome for each pair (`PairOutcome`). A pair is covered if both faults were in force at the same
    time, according to the timelines. Runs that cannot be read are left out.
    """
    cells: dict[str, list[tuple[Case, CaseDir]]] = {}
    for entry in batch.cases:
        run = CaseDir(directory.path / entry.run)
        with suppress(BadInput):  # the verdict already shows that the run cannot be read
            case = case_from_json(CaseFile.load(run.case_json).resolved)
            if pair_storm_of(case.experiment) is not None:
                cells.setdefault(f"{case.experiment.name} {cell_of(case.id)}", []).append((case, run))
    if cells:
        PairsFile(tables=tuple(_table(runs) for runs in cells.values())).save(directory.pairs_json)


def _table(runs: list[tuple[Case, CaseDir]]) -> PairTable:
    first = runs[0][0]
    storm = pair_storm_of(first.experiment)
    assert storm is not None
    dealt = distribute_pairs(storm, first.experiment, able_on(first.experiment))
    found: dict[Pair, PairEntry] = {
        pair: PairEntry(kinds=pair, outcome=PairOutcome.NOT_RUN) for share in dealt.shares for pair in share
    }
    for case, run in runs:
        try:
            evidence = Evidence.of_run(run)
        except BadInput:
            continue
        for pair in _overlapping_pairs(evidence.faults):
            if pair in found and found[pair].outcome is not PairOutcome.COVERED:
                found[pair] = PairEntry(kinds=pair, outcome=PairOutcome.COVERED, case=case.id)
        for pair, why in _planned_pairs(case, evidence):
            if pair in found and found[pair].outcome is PairOutcome.NOT_RUN:
                found[pair] = PairEntry(kinds=pair, outcome=PairOutcome.NOT_BITTEN, case=case.id, why=why)
    refused = [
        PairEntry(kinds=pair, outcome=PairOutcome.REFUSED, why=why) for pair, why in dealt.refused.items()
    ]
    cluster = first.experiment.cluster
    return PairTable(
        experiment=first.experiment.name,
        cell=cell_of(first.id),
        kafka=f"{cluster.kafka}, {cluster.mode}",
        runs=len(dealt.shares),
        pairs=(*found.values(), *refused),
    )


def _overlapping_pairs(lives: Mapping[int, FaultLife]) -> Iterator[Pair]:
    """Yield each pair of different fault kinds that were in force at the same time, in alphabetical order within the
    pair. A pair may come twice."""
    spans = [(life.kind, span) for life in lives.values() if (span := _in_force(life)) is not None]
    for (one, mine), (other, its) in combinations(spans, 2):
        if one != other and max(mine[0], its[0]) < min(mine[1], its[1]):
            yield (one, other) if one < other else (other, one)


def _in_force(life: FaultLife) -> tuple[int, int] | None:
    """Return (begin, end) of the time in ns in which a fault was in force: from its confirmation to its healing. None
    if it was not confirmed or is not over, or its kind is unknown.

    A fault that ends by itself is in force from its injection to its end.
    """
    kind = fault_kinds().get(life.kind)
    if kind is None or life.confirmed is None or life.over is None:
        return None
    if kind.HOLD_KEY is None:
        return life.asked, life.over
    return life.confirmed, life.over if life.healed is None else life.healed


def _planned_pairs(case: Case, evidence: Evidence) -> Iterator[tuple[Pair, str]]:
    """Yield (pair of fault kinds, reason) for each pair that this run had planned. The reason explains why the two
    faults were not in force together. Ignore it for pairs that `_overlapping_pairs` yields: they were in force
    together."""
    drawn = {fault.number: fault for fault in case.faults if fault.is_drawn}
    lives = evidence.lifelines.every_fault
    reasons = {number: lives[number].reason for number in drawn if number in lives and lives[number].reason}
    for number in sorted(drawn)[::2]:
        pair = [drawn[one] for one in (number, number + 1) if one in drawn]
        if len(pair) == 2:
            one, other = sorted(fault.kind for fault in pair)
            why = (f"{fault}: {reasons[fault.number]}" for fault in pair if fault.number in reasons)
            yield (one, other), next(why, "one ended before the other was in force")
