"""Runs whole cases with hooks, audits all of them as one job, and judges each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ackproof.cluster.install import Installation
from ackproof.judge import prepare_audit
from ackproof.plan import cases, load
from ackproof.run.case import run_case
from ackproof.run.conclude import judge_run
from ackproof.run.phases import CaseOptions, Hook, Phase
from ackproof.rundir.documents import AuditFile, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import Event, EventKind, read_timeline

from ...audit.local import audited


@dataclass
class Watching:
    """Watcher of a run that records each event with its time (`time.monotonic()`). `on_live` is called with the number
    of acknowledged records."""

    on_live: Callable[[int], None] = lambda acked: None
    told: list[tuple[float, Event]] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.told.append((time.monotonic(), event))

    def live(self, acked: int, read: int, isr: str) -> None:
        self.on_live(acked)

    def first(self, kind: EventKind) -> tuple[float, Event]:
        return next(one for one in self.told if one[1].kind is kind)


@dataclass(frozen=True)
class Judged:
    """One run with its audit and verdict. `audit_code`: exit code of the audit."""

    run: CaseDir
    audit: AuditFile
    audit_code: int
    verdict: VerdictFile

    @property
    def reasons(self) -> str:
        return "\n".join(self.verdict.reasons)

    def events(self, kind: EventKind) -> list[Event]:
        events, whole = read_timeline(self.run.timeline)
        assert whole
        return [event for event in events if event.kind is kind]


@dataclass
class Stage:
    """Runs cases below one folder and judges them. `runs`: the run directories by name of the case."""

    folder: Path
    installed: Installation
    runs: dict[str, CaseDir] = field(default_factory=dict)

    def play(
        self, name: str, yaml: str, hooks: Mapping[Phase, Hook] | None = None, watcher: Watching | None = None
    ) -> CaseDir:
        """Run the one case of an experiment, and return its run directory. `yaml`: the experiment without its name.
        `hooks`: by phase, a function that is called at its beginning."""
        file = self.folder / f"{name}.yaml"
        file.write_text(f"name: {name}\n{yaml}", encoding="utf-8")
        (case,) = cases(load(file))
        run = CaseDir(self.folder / name)
        options = CaseOptions(
            batch=str(self.folder),
            replay=f"ackproof run {file}",
            installed=self.installed,
            hooks=hooks or {},
        )
        run_case(case, run, options, watcher or Watching())
        self.runs[name] = run
        return run

    def judge(self) -> dict[str, Judged]:
        """Audit all runs as one job without Spark, which has tests of its own, and judge each; return the results by
        name."""
        folders = [run.path for run in self.runs.values()]
        prepare_audit(folders)
        results = audited(folders)
        judged = {}
        for (name, run), result in zip(self.runs.items(), results, strict=True):
            assert result.file is not None, (name, result.reasons)
            judge_run(run)
            verdict = VerdictFile.load(run.verdict_json)
            judged[name] = Judged(run, result.file, result.code, verdict)
        return judged
