"""Collects an experiment file as a pytest file, and each of its cases as a test.

A case runs in the setup of its test. So pytest reports ERROR for a case without a usable verdict (INCONCLUSIVE, a
failure of the harness), and FAILED for the verdict FAIL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from ackproof import audit
from ackproof.audit.results import AuditResult
from ackproof.base.errors import BadInput
from ackproof.base.wait import sigterm_as_interrupt
from ackproof.cluster.install import Installation, install, jars_by_label
from ackproof.experiment.case import Case
from ackproof.experiment.kafka import KafkaBuild
from ackproof.faults.code.fitting import require_points
from ackproof.judge import prepare_audit
from ackproof.plan.cases import cases
from ackproof.run.batch_state import Batch, PlannedCase, new_batch
from ackproof.run.case import run_case
from ackproof.run.machine import fit_to_machine
from ackproof.run.options import BatchOptions, command_of, plan_here
from ackproof.run.phases import CaseOptions, SilentWatcher
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.layout import CaseDir, safe_name
from ackproof.rundir.outcome import Verdict
from ackproof.spark.session import SparkTarget, spark_context
from ackproof.testing.plugin import display_path, own_warnings, session_of


class ExperimentFile(pytest.File):
    """An experiment file. All its errors are reported at once, with line and column. A file with expectations over
    repeats is an error, too."""

    def collect(self) -> Iterator[ExperimentItem]:
        file = Path(display_path(self.path))
        try:
            plan = plan_here(file)
            found = cases(plan, seed=self.config.getoption("ackproof_seed"))
        except BadInput as error:
            raise self.CollectError(str(error)) from None
        if plan.over_repeats:
            # Each case is a separate test, perhaps in another process, so cases cannot be compared here.
            raise self.CollectError(
                f"{file}: {plan.over_repeats[0].title}: pytest cannot judge expectations over repeats. "
                f"Use: ackproof run {file}"
            )
        for case in found:
            yield ExperimentItem.from_parent(self, name=case.id, file=file, case=case)


class ExperimentItem(pytest.Item):
    """One case of an experiment file as a pytest item. It passes if the verdict is PASS."""

    def __init__(self, *, file: Path, case: Case, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.file = file
        self.case = case
        self.ran: PlannedCase | None = None
        self.add_marker("ackproof")
        # The expression of `-k` cannot contain '=': -k "acks:1" selects acks=1.
        self.extra_keyword_matches.update((case.experiment.name, case.id.replace("=", ":")))

    def setup(self) -> None:
        """Run, audit and judge the case. Fails if there is no verdict or if it is INCONCLUSIVE, so that pytest reports
        ERROR."""
        self.ran = None
        # Another plugin may run a failed test again: then set its properties again.
        self.user_properties = [one for one in self.user_properties if not one[0].startswith("ackproof.")]
        self.user_properties += [
            ("ackproof.seed", str(self.case.experiment.seed)),
            *((f"ackproof.setting:{path}", str(value)) for path, value in self.case.settings.items()),
        ]
        try:
            ran = session_of(self.config).run(self.file, self.case)
        except BadInput as error:
            self._fail(f"{self._title('no verdict')}\n  {error}")
        self.ran = ran
        verdict = _verdict(ran)
        self.user_properties += [
            ("ackproof.verdict", str(verdict or "none")),
            ("ackproof.run", os.fspath(ran.run.path)),
            ("ackproof.replay", _replay_of(self.file, self.case)),
        ]
        if verdict is None or verdict is Verdict.INCONCLUSIVE:
            self._fail(self._text(ran))

    def runtest(self) -> None:
        if self.ran is None:
            self._fail(self._title("no verdict"))
        if _verdict(self.ran) is not Verdict.PASS:
            self._fail(self._text(self.ran))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.file}::{self.name}"

    def _fail(self, text: str) -> NoReturn:
        pytest.fail(text, pytrace=False)

    def _title(self, word: str) -> str:
        return f"{word}: {self.case.experiment.name}, {self.case.id}"

    def _text(self, ran: PlannedCase) -> str:
        result = ran.result
        lines = [self._title(str(_verdict(ran) or "no verdict"))]
        error = ran.error or (result.error if result else None)
        if error:
            lines += [f"  {line}" for line in error.splitlines()]
        if result is not None and result.verdict is not None:
            lines += [f"  {reason}" for reason in result.verdict.reasons]
        if result is not None and result.audit is not None:
            records = result.audit.audited
            found = ", ".join(f"{name} {count}" for name in Anomaly if (count := result.counts.get(name)))
            lines.append(
                f"counted: {records.acked} acked, {records.failed} failed, {records.indeterminate} "
                f"indeterminate; {found or 'no findings'}"
            )
        lines += [f"run: {display_path(ran.run.path)}", f"again: {_replay_of(self.file, self.case)}"]
        return "\n".join(lines)


def _verdict(ran: PlannedCase) -> Verdict | None:
    return ran.result.verdict.verdict if ran.result is not None and ran.result.verdict is not None else None


@dataclass
class PluginSession:
    """Runs cases one after another, each audited and judged at once. `finish` writes the report and ends Spark.

    `out`: folder for batches. `seed`: replaces the seed of each file; None: files keep their seeds. `keep_data`: keep
    the brokers' data. `worker`: name of the xdist worker, '' without xdist. `command`: command line that repeats the
    whole session.
    """

    out: Path
    seed: int | None
    keep_data: bool
    worker: str
    command: str
    _batch: Batch | None = field(default=None, init=False)
    _installed: dict[KafkaBuild, Installation] = field(default_factory=dict, init=False)
    _spark: ExitStack = field(default_factory=ExitStack, init=False)
    _has_spark: bool = field(default=False, init=False)

    def installed(self, build: KafkaBuild) -> Installation:
        """Return the installation of a Kafka build, provisioned once per session. Raises `AckproofError` if that
        fails, for example `MissingTool`.
        """
        if build not in self._installed:
            with own_warnings():
                self._installed[build] = install(build)
        return self._installed[build]

    def run(self, file: Path, case: Case) -> PlannedCase:
        """Run, audit and judge a case, and return it. A failure of the run is not raised: it is the `error` of the
        result. Raises `BadInput` for a case that cannot be run here (nothing is started then). Raises `AckproofError`
        if Kafka cannot be installed, `MissingTool` or `AuditFailed` if Spark does not start."""
        ((_, case),) = fit_to_machine([(file, case)])
        ready = {build: self.installed(build) for build in case.builds}
        require_points([case], ready)
        if self._batch is None:
            name = f"pytest-{self.worker}" if self.worker else "pytest"
            seed = case.experiment.seed if self.seed is None else self.seed
            self._batch = new_batch(self.out, name, seed, self.command)
        batch = self._batch
        one = PlannedCase(case, file, _folder(batch, case))
        batch.planned.append(one)
        batch.save()
        options = CaseOptions(
            batch=str(batch.directory.path),
            replay=_replay_of(file, case),
            keep_data=self.keep_data,
            installed=ready[case.experiment.cluster.kafka],
            jars=jars_by_label(case.builds, ready),
        )
        with own_warnings(), sigterm_as_interrupt():
            one.attempt(lambda: run_case(case, one.run, options, SilentWatcher()))
            if one.run.ledger.exists():
                self.with_spark()
            batch.conclude([one], lambda _: None)
        return one

    def audit(self, directory: Path) -> AuditResult:
        with own_warnings():
            self.with_spark()
            prepare_audit([directory])
            (result,) = audit.run([directory])
        return result

    def finish(self, *, interrupted: bool) -> Path | None:
        """End Spark, write the report, which says if the session was `interrupted`, and point `latest` to the batch.
        Return the path of the report; None if no case ran."""
        with own_warnings():
            self._spark.close()
            batch = self._batch
            if batch is None:
                return None
            batch.interrupted = interrupted
            batch.publish(lambda _: None)
            batch.point_latest()
        return batch.directory.report_html

    def with_spark(self) -> None:
        """Start a Spark context, which every later audit in this process uses; a second call does nothing. Raises
        `MissingTool` without Java, `AuditFailed` if Spark does not start."""
        if not self._has_spark:
            self._spark.enter_context(spark_context(SparkTarget(), lambda _: None))
            self._has_spark = True


def _replay_of(file: Path, case: Case) -> str:
    """Return the command that runs this case again."""
    return command_of(BatchOptions((file,)), case.experiment.seed, only=case.id)


def _folder(batch: Batch, case: Case) -> CaseDir:
    """Return the run directory for a case, which differs from those of other cases and of its earlier runs. It is not
    created."""
    home = batch.directory.path / safe_name(case.experiment.name)
    name = safe_name(case.id)
    taken = {one.run.path for one in batch.planned}
    tries = (home / (name if number == 1 else f"{name}-{number}") for number in range(1, len(taken) + 2))
    return CaseDir(next(path for path in tries if path not in taken))
