"""Files of runs as a Python data source for Spark. Its tasks read the files in place, as the audit's tasks do.

So one implementation serves folders and object stores, classic sessions and Connect, and the driver reads footers only.
Spark does not tell the source which columns a query needs, nor conditions that it could use: a table is decoded
completely.
"""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from ackproof.rundir import storage
from ackproof.rundir.arrow import limit_arrow_threads, repeat_text
from ackproof.spark.job import group_by_rows
from ackproof.spark.workers import wrap_task

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

LINES: pa.Schema = pa.schema([("value", pa.string())])
"""Schema of a table that is read from text files: one row per line, with its text in the column `value`."""
_LINES_AT_ONCE = 1 << 12
_TASK_ROWS = 400_000

Source: TypeAlias = tuple[bytes, ...]
"""The tasks of a table. Each is a pickled pair of its schema and its pieces."""


class Piece(NamedTuple):
    """A row group of a Parquet file, or a whole text file. `run`: name of the run. `group`: index of the row
    group; 0 for text. `rows`: number of its rows; 0 for text, whose lines are not counted.
    """

    run: str
    path: str
    group: int
    rows: int


def pieces(run: str, path: Path, schema: pa.Schema) -> list[Piece]:
    """Return the pieces of one file of the run named `run`: its row groups. `schema`: columns of its table; with
    `LINES` the file is text, and one piece. Raises OSError or ArrowException for an unreadable Parquet file."""
    if schema == LINES:
        return [Piece(run, str(path), 0, 0)]
    with storage.open_parquet(path) as file:
        footer = file.metadata
    numbers = range(footer.num_row_groups)
    return [Piece(run, str(path), number, footer.row_group(number).num_rows) for number in numbers]


def option(found: Sequence[Piece], schema: pa.Schema) -> str:
    """Pack the tasks of a table into the text that its data source gets as an option: pickled, in base64. `found`:
    the table's pieces; consecutive ones are one task, up to 400,000 rows. `schema`: columns of the table."""
    tasks = tuple(pickle.dumps((schema, of_task)) for of_task in group_by_rows(found, _TASK_ROWS))
    return b64encode(pickle.dumps(tasks)).decode()


def source(name: str) -> type[DataSource]:
    """Return the class of the Spark data source `name`. It is pickled by value, so Spark's planner needs none
    of our modules.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    read_rows = wrap_task(rows)

    class Reader(DataSourceReader):
        def __init__(self, tasks: Source) -> None:
            self.tasks = tasks

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(task) for task in self.tasks]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            # Spark asks for one partition, without a value, of a table that has none.
            return read_rows([partition.value] if partition.value else [])

    class Files(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def reader(self, schema: StructType) -> DataSourceReader:
            import pickle
            from base64 import b64decode

            return Reader(pickle.loads(b64decode(self.options["tasks"])))

    return Files


def rows(tasks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield all rows of these tasks, which are pickled as `option` writes them. The first column is the run's name.
    Raises OSError or ArrowException for an unreadable file."""
    limit_arrow_threads()
    for task in tasks:
        schema, of_task = pickle.loads(task)
        for (run, path), groups in groupby(of_task, key=lambda piece: (piece.run, piece.path)):
            batches = (
                _lines(path) if schema == LINES else _row_groups(path, [one.group for one in groups], schema)
            )
            for columns in batches:
                names = ["run", *schema.names]
                yield pa.RecordBatch.from_arrays([repeat_text(run, len(columns[0])), *columns], names=names)


def _row_groups(path: str, groups: list[int], schema: pa.Schema) -> Iterator[list[pa.Array]]:
    """Yield the columns of each batch of these row groups. A column that an older file lacks is null."""
    with storage.open_parquet(path) as file:
        for batch in file.iter_batches(row_groups=groups, columns=schema.names, use_threads=False):
            there = batch.schema.names
            yield [
                batch[field.name].cast(field.type)
                if field.name in there
                else pa.nulls(len(batch), field.type)
                for field in schema
            ]


def _lines(path: str) -> Iterator[list[pa.Array]]:
    with storage.locate(path).open(encoding="utf-8", errors="replace") as file:
        while some := list(islice(file, _LINES_AT_ONCE)):
            yield [pa.array(some, pa.string())]
