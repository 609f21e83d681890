"""The tables of runs as DataFrames and temporary views of a session, for queries in SQL.

A view shows the files as they were when it was made; made again, it shows the files of a later audit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ackproof.base.errors import BadInput
from ackproof.rundir.groups import COMMITS, DELIVERIES, MEMBERSHIP, OFFSETS_LOG
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts
from ackproof.rundir.replicas import BATCHES
from ackproof.rundir.schema import CONSUMED, GROUP_FINDINGS, METRICS, PRODUCED, SERIES, TRANSACTIONS
from ackproof.spark.session import classic_context
from ackproof.spark.workers import audit_failure, send_code
from ackproof_lab.sql import scan

Value: TypeAlias = object
"""Value of a cell in Python: a number, a text, a list, a dict, a time …, None."""

_FORMAT: Final = "ackproof"
_EVENT: Final = (
    "t_ns BIGINT, wall_ns BIGINT, kind STRING, fault INT, node INT, client STRING, topic STRING, partition INT, "
    "detail STRING"
)
_SAMPLE: Final = (
    "t_ns BIGINT, topic STRING, partition INT, leader INT, leader_epoch INT, replicas ARRAY<INT>, isr ARRAY<INT>, "
    "high_watermark BIGINT, last_stable BIGINT, log_ends MAP<STRING, BIGINT>, eligible ARRAY<INT>"
)
_PULSE: Final = (
    "t_ns BIGINT, late_ms DOUBLE, looks INT, sent BIGINT, acked BIGINT, busy DOUBLE, stolen DOUBLE, "
    "cpu_pressure DOUBLE, io_pressure DOUBLE, memory_pressure DOUBLE"
)


@dataclass(frozen=True)
class _Table:
    """A table that a run's files can provide, and its view. `lack`: why a run may not have it."""

    name: str
    files: Callable[[CaseDir], Sequence[Path] | None]
    """Returns the files of the table; None if the run has no such table."""
    columns: pa.Schema | str
    """Schema of a table in Parquet. A str for JSON lines: the fields that become columns, in the syntax of from_json
    (STRING accepts any JSON)."""
    lack: str = "this run left none"


def _file(path: Path) -> list[Path] | None:
    return [path] if path.exists() else None


def _ledger(folder: Path) -> list[Path] | None:
    return parts(folder) if folder.is_dir() else None


_UNCOUNTED: Final = "not counted yet; first: ackproof audit {}"
_UNGROUPED: Final = "the experiment has no consumer groups"
_TABLES: Final = (
    _Table("produced", lambda run: _ledger(run.produced), PRODUCED),
    _Table("consumed", lambda run: _ledger(run.consumed), CONSUMED),
    _Table(
        "transactions", lambda run: _ledger(run.transactions), TRANSACTIONS, "nobody wrote in transactions"
    ),
    *(
        _Table(name, lambda run, folder=folder: _ledger(getattr(run, folder)), schema, _UNGROUPED)  # type: ignore[misc]
        for name, folder, schema in (
            ("deliveries", "deliveries", DELIVERIES),
            ("commits", "commits_ledger", COMMITS),
            ("membership", "membership", MEMBERSHIP),
        )
    ),
    _Table("offsets_log", lambda run: _file(run.offsets_log), OFFSETS_LOG, _UNGROUPED),
    _Table(
        "findings",
        lambda run: run.finding_parts if run.audit_json.exists() else None,
        GROUP_FINDINGS,
        _UNCOUNTED,
    ),
    _Table("series", lambda run: _file(run.series) if run.audit_json.exists() else None, SERIES, _UNCOUNTED),
    _Table("timeline", lambda run: _file(run.timeline), _EVENT),
    _Table("samples", lambda run: _file(run.samples), _SAMPLE),
    _Table("pulse", lambda run: _file(run.pulse), _PULSE),
    _Table("metrics", lambda run: _file(run.metrics), METRICS, "the experiment did not observe metrics"),
    _Table("batches", lambda run: _file(run.replica_batches), BATCHES),
)


class Views(dict[str, DataFrame]):
    """The DataFrame of each view, by name. A missing view raises `BadInput` with the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.lacks: dict[str, list[str]] = {}
        """Per view, one sentence for each run whose files for it are missing or unreadable."""
        self.counted: dict[str, int] = {}
        """Number of rows of each view, if the Parquet footers have it."""

    def __missing__(self, name: str) -> DataFrame:
        raise BadInput(self.why_not(name))

    def why_not(self, name: str) -> str:
        said = self.lacks.get(name)
        return f"no {name}: {said[0]}" if said else f"there is no view {name}; there are: {', '.join(self)}"

    def line(self, name: str) -> tuple[str, int, str]:
        rows = self.counted[name] if name in self.counted else self[name].count()
        return name, rows, ", ".join(self[name].columns)

    def partly(self, statement: str) -> list[str]:
        """Return a sentence for each run whose files are missing or unreadable for a view which the statement names."""
        there = [name for name in self if re.search(rf"\b{name}\b", statement, re.IGNORECASE)]
        return [f"no {name} of {why}" for name in there for why in self.lacks[name]]


def register(spark: SparkSession, runs: Mapping[str, Path]) -> Views:
    """Make the views of run directories; they replace views of the same names. The first column of each is
    `run`.

    `runs`: directories, by the value of that column. A view whose files are missing or unreadable in every run is left
    out, and dropped from the session. Raises `BadInput` for an invalid setting of the session, `AuditFailed` if Spark
    fails.
    """
    views = Views()
    try:
        send_code(classic_context(spark) or spark)
        spark.dataSource.register(scan.source(_FORMAT))
        for table in _TABLES:
            found, views.lacks[table.name] = _pieces(table, runs)
            if len(views.lacks[table.name]) == len(runs):
                spark.catalog.dropTempView(table.name)
                continue
            views[table.name] = _frame(spark, table, found)
            views[table.name].createOrReplaceTempView(table.name)
            if not isinstance(table.columns, str):
                views.counted[table.name] = sum(piece.rows for piece in found)
    except PySparkException as error:
        raise _wrong(error, views) or audit_failure(error, "Spark makes no views") from error
    return views


def _pieces(table: _Table, runs: Mapping[str, Path]) -> tuple[list[scan.Piece], list[str]]:
    """Return the row groups and text files of a table over all runs, and a sentence for each run without the
    table.
    """
    found: list[scan.Piece] = []
    lacks: list[str] = []
    for run, directory in runs.items():
        try:
            files = table.files(CaseDir(directory.absolute()))
            if files is None:
                lacks.append(f"{directory}: {table.lack.format(directory)}")
                continue
            found += [piece for file in files for piece in scan.pieces(run, file, _on_disk(table))]
        except (OSError, pa.ArrowException) as error:
            lacks.append(f"{directory}: cannot be read ({str(error).splitlines()[0]})")
    return found, lacks


def _on_disk(table: _Table) -> pa.Schema:
    return scan.LINES if isinstance(table.columns, str) else table.columns


def _frame(spark: SparkSession, table: _Table, found: Sequence[scan.Piece]) -> DataFrame:
    held = _on_disk(table)
    schema = pa.schema([("run", pa.string()), *((field.name, field.type) for field in held)])
    given = spark.read.format(_FORMAT).schema(from_arrow_schema(schema))
    frame = given.option("tasks", scan.option(found, held)).load()
    if not isinstance(table.columns, str):
        return frame
    # A torn line is null from end to end.
    lines = frame.selectExpr("run", f"from_json(value, '{table.columns}') AS line")
    return lines.where("line.t_ns IS NOT NULL").select("run", "line.*")


@dataclass(frozen=True)
class Answer:
    """Result of an SQL statement. `columns`: names, in the order of the values of each row. `more`: True if the limit
    cut rows off."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Value]]
    more: bool


def ask(spark: SparkSession, views: Views, statement: str | None, limit: int | None) -> Answer:
    """Run a statement and return at most `limit` rows (None: all). Without a statement, return a row for each view:
    its name, its number of rows, its columns.

    Raises `BadInput` with the statement's error on one line, or if the answer has a value that Python cannot hold;
    `AuditFailed` if Spark or a file failed.
    """
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it prints what is raised
    try:
        if statement is None:
            return Answer(("view", "rows", "columns"), [list(views.line(name)) for name in views], more=False)
        frame = spark.sql(statement)
        found = (frame if limit is None else frame.limit(limit + 1)).collect()
    except PySparkException as error:
        raise _wrong(error, views) or audit_failure(error, "Spark gave no answer") from error
    except (ValueError, OverflowError) as error:  # Spark's times reach further than Python's
        raise BadInput(
            f"the answer has a value that Python cannot hold ({error}): ask for it as a string (cast)"
        ) from error
    rows = [[_plain(value) for value in row] for row in found[:limit]]
    return Answer(tuple(frame.columns), rows, len(found) > len(rows))


def _wrong(error: PySparkException, views: Views) -> BadInput | None:
    """Return the error as `BadInput` if the user's statement or setting caused it; else None."""
    if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        name = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
        return BadInput(views.why_not(name))
    ours = isinstance(error, AnalysisException | IllegalArgumentException)
    if not ours and not (error.getSqlState() or "").startswith("22"):
        return None
    first = next(line for line in str(error).splitlines() if line.strip())
    return BadInput(re.sub(r"^\[[\w.]+\] |[;.]? SQLSTATE: \w+|;$", "", first))


def _plain(value: Value) -> Value:
    if isinstance(value, Row):
        return {name: _plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return {name: _plain(inner) for name, inner in value.items()} if isinstance(value, dict) else value
