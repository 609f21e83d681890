"""The closed vocabularies of a run: outcomes, phases, verdicts, exit codes (docs/architecture.md, Exit codes)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum, StrEnum


class Outcome(IntEnum):
    """Outcome of a produce attempt (column `outcome` of the produced ledger)."""

    ACKED = 0
    FAILED = 1
    INDETERMINATE = 2


class ReadPhase(IntEnum):
    """Column `phase` of the consumed ledger. Where producers write in transactions, readers at read_committed have
    phases of their own."""

    LIVE = 0
    FINAL = 1
    LIVE_COMMITTED = 2
    FINAL_COMMITTED = 3


class ExitCode(IntEnum):
    """Exit codes of the command. A batch: any FAIL, else any harness failure, else any INCONCLUSIVE, else PASS."""

    PASS = 0
    FAIL = 1
    INCONCLUSIVE = 2
    BAD_INPUT = 254
    HARNESS_FAILED = 255


class Verdict(StrEnum):
    """Verdict of a judged case."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode[self.value]


def batch_exit_code(verdicts: list[Verdict | None]) -> ExitCode:
    """Merge the verdicts of a batch; None is a case that the harness failed to bring to a verdict.

    A batch without cases shows nothing, so it is INCONCLUSIVE.
    """
    if Verdict.FAIL in verdicts:
        return ExitCode.FAIL
    if None in verdicts:
        return ExitCode.HARNESS_FAILED
    if Verdict.INCONCLUSIVE in verdicts or not verdicts:
        return ExitCode.INCONCLUSIVE
    return ExitCode.PASS


def worst_exit_code(codes: list[int]) -> int:
    """Merge the exit codes of several batches: FAIL, then a failed harness, then bad input, then INCONCLUSIVE."""
    order = (ExitCode.FAIL, ExitCode.HARNESS_FAILED, ExitCode.BAD_INPUT, ExitCode.INCONCLUSIVE)
    return next((int(code) for code in order if code in codes), 0)


class TxnOutcome(IntEnum):
    """Outcome of a transaction, as its producer knows it."""

    COMMITTED = 0
    ABORTED = 1
    """Aborted, or never asked to be committed: it can no longer be committed."""
    UNKNOWN = 2
    """The commit was asked for and not answered."""
    FENCED = 3
    """Another producer took over the transactional id; whether a commit was in time is unknown."""


def cases_text(runs: Iterable[str]) -> str:
    """Return the number of cases and repeats of these runs in words: `2 cases`, `2 cases, 3 repeats of each`."""
    repeats = Counter(name.rpartition("#")[0] or name for name in runs)
    cases = f"{len(repeats):,} case{'' if len(repeats) == 1 else 's'}"
    if set(repeats.values()) <= {1}:
        return cases
    if len(set(repeats.values())) > 1:
        return f"{cases}, {repeats.total():,} repeats in all"
    return f"{cases}, {max(repeats.values()):,} repeats{' of each' if len(repeats) > 1 else ''}"
