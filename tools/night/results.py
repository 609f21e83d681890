"""Results of the jobs of a night, and the problems in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel

from ackproof.rundir.anomalies import TABLE

HARMLESS = frozenset({"surfaced"})
"""Anomaly classes that may occur without any fault: a record whose outcome is unknown may be in the log."""


EXPECTED = Path(__file__).resolve().parents[2] / "experiments" / "expected.json"
"""File with {experiment: {pattern of its cases: verdict}}. Experiments and cases that it does not name must PASS."""


def expected_verdict(experiment: str, case: str) -> str:
    """Return the verdict that `expected.json` has for a case: that of the first pattern that matches, else PASS."""
    patterns: dict[str, str] = json.loads(EXPECTED.read_text(encoding="utf-8")).get(experiment, {})
    return next((verdict for pattern, verdict in patterns.items() if fnmatchcase(case, pattern)), "PASS")


class CaseResult(BaseModel):
    """Result of one case of a job. `verdict` None: the harness failed. `counts`: the counts above 0, by class.
    `expected`: the verdict in `expected.json`."""

    case: str
    verdict: str | None
    expected: str = "PASS"
    reasons: tuple[str, ...] = ()
    counts: dict[str, int] = {}


class JobResult(BaseModel):
    """Result of a job. `exit_code` None: it did not end within `bound_s` seconds. `control`: True if the experiment has
    no fault. `left_behind`: sentences on what it did not end or remove. `survivors`: mutants that no test noticed.
    `log_tail`: the end of its output."""

    name: str
    file: str | None
    command: str
    control: bool
    seconds: float
    exit_code: int | None
    bound_s: float
    cases: tuple[CaseResult, ...] = ()
    left_behind: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    log_tail: str = ""

    def problems(self) -> Iterator[str]:
        """Yield each problem of the job as a line; none if all is well."""
        if self.exit_code is None:
            yield f"did not end within {self.bound_s:.0f} s"
        for case in self.cases:
            if case.verdict != case.expected:
                instead = "" if case.expected == "PASS" else f" instead of {case.expected}"
                reasons = "; ".join(case.reasons) or "no reason given"
                yield f"{case.case}: {case.verdict or 'no verdict'}{instead}: {reasons}"
            found = {name: count for name, count in case.counts.items() if name in TABLE}
            if self.control and (wrong := {n: c for n, c in found.items() if n not in HARMLESS}):
                said = ", ".join(f"{count} {name}" for name, count in wrong.items())
                yield f"{case.case}: nothing was broken, and yet: {said}. A bug of the harness, or of Kafka"
        if self.exit_code and all(case.verdict == "PASS" for case in self.cases):
            yield f"exit code {self.exit_code}"
        if self.exit_code == 0 and self.file is not None and not self.cases:
            yield "exit code 0, but no case was run"
        for left in self.left_behind:
            yield f"left behind: {left}"


class ShardResult(BaseModel):
    """Results of one shard of a night. `refused`: (name, reason) of the combinations that validation refused, the same
    in every shard."""

    date: str
    shard: str
    jobs: tuple[JobResult, ...]
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def well(self) -> bool:
        """True if the shard had at least one job, and none has a problem."""
        return bool(self.jobs) and not any(any(job.problems()) for job in self.jobs)
