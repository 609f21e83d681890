"""Runs a job: its command in a process of its own with a time limit, then a check of what it left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import BatchDir
from night.jobs import PLANTED_MODULE, Job
from night.results import CaseResult, JobResult, expected_verdict

ACKPROOF = Path(sys.executable).with_name("ackproof")
CASE_S = 240.0
"""Time limit in seconds per case of a job, in addition to 60 s per job. A job that exceeds it is ended, and that is a
problem of the night."""
SLOW_TESTS_S = 7200.0
_GRACE_S = 90.0


def do(
    job: Job, out: Path, *, case_s: float = CASE_S, command: Sequence[str | Path] | None = None
) -> JobResult:
    """Run a job, with its runs and its log below `out`; return its result. `case_s`: time limit in seconds per case.
    `command`: replaces `ackproof run …`, for tests of this function. Raises FileExistsError if the job's folder is
    there already."""
    folder = out / re.sub(r"[^A-Za-z0-9.-]+", "-", job.name)
    folder.mkdir(parents=True)
    words = list(command or _command(job, folder))
    bound = 60.0 + case_s * job.weight if job.file is not None else SLOW_TESTS_S
    began = time.monotonic()
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        code = _run(words, bound, log.fileno())
    took = time.monotonic() - began
    cases = _cases(folder, job.file.stem) if job.file is not None else ()
    return JobResult(
        name=job.name,
        file=str(job.file) if job.file is not None else None,
        command=" ".join(map(str, words)),
        control=job.control,
        seconds=round(took, 1),
        exit_code=code,
        bound_s=bound,
        cases=cases,
        left_behind=_left_behind(),
        survivors=_survivors(folder / "log.txt") if job.module != "pytest" else (),
        log_tail=_tail(folder / "log.txt"),
    )


def _command(job: Job, folder: Path) -> list[str | Path]:
    if job.file is None:
        told: list[str | Path] = []
        if job.module == "pytest":
            told = ["--nightly", f"--junitxml={folder / 'junit.xml'}"]
        elif job.module == PLANTED_MODULE:
            told = ["--out", folder / "planted"]
        return [sys.executable, "-m", job.module, *job.words, *told]
    return [ACKPROOF, "run", job.file, *job.words, "--out", folder / "runs"]


def _run(words: Sequence[str | Path], bound: float, log: int) -> int | None:
    """Run a command; return its exit code, or None if it did not end within `bound` seconds. It is then ended with
    SIGINT, and killed if that does not suffice. `log`: file descriptor for its output."""
    environment = {**os.environ, "NO_COLOR": "1", "CI": "true"}  # nothing skips at night
    process = subprocess.Popen(
        words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, preexec_fn=_hear_interrupts
    )
    try:
        return process.wait(timeout=bound)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _hear_interrupts() -> None:
    """Let the process react to SIGINT: background jobs of a shell ignore it, and so would all processes that they
    start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _cases(folder: Path, experiment: str) -> tuple[CaseResult, ...]:
    """Return the results of the cases in the job's `batch.json`; none without this file. `experiment`: name of the
    experiment, for the expected verdicts."""
    batches = sorted((folder / "runs").glob("*/batch.json"))
    return tuple(
        CaseResult(
            case=case.case,
            verdict=str(case.verdict) if case.verdict else None,
            expected=expected_verdict(experiment, case.case),
            reasons=(*case.reasons, *((case.error,) if case.error else ())),
            counts={name: count for name, count in case.counts.items() if count},
        )
        for batch in batches
        for case in BatchFile.load(BatchDir(batch.parent).batch_json).cases
    )


def _left_behind() -> tuple[str, ...]:
    """Return what `ackproof clean` found after the job, a sentence per kind, or that it failed; empty if the job ended
    all that it started."""
    swept = subprocess.run([ACKPROOF, "clean", "--json"], capture_output=True, text=True, check=False)
    if swept.returncode:
        return (f"ackproof clean: exit code {swept.returncode}: {swept.stderr.strip()[:500]}",)
    found = json.loads(swept.stdout)
    return tuple(f"{what}: {', '.join(things)}" for what, things in found.items() if things)


def _survivors(log: Path) -> tuple[str, ...]:
    """Return each mutant in the log that no test noticed: its name, and the lines that differ."""
    found: list[str] = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("SURVIVED "):
            found.append(line.removeprefix("SURVIVED "))
        elif found and line.startswith("    "):
            found[-1] += f" {line.strip()}"
    return tuple(found)


def _tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
