"""`ackproof sql`: SQL queries on the tables of runs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof.base.errors import BadInput
from ackproof.cli.options import PLACES, examples, read_spark_settings, spark_options

if TYPE_CHECKING:
    from ackproof.console import Console
    from ackproof_lab.sql.views import Answer


@click.command(
    epilog=examples(
        "ackproof sql runs/latest --views",
        "ackproof sql runs/latest 'select class, count(*) from findings group by all'",
    )
)
@click.argument("directory", metavar="RUN", type=PLACES)
@click.argument("statement", required=False)
@click.option("--views", "listing", is_flag=True, help="Which views there are, with their rows and columns.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How rows are printed.",
)
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="So many rows; 0: all.")
@spark_options
def sql(
    directory: Path,
    statement: str | None,
    listing: bool,
    form: str,
    limit: int,
    master: str | None,
    remote: str | None,
    conf: tuple[str, ...],
) -> int:
    """Run an SQL statement on the tables of a run: its ledgers, findings, timeline and other files.

    RUN is a case, any directory that holds ledgers, or a batch such as runs/latest, whose cases differ in the
    column `run`. Without a statement: list the views.
    """
    from ackproof.console import Console

    settings = read_spark_settings(master, remote, conf)
    runs = _runs(directory)
    console = Console(machine=form != "table")
    with console.show_progress("asking Spark") as tell:
        from ackproof.spark.session import SparkTarget, sql_session
        from ackproof_lab.sql import views as room

        with sql_session(SparkTarget(master, remote, settings), tell) as spark:
            views = room.register(spark, runs)
            answer = room.ask(spark, views, None if listing else statement, limit or None)
    if statement is not None:
        for text in views.partly(statement):
            console.warning(text)
    _show(console, answer, form)
    if answer.more:
        console.line(f"only the first {limit} rows; --limit says how many, --limit 0 gives all")
    return 0


def _runs(directory: Path) -> Mapping[str, Path]:
    """Return the run directories of a batch, or a single run directory, by name. Raises `BadInput` if there
    is none.
    """
    from ackproof.rundir.batch import BatchFile
    from ackproof.rundir.layout import BatchDir, CaseDir

    batch = BatchDir(directory).batch_json
    if batch.exists():
        return {case.run: directory / case.run for case in BatchFile.load(batch).cases}
    if not (CaseDir(directory).case_json.exists() or CaseDir(directory).ledger.is_dir()):
        raise BadInput(f"{directory}: neither a run nor a batch; give one such as runs/latest")
    return {directory.resolve().name: directory}


def _show(console: Console, answer: Answer, form: str) -> None:
    if form == "json":
        if len(set(answer.columns)) < len(answer.columns):
            raise BadInput("two columns have one name: give one of them another (select … AS …)")
        console.document([dict(zip(answer.columns, map(_in_json, row), strict=True)) for row in answer.rows])
    elif form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([_cell(value, "") for value in row] for row in answer.rows)
        console.raw(text.getvalue())
    else:
        numbers = [
            number
            for number in range(len(answer.columns))
            if all(isinstance(row[number], int | float | None) for row in answer.rows)
        ]
        console.table(
            answer.columns, [[_cell(value, "NULL") for value in row] for row in answer.rows], numbers
        )


def _cell(value: object, none: str) -> str:
    if value is None:
        return none
    if isinstance(value, bool | list | dict):
        return json.dumps(_in_json(value), ensure_ascii=False)
    return str(value)


def _in_json(value: object) -> object:
    """Return the value in a form that JSON has: NaN and infinities become null, times become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_in_json(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _in_json(one) for name, one in value.items()}
    return value if isinstance(value, str | int | None) else str(value)
