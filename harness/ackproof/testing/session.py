"""The cases that one pytest process runs: one batch of them, one Spark for all audits, one report at the end."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ackproof import audit
from ackproof.audit.results import AuditResult
from ackproof.base.wait import sigterm_as_interrupt
from ackproof.cluster.install import Installation, install, jars_by_label
from ackproof.experiment.case import Case
from ackproof.experiment.kafka import KafkaBuild
from ackproof.judge import work_out_removals
from ackproof.run.batch_state import Batch, PlannedCase, new_batch
from ackproof.run.case import run_case
from ackproof.run.machine import fit_to_machine
from ackproof.run.options import BatchOptions, command_of
from ackproof.run.phases import CaseOptions, SilentWatcher
from ackproof.rundir.layout import CaseDir, safe_name
from ackproof.spark.session import SparkTarget, spark_context
from ackproof.testing.current import own_warnings


@dataclass
class PluginSession:
    """Runs cases one after another, each audited and judged at once. `finish` writes the report and ends Spark.

    What pytest was told: `worker` is the xdist worker's name or ''; `command` the call that repeats all of it.
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
        """This Kafka, provisioned once. Raises as `ackproof.provision` does."""
        if build not in self._installed:
            with own_warnings():
                self._installed[build] = install(build)
        return self._installed[build]

    def run(self, file: Path, case: Case) -> PlannedCase:
        """Run a case, audit it, judge it. What went wrong is its `error`; raises `BadInput` if nothing was started."""
        ((_, case),) = fit_to_machine([(file, case)])
        installed = self.installed(case.experiment.cluster.kafka)
        batch = self._batch_with(case)
        one = PlannedCase(case, file, _folder(batch, case))
        batch.planned.append(one)
        batch.save()
        options = CaseOptions(
            batch=str(batch.directory.path),
            replay=replay_of(file, case),
            keep_data=self.keep_data,
            installed=installed,
            jars=jars_by_label(case.builds, {build: self.installed(build) for build in case.builds}),
        )
        with own_warnings(), sigterm_as_interrupt():
            one.attempt(lambda: run_case(case, one.run, options, SilentWatcher()))
            if one.run.ledger.exists():
                self.with_spark()
            batch.conclude([one], lambda _: None)
        return one

    def audit(self, directory: Path) -> AuditResult:
        """Audit one directory with the Spark of this session."""
        with own_warnings():
            self.with_spark()
            work_out_removals([directory])
            (result,) = audit.run([directory])
        return result

    def finish(self, *, interrupted: bool) -> Path | None:
        """End Spark and write the report. Its path, None when no case ran."""
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
        """Have a context, which every audit in this process then finds by itself."""
        if not self._has_spark:
            self._spark.enter_context(spark_context(SparkTarget(), lambda _: None))
            self._has_spark = True

    def _batch_with(self, case: Case) -> Batch:
        if self._batch is None:
            name = f"pytest-{self.worker}" if self.worker else "pytest"
            seed = case.experiment.seed if self.seed is None else self.seed
            self._batch = new_batch(self.out, name, seed, self.command)
        return self._batch


def replay_of(file: Path, case: Case) -> str:
    """The one command that runs this case again."""
    return command_of(BatchOptions((file,)), case.experiment.seed, only=case.id)


def _folder(batch: Batch, case: Case) -> CaseDir:
    """A folder that no other case has, nor an earlier run of this one."""
    home = batch.directory.path / safe_name(case.experiment.name)
    name = safe_name(case.id)
    taken = {one.run.path for one in batch.planned}
    tries = (home / (name if number == 1 else f"{name}-{number}") for number in range(1, len(taken) + 2))
    return CaseDir(next(path for path in tries if path not in taken))
