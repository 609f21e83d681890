"""ackproof from Python: what the command does, with typed results, for notebooks and scripts.

    from ackproof import api

    batch = api.run("experiments/baseline.yaml")
    print(batch.verdict, [run.verdict.reasons for run in batch.runs if run.verdict])

A result is a view of the files that a run left: what is read is what is on disk now. Importing this module loads
neither Kafka's client, Arrow nor Spark; calling into it does. Errors are those of `ackproof.base.errors`: `BadInput`
for what the caller must mend, other `AckproofError`s where the harness itself failed. What Kafka did wrong is never
raised: it is a verdict.

The functions stand here and not in `ackproof` itself, because `run`, `plan`, `audit` and `judge` are rooms of the
house too: importing one of those binds its name in the package, whatever stood there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from ackproof.base.errors import BadInput, MissingTool
from ackproof.base.extensions import VIEWS, load_extension
from ackproof.rundir import storage
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import AuditFile, CaseFile, Document, FinalReadFile, VerdictFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.model import ConformanceFile, PredictionFile
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import Event, read_timeline

if TYPE_CHECKING:
    import pandas
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

    from ackproof.audit.results import AuditResult
    from ackproof.experiment.case import Case

__all__ = ["Batch", "Run", "audit", "judge", "open_batch", "open_run", "plan", "report", "run"]

T = TypeVar("T", bound=Document)
AnyPath: TypeAlias = str | Path
_ELECTION = ("topic", "partition", "timestamp_ms", "leader", "leader_epoch", "isr", "replicas")
Progress: TypeAlias = Callable[[str], None]
"""Is told, in words, of what takes long."""


@dataclass(frozen=True)
class Run:
    """One run directory. A property whose file is not there is None; one that cannot be read raises `BadInput`."""

    directory: Path

    @property
    def case(self) -> CaseFile:
        """The resolved case: settings, seed, backend, clients, and the command that repeats it."""
        return CaseFile.load(self._files.case_json)

    @property
    def audit(self) -> AuditFile | None:
        """What was counted: findings by class, rows of the ledgers by outcome."""
        return _if_there(AuditFile, self._files.audit_json)

    @property
    def verdict(self) -> VerdictFile | None:
        """The verdict, its reasons, and what is said of each class."""
        return _if_there(VerdictFile, self._files.verdict_json)

    @property
    def prediction(self) -> PredictionFile | None:
        """What the reference implementation says may happen under these settings and the faults observed."""
        return _if_there(PredictionFile, self._files.prediction_json)

    @property
    def replay(self) -> ConformanceFile | None:
        """The run replayed through the reference implementation, and the losses that its steps explain."""
        return _if_there(ConformanceFile, self._files.conformance_json)

    @property
    def final_read(self) -> FinalReadFile | None:
        """Start, end, epoch and position of the complete read of every partition. Offsets as the brokers said."""
        return _if_there(FinalReadFile, self._files.final_read)

    def events(self) -> tuple[Event, ...]:
        """Phases, faults, deaths, elections, in order; `t_ns` counts nanoseconds since the run's start."""
        return tuple(read_timeline(self._files.timeline)[0])

    def timeline(self) -> pandas.DataFrame:
        """The events, a row each; `detail` is a mapping."""
        import pandas

        columns = [name for name in Event.model_fields if name != "what"]
        told = [event.model_dump(mode="json") for event in self.events()]
        return pandas.DataFrame(told, columns=columns)

    def produced(self) -> ds.Dataset:
        """The ledger of produce calls, one row each; times in nanoseconds since the run's start."""
        return _tables(self._files.produced)

    def consumed(self) -> ds.Dataset:
        """The ledger of records that readers were handed, live (phase 0) and at the end (phase 1)."""
        return _tables(self._files.consumed)

    def findings(self) -> pandas.DataFrame:
        """What the audit found, a row for each unit that it counted: class, topic, partition, offset, … Raises
        `BadInput` where nothing was counted."""
        return _tables(self._files.findings, self._files.finding_parts).to_table().to_pandas()

    def spark(self, session: SparkSession) -> Mapping[str, DataFrame]:
        """Temporary views of its tables in a session, classic or Connect, and their DataFrames, by name.

        produced, consumed, transactions, findings, series, timeline, samples, pulse, metrics, batches: those that are
        there, as they are now; views of these names in the session are replaced. Asking for another raises `BadInput`,
        which says why it is not there.
        """
        return _views(session, {self.directory.name: self.directory})

    def quantities(self) -> pandas.DataFrame:
        """Every quantity of docs/quantities.md, one row each: quantity, partition ('' all), window ('' the whole run),
        unit, and `low` and `high`, between which it lies (equal: known exactly; infinite: cut or unknown, and `why`
        says why; of a state: the least and the greatest seen), and `timing` of a time."""
        import pandas

        from ackproof.quantities.answer import Row, rows
        from ackproof.quantities.evidence import Evidence

        found = list(rows(Evidence.of_run(self._files)))
        return pandas.DataFrame(map(vars, found), columns=[field.name for field in fields(Row)])

    def metrics(self) -> pandas.DataFrame:
        """What every node told of its own metrics, a row each: t_ns (asked), done_ns (answered), node, metric, value as
        JMX has it (times of requests in ms); the metric `up` says whether it answered. Raises `BadInput` where the
        experiment did not observe metrics."""
        if not self._files.metrics.exists():
            raise BadInput(f"{self.directory}: no metrics were scraped; they take observe: {{metrics: true}}")
        return storage.read_table(self._files.metrics).to_pandas()

    def series(self) -> pandas.DataFrame:
        """Acks, reads and latencies per partition and 100 ms, a row each (`ackproof.rundir.schema.SERIES`). Raises
        `BadInput` where nothing was counted."""
        if not self._files.series.exists():
            raise BadInput(f"{self.directory}: nothing was counted, so that there is no series")
        return storage.read_table(self._files.series).to_pandas()

    def elections(self) -> pandas.DataFrame:
        """Each election that the metadata log tells, a row each; `clean`: the leader was in the ISR, or eligible, until
        then, None where a hole hides that. No row where that log was not seen."""
        import pandas

        from ackproof.quantities.evidence import Evidence

        log = Evidence.of_run(self._files).metadata_log
        told = [(one, clean) for place in sorted(log.states) for one, clean in log.elections(place)]
        found = [{**one.model_dump(include={*_ELECTION}), "clean": clean} for one, clean in told]
        return pandas.DataFrame(found, columns=[*_ELECTION, "clean"])

    @property
    def _files(self) -> CaseDir:
        return CaseDir(self.directory)


@dataclass(frozen=True)
class Batch:
    """The folder of the cases of one call, with one audit and one report."""

    directory: Path

    @property
    def document(self) -> BatchFile:
        """`batch.json`: a line for each case, with verdict, reasons, counts, and what went wrong."""
        return BatchFile.load(BatchDir(self.directory).batch_json)

    @property
    def verdict(self) -> Verdict | None:
        """The worst of all cases; None where the harness failed."""
        return self.document.verdict

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, in the order of the cases."""
        return tuple(Run(self.directory / case.run) for case in self.document.cases)

    def spark(self, session: SparkSession) -> Mapping[str, DataFrame]:
        """As `Run.spark`, over all its runs: the column `run` tells them apart."""
        return _views(session, {case.run: self.directory / case.run for case in self.document.cases})

    def quantities(self) -> pandas.DataFrame:
        """Every quantity of all its runs, as `Run.quantities`, led by `case` (without its repeat) and `repeat`."""
        return self._frame(lambda run: run.quantities())

    def findings(self) -> pandas.DataFrame:
        """What the audit found in all its runs, a row for each unit that it counted, led by `case` and `repeat`."""
        return self._frame(lambda run: run.findings())

    def series(self) -> pandas.DataFrame:
        """As `Run.series`, of all its runs, led by `case` and `repeat`."""
        return self._frame(lambda run: run.series())

    def elections(self) -> pandas.DataFrame:
        """As `Run.elections`, of all its runs, led by `case` and `repeat`."""
        return self._frame(lambda run: run.elections())

    def metrics(self) -> pandas.DataFrame:
        """As `Run.metrics`, of all its runs, led by `case` and `repeat`."""
        return self._frame(lambda run: run.metrics())

    def timeline(self) -> pandas.DataFrame:
        """As `Run.timeline`, of all its runs, led by `case` and `repeat`."""
        return self._frame(lambda run: run.timeline())

    def _frame(self, table: Callable[[Run], pandas.DataFrame]) -> pandas.DataFrame:
        """The tables of all runs below each other. A run that left none (the harness failed early) has no rows."""
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
            raise BadInput(f"{self.directory}: no run of it left such a table")
        return pandas.concat([one for one in found if len(one)] or found[:1], ignore_index=True)

    @property
    def report(self) -> Path:
        """The report as one HTML page."""
        return BatchDir(self.directory).report_html


def plan(
    *files: AnyPath,
    backend: str | None = None,
    seed: int | None = None,
    repeat: int | None = None,
    settings: Sequence[str] = (),
    only: Sequence[str] = (),
) -> list[Case]:
    """The cases of experiment files, in order, every random choice drawn. Nothing is started.

    `backend`, `seed` and `repeat` count more than what the files say, and so does each of `settings`
    (`PATH=VALUE`, such as `cluster.kafka=4.2.1`); `only` names the cases that are meant (`acks=1` or `acks=1#2`).
    Raises `BadInput` with all that is wrong with the files.
    """
    from ackproof.run.options import BatchOptions, plan_cases

    options = BatchOptions(
        tuple(map(Path, files)),
        backend=backend,
        seed=seed,
        repeat=repeat,
        settings=tuple(settings),
        only=tuple(only),
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
    """Run experiment files on real clusters, audit, judge and report. Takes as long as the experiments do.

    `at_most` goes on with further repeats until all that is expected over them is decided, up to so many of each case;
    `bootstrap` (`host:port,…`) and `client_config` (a file of `key=value` lines) name a cluster that someone else
    runs; `keep_data` keeps the brokers' data; `simulate` also simulates each case, for the report. The other
    arguments are those of `plan`. Raises `BadInput` before anything is started where files, tools or the machine do
    not allow it; a KeyboardInterrupt ends all that was started and is raised again.
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
    return Batch(run_batch(plan_batch(options), SilentWatcher(progress)).kept.path)


def audit(
    directories: Iterable[AnyPath],
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> list[AuditResult]:
    """Count what became of every record, in any folders that hold `ledger/produced` and `ledger/consumed`.

    One Spark job over all of them; a result for each, in order. `spark`, classic or Connect, is used and left
    running, and so is the session that is active here; else one is started, on all local cores, at `master`
    (`spark://host:7077`) or `remote` (`sc://host:15002`), with the settings of `conf` over spark-defaults.conf. What
    is wrong with a folder is in its result. Raises `MissingTool` without Java.
    """
    from ackproof.audit import run as audit_all
    from ackproof.judge import work_out_removals

    work_out_removals(folders := [storage.locate(directory) for directory in directories])
    return audit_all(folders, master=master, remote=remote, conf=conf, spark=spark, progress=progress)


def judge(directory: AnyPath, *, progress: Progress | None = None) -> tuple[Run, ...]:
    """Judge a batch or one run anew from what is on disk, and return its runs, with what they came to.

    Of a batch, what was never audited is audited first, and its report is written again. Raises `BadInput` for a
    folder that is neither, and for a run alone that was never audited.
    """
    from ackproof.run.conclude import conclude_again, run_stages

    path = storage.locate(directory).resolve()
    if BatchDir(path).batch_json.exists():
        conclude_again(BatchDir(path), progress or (lambda _: None))
        return Batch(path).runs
    run_stages(CaseDir(path))
    return (Run(path),)


def report(directory: AnyPath) -> Path:
    """Write the reports of a batch again; the HTML page. Raises `BadInput` where there is no batch."""
    from ackproof_reports import render_batch

    batch = Batch(storage.locate(directory).resolve())
    _ = batch.document
    render_batch(batch.directory)
    return batch.report


def open_run(directory: AnyPath) -> Run:
    """A run directory, old or new. Raises `BadInput` where there is no readable `case.json`."""
    found = Run(storage.locate(directory).resolve())
    _ = found.case
    return found


def open_batch(directory: AnyPath) -> Batch:
    """The folder of a batch, old or new. Raises `BadInput` where there is no readable `batch.json`."""
    found = Batch(storage.locate(directory).resolve())
    _ = found.document
    return found


class _MakeViews(Protocol):
    def __call__(self, session: SparkSession, runs: Mapping[str, Path], /) -> Mapping[str, DataFrame]: ...


def _views(session: SparkSession, runs: Mapping[str, Path]) -> Mapping[str, DataFrame]:
    register: _MakeViews | None = load_extension(VIEWS)
    if register is None:
        raise MissingTool("SQL over runs", "it makes the views", "the package ackproof_lab")
    return register(session, runs)


def _if_there(kind: type[T], path: Path) -> T | None:
    return kind.load(path) if path.exists() else None


def _tables(folder: Path, files: Sequence[Path] | None = None) -> ds.Dataset:
    from ackproof.rundir.ledger import parts

    found = parts(folder) if files is None else files
    if not found:
        raise BadInput(f"{folder}: there are no tables")
    return storage.open_dataset(found)
