"""Outcomes of transactions from `ledger/transactions`: footers are checked first, tasks of the audit read the rows.

The audit uses the columns producer, txn, outcome and commit_ns, the time of the commit request. A transaction that is
not in the table has an unknown outcome, and the audit is incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ackproof.ledgers.clients import read_clients
from ackproof.ledgers.directory import Ledger, Part, Rejected, describe_unreadable
from ackproof.ledgers.load import UnreadablePart
from ackproof.ledgers.lookup import Identities
from ackproof.ledgers.rows import (
    Array,
    Bools,
    Ints,
    Rows,
    Schema,
    concat_rows,
    constant_column,
    find_repeated,
    is_constant,
)
from ackproof.rundir import storage
from ackproof.rundir.arrow import to_numpy
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.outcome import ReadPhase, TxnOutcome
from ackproof.rundir.parts import has_end
from ackproof.rundir.schema import TRANSACTIONS

_NEEDED = ("producer", "txn", "outcome")
_TIME = "commit_ns"
_COLUMNS: Schema = {"producer": "i4", "txn": "i8", "outcome": "i1", "commit_ns": "i8"}


@dataclass(frozen=True)
class TransactionFiles:
    """The transaction tables of a directory. `paths`: readable parts of `ledger/transactions`. `timeless`: True if some
    part has no column `commit_ns` (an older version wrote it). `committed_read`: True if there was a final read at
    read_committed, perhaps without any record."""

    paths: tuple[str, ...] = ()
    timeless: bool = False
    committed_read: bool = False


NO_TRANSACTIONS = TransactionFiles()


@dataclass(frozen=True)
class TransactionFates:
    """The transaction of each produced row, as arrays in the order of the rows.

    `txn`: number of the transaction; negative: the row is in no transaction and counts as committed. `outcome`: a
    `TxnOutcome`. `commit_ns`: time at which the commit was requested, in ns since the run's start; -1: never, or not
    recorded.
    """

    txn: Ints
    outcome: Array
    commit_ns: Ints

    @property
    def committed(self) -> Bools:
        result: Bools = self.outcome == TxnOutcome.COMMITTED
        return result

    @property
    def aborted(self) -> Bools:
        result: Bools = self.outcome == TxnOutcome.ABORTED
        return result


def examine_transactions(ledger: Ledger, set_aside: dict[str, str]) -> TransactionFiles:
    """Check the columns of a directory's transaction tables, from the footers, and return the tables that can be
    read; `NO_TRANSACTIONS` if the run wrote none.

    A part whose footer cannot be read is left out, and a reason is added to `ledger.reasons`; nothing else is changed.
    `set_aside`: path → reason, of unreadable parts because of which the audit is now repeated: they are left out.
    Raises `Rejected` if a column other than `commit_ns` is missing, or one is there twice or of another type.
    """
    case = CaseDir(ledger.directory)
    groups = (group for part in ledger.parts if part.kind == "produced" for group in part.groups)
    if not case.transactions.is_dir() and not any(group.transactional for group in groups):
        return NO_TRANSACTIONS
    paths: list[str] = []
    timeless = False
    for path in sorted(case.transactions.glob("client=*/part-*.parquet")):
        if str(path) in set_aside:
            continue
        where = str(path.relative_to(ledger.directory))
        try:
            with storage.open_parquet(path) as file:
                schema = file.schema_arrow
        except (OSError, pa.ArrowException) as error:
            ledger.reasons.append(f"{where}: {describe_unreadable(error)}")
            continue
        for name in _NEEDED:
            _check(where, schema, name)
        if _TIME in schema.names:
            _check(where, schema, _TIME)
        else:
            timeless = True
        paths.append(str(path))
    return TransactionFiles(tuple(paths), timeless, _was_read_committed(ledger, case))


def _check(where: str, schema: pa.Schema, name: str) -> None:
    if schema.names.count(name) != 1:
        raise Rejected(f"{where}: column {name} is there {schema.names.count(name)} times")
    wanted = TRANSACTIONS.field(name).type
    if schema.field(name).type != wanted:
        raise Rejected(f"{where}: column {name} is {schema.field(name).type}, not {wanted}")


def _was_read_committed(ledger: Ledger, case: CaseDir) -> bool:
    """Return True if there was a final read at read_committed: the ledger has rows of it, or `case.json` lists its
    reader and that reader left an `_END`, perhaps without any row."""
    listed, _ = read_clients(case.case_json) if case.case_json.exists() else ([], [])
    closed = (
        has_end(case.consumed / client_folder(client.id)) for client in listed if client.final_committed
    )
    return any(closed) or any(_holds_committed(part) for part in ledger.parts if part.kind == "consumed")


def _holds_committed(part: Part) -> bool:
    wanted = int(ReadPhase.FINAL_COMMITTED)
    if any(group.phase == wanted and group.rows for group in part.groups):
        return True
    unsure = [group.number for group in part.groups if group.phase is None and group.rows]
    if not unsure:
        return False
    try:
        with storage.open_parquet(part.path) as file:
            phases = file.read_row_groups(unsure, columns=["phase"], use_threads=False).column(0)
    except (OSError, pa.ArrowException):
        return False  # the pass over the data meets the same error and names the file
    return wanted in phases.unique().to_pylist()


class TransactionTable:
    """The outcomes of all transactions of one directory, read from their Parquet files on first use."""

    def __init__(self, files: TransactionFiles) -> None:
        self.files = files

    def fates(self, produced: Rows) -> tuple[TransactionFates | None, int]:
        """Return the fates of the rows' transactions, and the number of rows whose transaction is missing in the table.

        The outcome of a missing transaction is UNKNOWN. The fates are None if no row belongs to a transaction. Raises
        `Rejected` if a transaction is listed twice, or for a null or an unknown outcome; `UnreadablePart` if a part
        cannot be read.
        """
        txn = produced.ints("txn")
        if is_constant(txn) and txn[0] < 0:
            return None, 0  # one value for all rows: no need to look at each
        inside = txn >= 0
        if not inside.any():
            return None, 0
        at = self._identities.find(produced["producer"], txn)
        at[~inside] = -1
        known = at >= 0
        outcome = np.where(inside, TxnOutcome.UNKNOWN, TxnOutcome.COMMITTED).astype(np.int8)
        outcome[known] = self._rows["outcome"][at[known]]
        commit_ns = np.full(len(txn), -1, dtype=np.int64)
        commit_ns[known] = self._rows.ints(_TIME)[at[known]]
        return TransactionFates(txn, outcome, commit_ns), int(np.count_nonzero(inside & ~known))

    @cached_property
    def _rows(self) -> Rows:
        return concat_rows([_load(path) for path in self.files.paths], _COLUMNS).sorted_by("producer", "txn")

    @cached_property
    def _identities(self) -> Identities:
        producer, txn = self._rows["producer"], self._rows.ints("txn")
        if (twice := find_repeated(producer, txn)) is not None:
            who = f"transaction {int(txn[twice])} of producer {int(producer[twice])}"
            raise Rejected(f"ledger/transactions: {who} is there twice")
        return Identities(producer, txn)


def _load(path: str) -> Rows:
    try:
        with storage.open_parquet(path) as file:
            names = [name for name in _COLUMNS if name in file.schema_arrow.names]
            table = file.read(columns=names, use_threads=False).combine_chunks()
    except (OSError, pa.ArrowException) as error:
        raise UnreadablePart(path, describe_unreadable(error)) from error
    for name in names:
        if table.column(name).null_count:
            raise Rejected(f"{path}: column {name} has a null")
    columns: dict[str, Array] = {
        name: to_numpy(pa.concat_arrays(table.column(name).chunks))
        if table.num_rows
        else np.empty(0, _COLUMNS[name])
        for name in names
    }
    columns.setdefault(_TIME, constant_column(-1, "i8", table.num_rows))
    outcome = columns["outcome"]
    wrong = (outcome < 0) | (outcome > max(TxnOutcome))
    if wrong.any():
        raise Rejected(f"{path}: column outcome holds {int(outcome[wrong][0])}, which is unknown")
    return Rows(columns, table.num_rows)
