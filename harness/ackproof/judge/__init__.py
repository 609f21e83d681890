"""Turns the facts of a run into a verdict, in the order of docs/architecture.md.

Belongs here: what a configuration forbids, what evidence a verdict needs, how all opinions become one word with
reasons. Each file of `checks/` looks at one thing and writes nothing. Does not belong here: counting (audit), facts of
a run (rundir), replaying and predicting (reference), how a verdict looks (reports).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import CaseFile, ExpectationJudged, JudgedOpinion, VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Says, Verdict

__all__ = ["judge_case", "judge_over_repeats", "judge_unwritten", "measure_expected", "prepare_audit"]


def judge_case(run: CaseDir) -> VerdictFile:
    """Judge a run that was audited, replayed and predicted; write `verdict.json`, and return the verdict. Raises
    `BadInput` when one of these facts is missing, and `BadInput`, OSError or ArrowException when one cannot be read."""
    # Only here: it reads tables, which takes a second to load, and what is asked before a run needs none.
    from ackproof.judge.facts import Facts
    from ackproof.judge.verdict import judge

    verdict = judge(Facts.read(run))
    verdict.save(run.verdict_json)
    return verdict


def measure_expected(run: CaseDir) -> tuple[ExpectationJudged, ...]:
    """Return, for each expectation of an audited run's case, the measured number and whether it is within the bounds;
    () for a folder without a case. Writes nothing. Raises `BadInput`, OSError or ArrowException for files that cannot
    be read."""
    from ackproof.judge.checks.expectations import judged
    from ackproof.judge.facts import answers
    from ackproof.plan.cases import case_from_json
    from ackproof.quantities.evidence import Evidence

    if not run.case_json.exists():
        return ()
    evidence = Evidence.of_run(run)
    case = case_from_json(CaseFile.load(run.case_json).resolved)
    return tuple(judged(evidence, case, answers(evidence, case)))


def judge_unwritten(run: CaseDir) -> VerdictFile | None:
    """Write the verdict INCONCLUSIVE to `verdict.json` for a run whose files cannot be trusted, and return it. Return
    None, and write nothing, for all other runs.

    Files cannot be trusted if one is missing (also the seal), new, changed or unreadable, or if numbers of the audit do
    not fit them. The verdict's reasons name these files.
    """
    from ackproof.judge.written import not_as_written  # Arrow

    reasons = not_as_written(run)
    if not reasons:
        return None
    opinions = tuple(JudgedOpinion(check="seal", kind=Says.LACKS, text=reason) for reason in reasons)
    verdict = VerdictFile(verdict=Verdict.INCONCLUSIVE, reasons=reasons, opinions=opinions)
    verdict.save(run.verdict_json)
    return verdict


def prepare_audit(runs: Iterable[Path]) -> None:
    """Write `removals.json`, `timestamps.json` and, with consumer groups, `groups-plan.json` for each run. The audit
    reads them.

    They say what may have removed records, which timestamps records may have, and what the consumer groups are. Folders
    without a case get none. A file that cannot be read or written raises nothing: the audit and the judge report it.
    """
    from pyarrow import ArrowException

    from ackproof.judge.group_plans import work_out_group_plans
    from ackproof.judge.removal import work_out_removals, work_out_timestamps  # Arrow

    for run in runs:
        for work_out in (work_out_removals, work_out_timestamps, work_out_group_plans):
            with suppress(BadInput, OSError, ArrowException):
                work_out(CaseDir(run))


def judge_over_repeats(directory: BatchDir, batch: BatchFile) -> BatchFile:
    """Judge the batch's expectations over repeats, and the measurements of its claims. Each is about all repeats of one
    case, or compares all repeats of two cases. Return the batch with their results; writes nothing.

    The cases must have been judged before.
    """
    if not (batch.over_repeats or batch.claimed):
        return batch
    from ackproof.judge.repeats import judged  # Arrow, scipy

    return judged(directory, batch)
