"""What came of the jobs, and what of it is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel

from ackproof.rundir.anomalies import TABLE

HARMLESS = frozenset({"surfaced"})
"""A record that failed or whose outcome is unknown may be there: also when nothing was broken on purpose."""


EXPECTED = Path(__file__).resolve().parents[2] / "experiments" / "expected.json"
"""{experiment: {pattern of its cases: verdict}}. An experiment or a case that it does not name is expected to PASS."""


def expected_verdict(experiment: str, case: str) -> str:
    """The verdict that the catalogue names for a case; the first pattern that matches decides."""
    patterns: dict[str, str] = json.loads(EXPECTED.read_text(encoding="utf-8")).get(experiment, {})
    return next((verdict for pattern, verdict in patterns.items() if fnmatchcase(case, pattern)), "PASS")


class CaseResult(BaseModel):
    """A case of a job. `counts`: those that are not 0. `expected`: the verdict that the catalogue names for it."""

    case: str
    verdict: str | None
    expected: str = "PASS"
    reasons: tuple[str, ...] = ()
    counts: dict[str, int] = {}


class JobResult(BaseModel):
    """What came of a job. `exit_code` None: it did not end within its bound (seconds)."""

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
        """Each thing that is wrong, in a line."""
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
    """One shard of a night: its jobs' results, and what validation refused (the same in every shard)."""

    date: str
    shard: str
    jobs: tuple[JobResult, ...]
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def well(self) -> bool:
        """Whether nothing is wrong with any job, and there was one."""
        return bool(self.jobs) and not any(any(job.problems()) for job in self.jobs)
