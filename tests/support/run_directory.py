"""The builder of run directories: writes files of a run from plain values, and nothing that it is not given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.experiment.case import Case
from ackproof.plan.cases import case_to_json, cases, load
from ackproof.rundir.document import Document
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.groups import COMMITS, DELIVERIES, MEMBERSHIP, OFFSETS_LOG
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import part_path, write_table
from ackproof.rundir.observed import Sample
from ackproof.rundir.parts import mark_end
from ackproof.rundir.payload import UNKNOWN_CONTENT
from ackproof.rundir.replicas import BATCHES
from ackproof.rundir.schema import CONSUMED, FINDINGS, METRICS, PRODUCED, SERIES, TRANSACTIONS
from ackproof.rundir.timeline import Event

_LEDGERS = {
    "produced": PRODUCED, "consumed": CONSUMED, "transactions": TRANSACTIONS, "deliveries": DELIVERIES,
    "commits_ledger": COMMITS, "membership": MEMBERSHIP,
}  # fmt: skip
_TABLES = {
    "findings": FINDINGS, "series": SERIES, "metrics": METRICS, "replica_batches": BATCHES,
    "offsets_log": OFFSETS_LOG,
}  # fmt: skip
_BY_PARTITION = (CONSUMED, DELIVERIES, COMMITS)
_USUAL = {"intact": True, "sound": True, "content": UNKNOWN_CONTENT, "txn": -1}
"""Columns whose usual value is not 0, '' or False."""
_EMPTY: dict[pa.DataType, Any] = {pa.string(): "", pa.bool_(): False}


@cache
def read_case(text: str, *, seed: int | None = None, backend: str | None = None) -> Case:
    """Return the first case of an experiment file with this text. `seed`, `backend`: in place of the file's."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "experiment.yaml")
        file.write_text(text, encoding="utf-8")
        return cases(load(file, backend=backend), seed=seed)[0]


def case_file(case: Case | None = None, /, **fields: Any) -> CaseFile:
    """Return a case file with `fields`; all others are those of `case`, or of a case about which nothing is known."""
    values: dict[str, Any] = {
        "run_id": "0" * 16, "case": "c#1", "experiment": "t", "settings": {}, "repeat": 1, "seed": 0,
        "backend": "process", "replay": "", "resolved": {},
    }  # fmt: skip
    if case is not None:
        values |= {
            "case": case.id, "experiment": case.experiment.name, "settings": case.settings, "repeat": case.repeat,
            "seed": case.seed, "resolved": case_to_json(case),
        }  # fmt: skip
    return CaseFile(**values | fields)


def write_run(
    folder: Path,
    *,
    parts: int = 1,
    closed: bool = False,
    options: Mapping[str, Any] | None = None,
    **files: Any,
) -> CaseDir:
    """Write `files` into a run directory, by the names of their paths in `CaseDir`; None: no such file.

    A JSON file is a document or plain data, a file of lines an iterable of these. A table is a `pa.Table`, or rows as
    mappings; columns that a row lacks get their usual value. A ledger maps each client to such a table, which is dealt
    to `parts` parts; `closed`: the clients leave an `_END`. `options`: of Parquet's writer; None: as ackproof writes.
    """
    run = CaseDir(folder)
    for name, content in files.items():
        if content is None:
            continue
        path: Path = getattr(run, name)
        if name in _LEDGERS:
            for client, rows in content.items():
                _write_client(
                    path / client_folder(client), to_table(rows, _LEDGERS[name]), parts, closed, options
                )
        elif name in _TABLES:
            file = path / "part-0.parquet" if name == "findings" else path
            write_rows(file, to_table(content, _TABLES[name]), options)
        elif isinstance(content, Document):
            content.save(path)
        else:
            write_lines(path, content if path.suffix == ".jsonl" else [content])
    return run


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write documents, samples or plain data as JSON, one a line, as ackproof writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{_line(one)}\n" for one in values), encoding="utf-8")


def write_rows(path: Path, table: pa.Table, options: Mapping[str, Any] | None) -> None:
    """Write a table with `options` of Parquet's writer; None: as ackproof writes one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if options is None:
        write_table(path, table, by_place=table.schema in _BY_PARTITION)
    else:
        pq.write_table(table, path, **options)


def to_table(rows: pa.Table | Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table; columns that a row lacks get their usual value. Raises AssertionError for a column that
    the schema lacks."""
    if isinstance(rows, pa.Table):
        return rows
    usual = {field.name: _USUAL.get(field.name, _EMPTY.get(field.type, 0)) for field in schema}
    rows = list(rows)
    assert all(row.keys() <= usual.keys() for row in rows), "a column that the schema lacks"
    return pa.Table.from_pylist([{**usual, **row} for row in rows], schema=schema)


def _write_client(
    folder: Path, table: pa.Table, parts: int, closed: bool, options: Mapping[str, Any] | None
) -> None:
    for number in range(parts):
        piece = table if parts == 1 else table.take(pa.array(range(number, len(table), parts), pa.int64()))
        write_rows(part_path(folder, number), piece, options)
    if closed:
        mark_end(folder)


def _line(value: Any) -> str:
    if isinstance(value, Sample):
        return value.line()
    if isinstance(value, Document):
        return value.model_dump_json(exclude_defaults=isinstance(value, Event))
    return json.dumps(value)
