"""The memory-mapped journal of a producer, and how its rows become parts of the produced ledger.

`journal/<client>/chunk-<index>.rows`: a header of 64 bytes (magic `AKPJRNL1`, first seq, number of rows, as two 64-bit
words), then a row of four 64-bit words for each seq, in the machine's byte order::

    sent     CLOCK_MONOTONIC ns just before the produce call; 0: not sent
    done     CLOCK_MONOTONIC ns of the delivery report; 0: none came. Written last: it makes the row whole
    offset   offset in the acknowledgement, -1 unknown
    result   place (32 bits) | error code (16 bits, signed) | outcome (8 bits)

The pages belong to the kernel: they outlive the process, at whatever instruction it is killed (not the machine). A
chunk gets its name once its header is written. All its bytes are written before it is mapped, so that a full disk is an
OSError there and no SIGBUS later. A chunk is removed once its part of the ledger exists.

Parts are written by a thread of the producer (`Converter`) and, after a kill, by the harness (`salvage`). Arrow is
loaded only where a part is written.
"""

from __future__ import annotations

import mmap
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ackproof.base.errors import AckproofError
from ackproof.clients.contract import (
    CHUNK_ROWS,
    SETTINGS,
    TRANSACTIONS_LOG,
    ProducerSettings,
    ReaderSettings,
)
from ackproof.clients.parts import FreeMemory
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.outcome import Outcome, TxnOutcome

if TYPE_CHECKING:
    from ackproof.rundir.ledger import ProducedRows, TxnRow

WORDS: Final = 4
SENT, DONE, OFFSET, RESULT = range(WORDS)

_MAGIC: Final = b"AKPJRNL1"
_HEADER: Final = struct.Struct("=8sqq40x")
_NAME: Final = "chunk-{:06d}.rows"
_PATTERN: Final = "chunk-*.rows"

_LOOK_EVERY_S: Final = 0.25
_WARM_UP_AFTER_S: Final = 0.5
_LATER: Final = 16
"""Number of chunks (64 MiB) that a producer at full speed leaves unconverted until it ends, so that their conversion
takes no processor time from it. Most loads end before these chunks are full."""

Words: Final = np.int64
Matrix = npt.NDArray[np.int64]


class TornJournal(AckproofError):
    """Raised if a journal file cannot be read as a chunk. The text names the file and the reason."""


def pack_result(place: int, error: int, outcome: int) -> int:
    """Return a row's result as one 64-bit word. Bits 0 to 31: `place`, the index of the partition. Bits 32 to 47: error
    code, signed. From bit 48 on: outcome."""
    return place | (error & 0xFFFF) << 32 | outcome << 48


def chunk_path(folder: Path, index: int) -> Path:
    """Return the path of the journal file with chunk number `index`, from 0."""
    return folder / _NAME.format(index)


def chunk_files(folder: Path) -> list[tuple[int, Path]]:
    """Return index and path of each chunk file in a journal folder, sorted by index."""
    files = []
    for path in folder.glob(_PATTERN):
        number = path.name[len("chunk-") : -len(".rows")]
        if number.isdigit():
            files.append((int(number), path))
    return sorted(files)


# -- writing ---------------------------------------------------------------------------------------------------------


class Chunk:
    """One memory-mapped file of a journal. `words`: its 64-bit words, four for each row, row after row."""

    def __init__(self, folder: Path, index: int, rows: int) -> None:
        self.index = index
        self.first_seq = index * rows
        self.path = chunk_path(folder, index)
        temporary = folder / f".{self.path.name}.tmp"
        size = _HEADER.size + rows * WORDS * 8
        with temporary.open("w+b") as file:
            # write the bytes instead of only allocating them: pages in the cache are mapped three times as fast
            file.write(bytes(size))
            file.flush()
            self._map = mmap.mmap(file.fileno(), size)
        self._map[: _HEADER.size] = _HEADER.pack(_MAGIC, self.first_seq, rows)
        self.words = memoryview(self._map)[_HEADER.size :].cast("q")
        self.matrix: Matrix = np.frombuffer(self.words, dtype=np.int64).reshape(rows, WORDS)
        temporary.replace(self.path)

    def resolved(self) -> bool:
        """Return True if every row of the chunk is used, and each row's attempt has an outcome."""
        return bool(self.matrix[:, DONE].all())


class Journal:
    """Attempts of a running producer, in memory-mapped files (chunks) that survive its death. A full chunk becomes a
    part of the ledger.

    `rows`: rows of a chunk, a power of two, else ValueError. `chunks`: index → chunk, without chunks that are a part
    already. `current`: the chunk that takes the next rows.
    """

    current: Chunk

    def __init__(self, folder: Path, rows: int = CHUNK_ROWS) -> None:
        if rows & (rows - 1):
            raise ValueError(f"the rows of a chunk must be a power of two, not {rows}")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.rows = rows
        self.chunks: dict[int, Chunk] = {}
        self._next = 0
        self.pinned: set[int] = set()
        """Indices of the chunks with rows whose outcome may still change."""

    def extend(self) -> None:
        """Add a chunk, which takes the next rows. Raises OSError if the disk is full."""
        self.chunks[self._next] = self.current = Chunk(self.folder, self._next, self.rows)
        self._next += 1

    def resolved(self) -> list[Chunk]:
        """Return the chunks before the current one in which every attempt has its final outcome, by index."""
        before = list(self.chunks.values())[:-1]
        return [chunk for chunk in before if chunk.resolved() and chunk.index not in self.pinned]

    def retire(self, chunk: Chunk) -> None:
        """Remove a chunk and its file, after its part of the ledger was written."""
        del self.chunks[chunk.index]
        chunk.path.unlink(missing_ok=True)


# -- chunks to parts -------------------------------------------------------------------------------------------------


class Converter:
    """Background thread of a producer that converts chunks without open attempts into parts of the ledger.

    `ledger`: the producer's folder in the ledger. `starts`: first seq of each transaction, to which the producer
    appends; None without transactions. `error`: the failure that ended the thread, None before.
    """

    def __init__(
        self, settings: ProducerSettings, journal: Journal, ledger: Path, starts: list[int] | None = None
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._ledger = ledger
        self._starts = starts
        # a producer with a rate has time between its records: it converts at once
        self._later = _LATER if settings.rate is None else 0
        self._memory = FreeMemory()
        self._stop = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="converter", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """End the thread, convert the remaining chunks and remove the journal. Call it after the last delivery report.

        Raises the error with which the thread ended, if any; OSError if a file cannot be written.
        """
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        for chunk in list(self._journal.chunks.values()):
            self._convert(chunk)
        self._journal.folder.rmdir()

    def _run(self) -> None:
        try:
            self._stop.wait(_WARM_UP_AFTER_S)
            import ackproof.rundir.ledger  # noqa: F401  - so that the first part and the end need not wait

            while not self._stop.wait(_LOOK_EVERY_S):
                due = self._journal.resolved()
                for chunk in due[: max(0, len(due) - self._later)]:
                    self._convert(chunk)
                    self._memory.give_back()
        except Exception as error:  # noqa: BLE001 - handed to the main thread, which ends the client with it
            self.error = error

    def _convert(self, chunk: Chunk) -> None:
        from ackproof.rundir.ledger import write_produced

        if chunk.matrix[:, SENT].any():
            rows = produced_rows(self._settings, chunk.first_seq, chunk.matrix, self._starts)
            write_produced(self._ledger, chunk.index, rows)
        self._journal.retire(chunk)


def produced_rows(
    settings: ProducerSettings, first_seq: int, matrix: Matrix, starts: list[int] | None = None
) -> ProducedRows:
    """Return the ledger rows of a chunk: those that were sent.

    `first_seq`: seq of the first row of `matrix`, which has the columns SENT, DONE, OFFSET, RESULT. A row without a
    report is indeterminate, with done_ns -1 and offset -1. `starts`: the first seq of each transaction of a
    transactional producer; a seq before the first is in none, -1.
    """
    from ackproof.rundir.ledger import ProducedRows

    used = np.flatnonzero(matrix[:, SENT])
    rows = matrix[used]
    done = rows[:, DONE] != 0
    result = rows[:, RESULT]
    outcome = np.where(done, (result >> 48) & 0xFF, Outcome.INDETERMINATE).astype(np.int8)
    error = np.where(done, (result >> 32) & 0xFFFF, 0).astype(np.uint16).view(np.int16)
    return ProducedRows(
        producer=settings.producer,
        places=settings.places,
        place=result & 0xFFFFFFFF,
        seq=first_seq + used,
        outcome=outcome,
        error=error,
        offset=np.where(done & (outcome == Outcome.ACKED), rows[:, OFFSET], -1),
        sent_ns=rows[:, SENT] - settings.origin_ns,
        done_ns=np.where(done, rows[:, DONE] - settings.origin_ns, -1),
        txn=None
        if starts is None
        else np.searchsorted(np.array(starts, np.int64), first_seq + used, "right") - 1,
        library=settings.client_library,
    )


# -- after a kill ----------------------------------------------------------------------------------------------------


def salvage(run: CaseDir, client: str | None = None) -> tuple[list[Path], list[str]]:
    """Turn the journals that clients left into parts of their ledgers. `client`: only of this one; None: of all. They
    must not run any more.

    Return the parts that were written, and a text for each file that could not be read: it stays where it is. The call
    can be repeated, also after it was itself killed: a part has the number of its chunk, so none is written twice.
    Raises OSError if a part cannot be written.
    """
    from ackproof.rundir.ledger import remove_unfinished

    written: list[Path] = []
    refused: list[str] = []
    folders = [run.journal / client] if client is not None else sorted(run.journal.glob("*/"))
    for folder in folders:
        if folder.is_dir():
            _salvage_reads(run, folder, written, refused)
            _salvage_journal(run, folder, written, refused)
    for ledger in (run.produced, run.consumed):
        for folder in ledger.glob("client=*" if client is None else client_folder(client)):
            remove_unfinished(folder)
    if client is None and run.journal.is_dir() and not any(run.journal.iterdir()):
        run.journal.rmdir()
    return written, refused


def _salvage_journal(run: CaseDir, folder: Path, written: list[Path], refused: list[str]) -> None:
    path = run.clients / folder.name / SETTINGS
    chunks = chunk_files(folder)
    if chunks:
        try:
            settings = ProducerSettings.read(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            refused.append(f"{path}: {error}")
            return
        ledger = run.produced / client_folder(settings.client)
        starts = write_transaction_table(run, settings)
        for index, chunk in chunks:
            try:
                part = _salvage_chunk(settings, ledger, index, chunk, starts)
            except TornJournal as error:
                refused.append(str(error))
                continue
            chunk.unlink(missing_ok=True)
            if part is not None:
                written.append(part)
    if not any(folder.glob("*.rows")):
        for leftover in folder.iterdir():
            leftover.unlink(missing_ok=True)
        folder.rmdir()


def _salvage_reads(run: CaseDir, folder: Path, written: list[Path], refused: list[str]) -> None:
    """Turn the journal of a reader in `folder` into parts of its ledger, if there is one. Adds the parts to `written`,
    and a text for each file that cannot be read to `refused`."""
    from ackproof.clients.reads import read_files, read_rows, write_reads

    if not (chunks := read_files(folder)):
        return
    path = run.clients / folder.name / SETTINGS
    try:
        settings = ReaderSettings.read(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        refused.append(f"{path}: {error}")
        return
    ledger = run.consumed / client_folder(settings.client)
    for index, chunk in chunks:
        try:
            rows, _ = read_rows(chunk, index)
            part = write_reads(settings, ledger, index, rows, index * settings.flush_rows)
        except TornJournal as error:
            refused.append(str(error))
            continue
        chunk.unlink(missing_ok=True)
        written += [part] if part is not None else []


def _salvage_chunk(
    settings: ProducerSettings, ledger: Path, index: int, path: Path, starts: list[int] | None
) -> Path | None:
    from ackproof.rundir.ledger import part_path, write_produced

    if part_path(ledger, index).exists():
        return None  # the producer was killed after it wrote the part and before it removed the chunk
    first_seq, matrix = read_chunk(path, index)
    rows = produced_rows(settings, first_seq, matrix, starts)
    if len(rows.seq) == 0:
        return None
    if int(rows.place.max()) >= len(settings.places):
        raise TornJournal(f"{path}: a row names place {int(rows.place.max())} of {len(settings.places)}")
    return write_produced(ledger, index, rows)


def read_chunk(path: Path, index: int) -> tuple[int, Matrix]:
    """Return the first seq of a chunk's file, and a matrix of the rows that are in it completely (columns SENT, DONE,
    OFFSET, RESULT). Raises `TornJournal` if the file cannot be read as a chunk."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TornJournal(f"{path}: {error.strerror}") from error
    if len(raw) < _HEADER.size:
        raise TornJournal(f"{path}: {len(raw)} bytes are less than a header")
    magic, first_seq, rows = _HEADER.unpack_from(raw)
    if magic != _MAGIC or rows <= 0 or first_seq != index * rows:
        raise TornJournal(f"{path}: not the header of chunk {index}")
    whole = min(rows, (len(raw) - _HEADER.size) // (WORDS * 8))
    flat = np.frombuffer(raw, dtype=np.int64, count=whole * WORDS, offset=_HEADER.size)
    return first_seq, flat.reshape(whole, WORDS)


def write_transaction_table(run: CaseDir, settings: ProducerSettings) -> list[int] | None:
    """Write a producer's `transactions.log` as a table of the ledger.

    Return the first seq of each transaction, in order. None, and no table, if the producer began none.
    """
    from ackproof.rundir.ledger import write_transactions

    rows = read_transactions(run.clients / settings.client / TRANSACTIONS_LOG, settings.producer)
    if not rows:
        return None
    write_transactions(run.transactions / client_folder(settings.client), rows, settings.client_library)
    return [row.first_seq for row in rows]


def read_transactions(path: Path, producer: int) -> list[TxnRow]:
    """Return the transactions of a producer's `transactions.log`, in order; [] for a missing file. A torn last line is
    left out."""
    from ackproof.rundir.ledger import TxnRow

    if not path.exists():
        return []
    text = path.read_text(encoding="ascii")
    rows: dict[int, TxnRow] = {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        word, number, *rest = line.split()
        txn = int(number)
        if word == "begin":
            # no commit was requested before the log ends: this transaction can never be committed
            rows[txn] = TxnRow(producer, txn, TxnOutcome.ABORTED, int(rest[0]), int(rest[1]), -1, -1)
        elif word == "commit":
            rows[txn] = rows[txn]._replace(outcome=TxnOutcome.UNKNOWN, commit_ns=int(rest[0]))
        else:
            rows[txn] = rows[txn]._replace(outcome=TxnOutcome(int(rest[0])), ended_ns=int(rest[1]))
    return [rows[txn] for txn in sorted(rows)]
