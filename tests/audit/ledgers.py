"""Functions that write small ledgers, case.json and timestamps into a run directory, and read its findings."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.removals import TimestampRule, write_by_partition
from ackproof.rundir.schema import CONSUMED, PRODUCED, TRANSACTIONS

from ..support.run_directory import write_run


def produced_table(rows):
    return pa.table(
        {
            "producer": [row.producer for row in rows],
            "seq": [row.seq for row in rows],
            "topic": [row.topic for row in rows],
            "partition": [row.partition for row in rows],
            "outcome": [row.outcome for row in rows],
            "error": [0 for _ in rows],
            "offset": [row.offset for row in rows],
            "sent_ns": [row.sent_ns for row in rows],
            "done_ns": [row.done_ns for row in rows],
            "txn": [row.txn for row in rows],
        },
        schema=PRODUCED,
    )


def consumed_table(rows):
    return pa.table({name: [getattr(row, name) for row in rows] for name in CONSUMED.names}, schema=CONSUMED)


def transactions_table(rows):
    columns = {
        name: [getattr(row, name, -1) for row in rows]
        for name in TRANSACTIONS.names
        if name not in ("producer", "txn", "outcome")
    }
    own = {name: [getattr(row, name) for row in rows] for name in ("producer", "txn", "outcome")}
    return pa.table({**own, **columns}, schema=TRANSACTIONS)


def write_ledger(
    directory: Path, produced, reads, transactions=(), *, shuffle: random.Random | None = None, **options
) -> Path:
    """Write the ledgers of a run and return `directory`. `options`: of `pyarrow.parquet.write_table`.

    Without `shuffle` each client gets one file, with its rows in the given order. With it, rows, the number of files
    and the size of row groups are random.
    """
    for kind, rows, client_of, table_of in (
        ("produced", produced, lambda row: f"p{row.producer}", produced_table),
        ("consumed", reads, lambda row: f"r{row.reader}", consumed_table),
        ("transactions", transactions, lambda row: f"p{row.producer}", transactions_table),
    ):
        if kind == "transactions" and not rows:
            continue
        folder = directory / "ledger" / kind
        folder.mkdir(parents=True, exist_ok=True)
        clients = {}
        for row in rows:
            clients.setdefault(client_of(row), []).append(row)
        for client, of_client in clients.items():
            write_client(folder / f"client={client}", of_client, table_of, shuffle, **options)
    return directory


def write_client(folder: Path, rows, table_of, shuffle: random.Random | None, **options) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [rows]
    if shuffle is not None:
        rows = list(rows)
        how = shuffle.random()
        if how < 0.4:
            shuffle.shuffle(rows)
        elif how < 0.6:
            rows.sort(key=lambda row: (getattr(row, "topic", ""), getattr(row, "partition", 0)))
        cuts = sorted(shuffle.choices(range(len(rows) + 1), k=shuffle.randrange(3)))
        pieces = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
        shuffle.shuffle(pieces)
        options = {
            "row_group_size": shuffle.choice([1, 2, 3, 1000]),
            "compression": shuffle.choice(["zstd", "snappy", "none"]),
            "use_dictionary": shuffle.choice([True, False]),
            "write_statistics": shuffle.choice([True, True, False]),
            **options,
        }
    for number, piece in enumerate(pieces):
        pq.write_table(table_of(piece), folder / f"part-{number}.parquet", **options)


def write_case(directory: Path, clients, ended=()) -> None:
    """Write a case.json with these clients, and an empty END into the folder of each client in `ended`, such as
    "produced/p0"."""
    write_run(directory, case_json={"clients": clients})
    for name in ended:
        kind, client = name.split("/")
        folder = directory / "ledger" / kind / f"client={client}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "END").touch()


def write_stamps(directory: Path, stamps) -> None:
    rules = [TimestampRule(*place, *rule) for place, rule in stamps.items()]
    write_by_partition(CaseDir(directory).timestamps_json, rules)


def findings_of(directory: Path):
    return pq.read_table(directory / "findings", partitioning=None).to_pylist()
