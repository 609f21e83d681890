"""ackproof from Python: what the command does, with typed results, for notebooks and scripts.

    from ackproof import api

    batch = api.run("experiments/baseline.yaml")
    print(batch.verdict, [run.verdict.reasons for run in batch.runs if run.verdict])

A result is a view of the files of a run: each access reads what is on disk now. Importing this module loads neither
Kafka's client, Arrow nor Spark; calling it does. Errors are those of `ackproof.base.errors`: `BadInput` for what the
caller must fix, other `AckproofError`s if the harness failed. What Kafka did wrong is never raised: it is a verdict.

The functions are not in `ackproof` itself, because importing a subpackage (`run`, `judge`) would replace its namesake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ackproof.base.errors import BadInput, MissingTool
from ackproof.base.extensions import VIEWS, load_extension
from ackproof.rundir import storage
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.document import Document
from ackproof.rundir.documents import AuditFile, CaseFile, FinalReadFile, VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.model import ConformanceFile, PredictionFile
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import Event, read_timeline

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

    from ackproof.audit.results import AuditResult
    from ackproof.experiment.case import Case

__all__ = ["Batch", "Run", "audit", "judge", "open_batch", "open_run", "plan", "report", "run"]

T = TypeVar("T", bound=Document)
AnyPath: TypeAlias = str | Path
_ELECTION = ("topic", "partition", "timestamp_ms", "leader", "leader_epoch", "isr", "replicas")
Progress: TypeAlias = Callable[[str], None]
"""Function that is called with a line of text for each step that takes long."""


@dataclass(frozen=True)
class Run:
    """One run directory. Each property reads one JSON file, and is None if that file is missing; `case` raises
    `BadInput` then. A broken file raises `BadInput`."""

    directory: Path

    @property
    def case(self) -> CaseFile:
        """The resolved case: settings, seed, backend, clients, and the command that repeats it."""
        return CaseFile.load(self._files.case_json)

    @property
    def audit(self) -> AuditFile | None:
        """Counts of the audit: findings by class, rows of the ledgers by outcome. None before the audit."""
        return _if_there(AuditFile, self._files.audit_json)

    @property
    def verdict(self) -> VerdictFile | None:
        """The verdict, its reasons, and the judgement of each anomaly class; None if the run was not judged."""
        return _if_there(VerdictFile, self._files.verdict_json)

    @property
    def prediction(self) -> PredictionFile | None:
        """Prediction of anomaly classes by the run's settings and observed faults; None if not predicted."""
        return _if_there(PredictionFile, self._files.prediction_json)

    @property
    def replay(self) -> ConformanceFile | None:
        """Replay in a reference model of Kafka: forbidden steps, explained losses. None if the run was not replayed."""
        return _if_there(ConformanceFile, self._files.conformance_json)

    @property
    def final_read(self) -> FinalReadFile | None:
        """Read of every partition from start to end after the load; `reasons`: why incomplete. None: there was none."""
        return _if_there(FinalReadFile, self._files.final_read)

    def events(self) -> tuple[Event, ...]:
        """Phases, faults, deaths, … in the order of writing. Unreadable lines are left out. `t_ns`: since the start."""
        return tuple(read_timeline(self._files.timeline)[0])

    def timeline(self) -> pandas.DataFrame:
        """The events, a row each: t_ns (since the run's start), wall_ns, kind, fault, node, …, detail (a mapping)."""
        import pandas

        columns = [name for name in Event.model_fields if name != "what"]
        rows = [event.model_dump(mode="json") for event in self.events()]
        return pandas.DataFrame(rows, columns=columns)

    def produced(self) -> ds.Dataset:
        """Ledger of produce calls, a row each (`rundir.schema.PRODUCED`). Raises `BadInput` if it has no files."""
        return _tables(self._files.produced)

    def consumed(self) -> ds.Dataset:
        """Ledger of records that readers got, a row each (`schema.CONSUMED`). Raises `BadInput` if it has no files."""
        return _tables(self._files.consumed)

    def findings(self) -> pandas.DataFrame:
        """Findings of the audit, a row each (`rundir.schema.GROUP_FINDINGS`). `group` and `member` are null in a class
        that belongs to a log. Raises `BadInput` before an audit."""
        from ackproof.rundir.schema import GROUP_FINDINGS

        files = self._files
        return _tables(files.findings, files.finding_parts, GROUP_FINDINGS).to_table().to_pandas()

    def spark(self, session: SparkSession) -> Mapping[str, DataFrame]:
        """Make temporary views of this run's tables in a session, classic or Connect; return their DataFrames by name.

        Tables, if the run has them: produced, consumed, transactions, deliveries, commits, membership, offsets_log,
        findings, series, timeline, samples, pulse, metrics, batches. The session's views of these names are replaced,
        or dropped. Looking up a table that the run lacks raises `BadInput` with the reason. Raises `MissingTool`
        without the package ackproof_lab, `AuditFailed` if Spark fails.
        """
        return _views(session, {self.directory.name: self.directory})

    def quantities(self) -> pandas.DataFrame:
        """Each quantity of docs/quantities.md with evidence in the run, by partition ('': all) and window ('': whole
        run). `low`, `high`: bounds of the value; for a state such as the ISR size, its least and greatest number.
        `why`: reason for an infinite bound. `timing`: name of the brokers' time-outs that a time depends on."""
        import pandas

        from ackproof.quantities.answer import Row, rows
        from ackproof.quantities.evidence import Evidence

        found = list(rows(Evidence.of_run(self._files)))
        return pandas.DataFrame(map(vars, found), columns=[field.name for field in fields(Row)])

    def metrics(self) -> pandas.DataFrame:
        """Metrics of every node, a row each: t_ns (asked), done_ns (answered), node, metric, value.

        Values are JMX's (times of requests in ms). Metric `up`: 1 if the node answered, else 0; no row if it was dead.
        Raises `BadInput` if the experiment did not observe metrics, or if the run broke off before their file was
        complete.
        """
        if not self._files.metrics.exists():
            raise BadInput(f"{self.directory}: no metrics were scraped; set observe: {{metrics: true}}")
        return storage.read_table(self._files.metrics).to_pandas()

    def series(self) -> pandas.DataFrame:
        """Acks, reads, latencies per partition and 100 ms (`rundir.schema.SERIES`). Raises `BadInput` if unaudited."""
        if not self._files.series.exists():
            raise BadInput(f"{self.directory}: the run was not audited, so there is no series")
        return storage.read_table(self._files.series).to_pandas()

    def elections(self) -> pandas.DataFrame:
        """Elections in the metadata log: topic, partition, timestamp_ms, leader, leader_epoch, isr, replicas, clean.
        `clean`: False if the leader was not in ISR or ELR (KIP-966) before; None: a gap hides it. No log: no rows."""
        import pandas

        from ackproof.quantities.evidence import Evidence

        log = Evidence.of_run(self._files).metadata_log
        found = (election for partition in sorted(log.states) for election in log.elections(partition))
        rows = [{**state.model_dump(include={*_ELECTION}), "clean": clean} for state, clean in found]
        return pandas.DataFrame(rows, columns=[*_ELECTION, "clean"])

    @property
    def _files(self) -> CaseDir:
        return CaseDir(self.directory)


@dataclass(frozen=True)
class Batch:
    """The folder of one batch. Methods that return a table of all runs skip unaudited runs that lack it. They raise
    `BadInput` if an audited run, or every run, lacks it. With several files, column `case` is `EXPERIMENT: CASE`."""

    directory: Path

    @property
    def document(self) -> BatchFile:
        """`batch.json`: an entry for each case, with verdict, reasons, counts and error."""
        return BatchFile.load(BatchDir(self.directory).batch_json)

    @property
    def verdict(self) -> Verdict | None:
        """The worst of the verdicts on cases and on expectations over repeats. None if the user stopped the batch, or
        if a verdict is missing and none is FAIL."""
        return self.document.verdict

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, in the order of the cases. A case that has not started has no folder yet."""
        return tuple(Run(self.directory / case.run) for case in self.document.cases)

    def spark(self, session: SparkSession) -> Mapping[str, DataFrame]:
        """Make the views of `Run.spark` over all runs. The column `run` of each view names the run."""
        return _views(session, {case.run: self.directory / case.run for case in self.document.cases})

    def quantities(self) -> pandas.DataFrame:
        """`Run.quantities` of all runs, with the columns `case` (without its repeat) and `repeat` first."""
        return self._frame(lambda run: run.quantities())

    def findings(self) -> pandas.DataFrame:
        """`Run.findings` of all runs, with the columns `case` and `repeat` first."""
        return self._frame(lambda run: run.findings())

    def series(self) -> pandas.DataFrame:
        """`Run.series` of all runs, with the columns `case` and `repeat` first."""
        return self._frame(lambda run: run.series())

    def elections(self) -> pandas.DataFrame:
        """`Run.elections` of all runs, with the columns `case` and `repeat` first."""
        return self._frame(lambda run: run.elections())

    def metrics(self) -> pandas.DataFrame:
        """`Run.metrics` of all runs, with the columns `case` and `repeat` first."""
        return self._frame(lambda run: run.metrics())

    def timeline(self) -> pandas.DataFrame:
        """`Run.timeline` of all runs, with the columns `case` and `repeat` first."""
        return self._frame(lambda run: run.timeline())

    def _frame(self, table: Callable[[Run], pandas.DataFrame]) -> pandas.DataFrame:
        import pandas

        found = []
        for entry in self.document.cases:
            run = Run(self.directory / entry.run)
            if not CaseDir(run.directory).case_json.exists():
                continue
            try:
                one = table(run)
            except BadInput:
                if CaseDir(run.directory).audit_json.exists():
                    raise
                continue
            case = f"{entry.experiment}: {entry.cell_name}" if entry.experiment else entry.cell_name
            one.insert(0, "case", case)
            one.insert(1, "repeat", entry.repeat)
            found.append(one)
        if not found:
            raise BadInput(f"{self.directory}: no run of this batch has such a table")
        return pandas.concat([one for one in found if len(one)] or found[:1], ignore_index=True)

    @property
    def report(self) -> Path:
        """Path of the report, one HTML page. The file may not exist."""
        return BatchDir(self.directory).report_html


def plan(
    *files: AnyPath,
    backend: str | None = None,
    seed: int | None = None,
    repeat: int | None = None,
    settings: Sequence[str] = (),
    only: Sequence[str] = (),
) -> list[Case]:
    """Return the cases of experiment files, in order, with every random choice drawn. Nothing is started.

    `backend`, `seed`, `repeat` and each of `settings` (`PATH=VALUE`, such as `cluster.kafka=4.2.1`) override the files;
    `only` names cases (`acks=1` or `acks=1#2`). Raises `BadInput` with the errors of the first file that has any.
    """
    from ackproof.run.options import BatchOptions, plan_cases

    paths = tuple(map(Path, files))
    options = BatchOptions(
        paths, backend=backend, seed=seed, repeat=repeat, settings=tuple(settings), only=tuple(only)
    )
    return [case for _, case in plan_cases(options)]


def run(
    *files: AnyPath,
    backend: str | None = None,
    seed: int | None = None,
    repeat: int | None = None,
    settings: Sequence[str] = (),
    only: Sequence[str] = (),
    bootstrap: str | None = None,
    client_config: AnyPath | None = None,
    out: AnyPath = "runs",
    keep_data: bool = False,
    simulate: bool = False,
    at_most: int | None = None,
    progress: Progress | None = None,
) -> Batch:
    """Run experiment files on real clusters; audit, judge and report them. Takes as long as the experiments do.

    `at_most`: repeat cases until each expectation over their repeats is decided, at most this number of times.
    `simulate`: also run each case in the simulator, for the report. `bootstrap` (`host:port,…`) and `client_config` (a
    file of `key=value` lines): an existing cluster. `out`: folder or URI in which the batch gets a folder. `keep_data`:
    keep the brokers' data. `progress` gets each long step in words. Other arguments: see `plan`. A case that the
    harness cannot complete has an `error` in `Batch.document`. Raises `BadInput` if files, tools or the machine do not
    allow the run, or if every case was refused. A KeyboardInterrupt ends all that was started, and is raised again.
    """
    from ackproof.cluster.backends.attach.options import attachment
    from ackproof.run.batch import run_batch
    from ackproof.run.options import BatchOptions, plan_batch
    from ackproof.run.phases import SilentWatcher

    attached = attachment(bootstrap, None if client_config is None else Path(client_config), (), backend)
    options = BatchOptions(
        tuple(map(Path, files)),
        backend=backend if attached is None else "attach",
        seed=seed,
        repeat=repeat,
        settings=tuple(settings),
        only=tuple(only),
        attachment=attached,
        out=storage.locate(out),
        keep_data=keep_data,
        simulate=simulate,
        at_most=at_most,
    )
    return Batch(run_batch(plan_batch(options), SilentWatcher(progress)).location.path)


def audit(
    directories: Iterable[AnyPath],
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> list[AuditResult]:
    """Count what became of every record, in any folders with `ledger/produced` and `ledger/consumed`.

    Writes `audit.json`, findings and series into each folder that can be counted. Returns results in the same order; if
    an audit fails, even by Spark, its `file` is None and `reasons` says why. `spark` (classic or Connect), or the
    active session, is used and left running. Otherwise a session starts: on all local cores, at `master`
    (`spark://host:7077`) or `remote` (`sc://host:15002`), with `conf` over spark-defaults.conf. Raises `MissingTool` if
    Spark needs Java and there is none.
    """
    from ackproof.audit import run as audit_all
    from ackproof.judge import prepare_audit

    prepare_audit(folders := [storage.locate(directory) for directory in directories])
    return audit_all(folders, master=master, remote=remote, conf=conf, spark=spark, progress=progress)


def judge(directory: AnyPath, *, progress: Progress | None = None) -> tuple[Run, ...]:
    """Judge a batch or one run again from its files, and return its runs. Unaudited runs of a batch are audited first,
    and its report is written again. A run whose files are missing, changed or unreadable is INCONCLUSIVE. `progress`
    gets each long step in words. Raises `BadInput` for a folder that is neither, and for a single unaudited run."""
    from ackproof.run.conclude import conclude_again, judge_run

    path = storage.locate(directory).resolve()
    if BatchDir(path).batch_json.exists():
        conclude_again(BatchDir(path), progress or (lambda _: None))
        return Batch(path).runs
    judge_run(CaseDir(path))
    return (Run(path),)


def report(directory: AnyPath) -> Path:
    """Write the reports of a batch again; return the path of the HTML page. Raises `BadInput` if there is no batch."""
    from ackproof_reports import render_batch

    batch = Batch(storage.locate(directory).resolve())
    _ = batch.document
    render_batch(batch.directory)
    return batch.report


def open_run(directory: AnyPath) -> Run:
    """Open a run directory of any version. Raises `BadInput` without a readable `case.json`."""
    found = Run(storage.locate(directory).resolve())
    _ = found.case
    return found


def open_batch(directory: AnyPath) -> Batch:
    """Open the folder of a batch of any version. Raises `BadInput` without a readable `batch.json`."""
    found = Batch(storage.locate(directory).resolve())
    _ = found.document
    return found


def _views(session: SparkSession, runs: Mapping[str, Path]) -> Mapping[str, DataFrame]:
    register = load_extension(VIEWS)
    if register is None:
        raise MissingTool("SQL over runs", "it makes the views", "the package ackproof_lab")
    views: Mapping[str, DataFrame] = register(session, runs)
    return views


def _if_there(kind: type[T], path: Path) -> T | None:
    return kind.load(path) if path.exists() else None


def _tables(folder: Path, files: Sequence[Path] | None = None, schema: pa.Schema | None = None) -> ds.Dataset:
    from ackproof.rundir.ledger import parts

    found = parts(folder) if files is None else files
    if not found:
        raise BadInput(f"{folder}: no tables here")
    return storage.open_dataset(found, schema)
