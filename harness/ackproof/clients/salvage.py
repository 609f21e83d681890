"""Turn journals into parts of the produced ledger: while a run goes on, at its end, and after a kill."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ackproof.clients.journal import (
    DONE,
    OFFSET,
    RESULT,
    SENT,
    Matrix,
    TornJournal,
    chunk_files,
    read_chunk,
)
from ackproof.clients.settings import SETTINGS, TRANSACTIONS_LOG, ProducerSettings, installed_library
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.ledger import (
    ProducedRows,
    TxnRow,
    part_path,
    remove_unfinished,
    write_produced,
    write_transactions,
)
from ackproof.rundir.outcome import Outcome, TxnOutcome


@dataclass(frozen=True)
class Salvaged:
    """What `salvage` did; true if it wrote anything. `refused`: what could not be read, each with the reason."""

    parts: tuple[Path, ...]
    refused: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.parts)


def produced_rows(
    whose: ProducerSettings, first_seq: int, matrix: Matrix, starts: list[int] | None = None
) -> ProducedRows:
    """The ledger rows of a chunk: those that were sent; without a report indeterminate, done_ns -1, offset -1.

    `starts`: the first seq of each transaction, of a transactional producer.
    """
    sent = matrix[:, SENT]
    used = np.flatnonzero(sent)
    rows = matrix[used]
    done = rows[:, DONE] != 0
    result = rows[:, RESULT]
    outcome = np.where(done, (result >> 48) & 0xFF, Outcome.INDETERMINATE).astype(np.int8)
    error = np.where(done, (result >> 32) & 0xFFFF, 0).astype(np.uint16).view(np.int16)
    return ProducedRows(
        producer=whose.producer,
        places=whose.places,
        place=result & 0xFFFFFFFF,
        seq=first_seq + used,
        outcome=outcome,
        error=error,
        offset=np.where(done & (outcome == Outcome.ACKED), rows[:, OFFSET], -1),
        sent_ns=rows[:, SENT] - whose.origin_ns,
        done_ns=np.where(done, rows[:, DONE] - whose.origin_ns, -1),
        txn=None if starts is None else numbers_of(starts, first_seq + used),
        library=installed_library(),
    )


def salvage(run: CaseDir, client: str | None = None) -> Salvaged:
    """Turn what killed clients left (all, or one) into Parquet. The client must not run any more.

    Can be called again, after it was itself killed too: a part that is there is never written twice, since its
    number is that of its chunk. What cannot be read stays where it is.
    """
    written: list[Path] = []
    refused: list[str] = []
    folders = [run.journal / client] if client is not None else sorted(run.journal.glob("*/"))
    for folder in folders:
        if folder.is_dir():
            _salvage_journal(run, folder, written, refused)
    for ledger in (run.produced, run.consumed):
        for folder in ledger.glob("client=*" if client is None else client_folder(client)):
            remove_unfinished(folder)
    if client is None and run.journal.is_dir() and not any(run.journal.iterdir()):
        run.journal.rmdir()
    return Salvaged(tuple(written), tuple(refused))


def _salvage_journal(run: CaseDir, folder: Path, written: list[Path], refused: list[str]) -> None:
    settings = run.clients / folder.name / SETTINGS
    chunks = chunk_files(folder)
    if chunks:
        try:
            whose = ProducerSettings.read(settings)
        except (OSError, ValueError, KeyError, TypeError) as error:
            refused.append(f"{settings}: {error}")
            return
        ledger = run.produced / client_folder(whose.client)
        starts = write_transaction_table(run, whose)
        for index, path in chunks:
            try:
                part = _salvage_chunk(whose, ledger, index, path, starts)
            except TornJournal as error:
                refused.append(str(error))
                continue
            path.unlink(missing_ok=True)
            if part is not None:
                written.append(part)
    if not chunk_files(folder):
        for leftover in folder.iterdir():
            leftover.unlink(missing_ok=True)
        folder.rmdir()


def write_transaction_table(run: CaseDir, whose: ProducerSettings) -> list[int] | None:
    """Turn the log of a transactional producer into its table; the first seqs of its transactions."""
    rows = read_log(run.clients / whose.client / TRANSACTIONS_LOG, whose.producer)
    if not rows:
        return None
    write_transactions(run.transactions / client_folder(whose.client), rows, installed_library())
    return [row.first_seq for row in rows]


def _salvage_chunk(
    whose: ProducerSettings, ledger: Path, index: int, path: Path, starts: list[int] | None
) -> Path | None:
    if part_path(ledger, index).exists():
        return None  # killed between the part and the removal of its chunk
    first_seq, matrix = read_chunk(path, index)
    rows = produced_rows(whose, first_seq, matrix, starts)
    if len(rows.seq) == 0:
        return None
    if int(rows.place.max()) >= len(whose.places):
        raise TornJournal(f"{path}: a row names place {int(rows.place.max())} of {len(whose.places)}")
    return write_produced(ledger, index, rows)


def read_log(path: Path, producer: int) -> list[TxnRow]:
    """The transactions in order of their numbers; empty without such a file. A torn last line is passed over."""
    if not path.exists():
        return []
    text = path.read_text(encoding="ascii")
    rows: dict[int, TxnRow] = {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        word, number, *rest = line.split()
        txn = int(number)
        if word == "begin":
            # never asked to be committed so far: whatever happens to its producer, it cannot be
            rows[txn] = TxnRow(producer, txn, TxnOutcome.ABORTED, int(rest[0]), int(rest[1]), -1, -1)
        elif word == "commit":
            rows[txn] = rows[txn]._replace(outcome=TxnOutcome.UNKNOWN, commit_ns=int(rest[0]))
        else:
            rows[txn] = rows[txn]._replace(outcome=TxnOutcome(int(rest[0])), ended_ns=int(rest[1]))
    return [rows[txn] for txn in sorted(rows)]


def numbers_of(starts: list[int], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The transaction of each seq, where transaction k begins with seq `starts[k]`; -1 where there is none."""
    return np.searchsorted(np.array(starts, np.int64), seqs, side="right").astype(np.int64) - 1
