"""Values that all files of a run share: outcomes, phases, verdicts, exit codes (docs/architecture.md, Exit codes)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum, StrEnum


class Outcome(IntEnum):
    """Outcome of a produce attempt (column `outcome` of the produced ledger).

    FAILED: no reader can ever get the record. INDETERMINATE: it may have been appended, or not.
    """

    ACKED = 0
    FAILED = 1
    INDETERMINATE = 2


class ReadPhase(IntEnum):
    """Kind of a read (column `phase` of the consumed ledger). LIVE: by a consumer while the load runs. FINAL: by the
    final read, which reads every partition from start to end after the load. The `…_COMMITTED` phases are the same at
    read_committed; they exist if producers write in transactions."""

    LIVE = 0
    FINAL = 1
    LIVE_COMMITTED = 2
    FINAL_COMMITTED = 3


class ExitCode(IntEnum):
    """Exit codes of the command. BAD_INPUT: a file or an option is wrong. A batch exits with the first that applies:
    any FAIL, any harness failure, any INCONCLUSIVE, PASS."""

    PASS = 0
    FAIL = 1
    INCONCLUSIVE = 2
    BAD_INPUT = 254
    HARNESS_FAILED = 255


class Verdict(StrEnum):
    """Verdict of the judge on a case. PASS: nothing forbidden was found. FAIL: a promise of Kafka or an expectation is
    proven broken. INCONCLUSIVE: the evidence does not decide."""

    PASS = "PASS"
    """The evidence is complete, and nothing forbidden was found."""
    FAIL = "FAIL"
    """Kafka broke a promise of its configuration, or an expectation is proven wrong."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """Evidence is missing or contradictory, or a question stays open, such as an expectation that was not met."""

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode[self.value]


class Says(StrEnum):
    """Kind of an opinion (a sentence that a check of the judge states). It decides the opinion's effect on the
    verdict."""

    CONTRADICTS = "contradicts"
    """Two files of the run cannot both be true, so nothing can be built on either."""
    BREAKS = "breaks"
    """Kafka broke a promise of its configuration."""
    LACKS = "lacks"
    """Evidence is missing, so no absence can be shown."""
    OPEN = "open"
    """The evidence is complete, and the question stays open: neither forbidden nor allowed, or not demonstrated."""
    NOT_JUDGED = "not judged"
    """The verdict does not cover this."""
    AGREES = "agrees"
    """An independent witness confirms the result."""


def batch_exit_code(verdicts: list[Verdict | None]) -> ExitCode:
    """Return the exit code of a batch from the verdicts of its cases. None: the harness failed to judge the case. A
    batch without cases shows nothing, so it is INCONCLUSIVE."""
    if Verdict.FAIL in verdicts:
        return ExitCode.FAIL
    if None in verdicts:
        return ExitCode.HARNESS_FAILED
    if Verdict.INCONCLUSIVE in verdicts or not verdicts:
        return ExitCode.INCONCLUSIVE
    return ExitCode.PASS


def worst_exit_code(codes: list[int]) -> int:
    """Return the gravest of several batches' exit codes: FAIL, then a failed harness, bad input, INCONCLUSIVE; 0 (PASS)
    if none of these is among them."""
    order = (ExitCode.FAIL, ExitCode.HARNESS_FAILED, ExitCode.BAD_INPUT, ExitCode.INCONCLUSIVE)
    return next((int(code) for code in order if code in codes), 0)


class TxnOutcome(IntEnum):
    """Outcome of a transaction, as far as its producer knows it."""

    COMMITTED = 0
    ABORTED = 1
    """Aborted, or never asked to be committed: it can no longer be committed."""
    UNKNOWN = 2
    """The commit was requested, and no answer says how the transaction ended."""
    FENCED = 3
    """The producer's epoch is no longer valid: another producer took over the transactional id, or the coordinator
    aborted the transaction after its time-out. It is unknown whether a commit came in time."""


def cases_text(runs: Iterable[str]) -> str:
    """Return the number of cases and repeats as text: `2 cases`, `2 cases, 3 repeats of each`, or `2 cases, 5 repeats
    in all` if their numbers differ. `runs`: names of runs, such as `acks=all#1`.
    """
    repeats = Counter(name.rpartition("#")[0] or name for name in runs)
    cases = f"{len(repeats):,} case{'' if len(repeats) == 1 else 's'}"
    if set(repeats.values()) <= {1}:
        return cases
    if len(set(repeats.values())) > 1:
        return f"{cases}, {repeats.total():,} repeats in all"
    return f"{cases}, {max(repeats.values()):,} repeats{' of each' if len(repeats) > 1 else ''}"
