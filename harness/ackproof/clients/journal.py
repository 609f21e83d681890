"""The memory-mapped journals of producers and readers, and how their rows become parts of the ledgers.

`journal/<client>/chunk-<index>.rows` of a producer: a header of 64 bytes (magic `AKPJRNL1`, first seq, number of rows,
as two 64-bit words), then a row of four 64-bit words for each seq, in the machine's byte order::

    sent     CLOCK_MONOTONIC ns just before the produce call; 0: not sent
    done     CLOCK_MONOTONIC ns of the delivery report; 0: none came. Written last: it makes the row whole
    offset   offset in the acknowledgement, -1 unknown
    result   place (32 bits) | error code (16 bits, signed) | outcome (8 bits)

`journal/<client>/reads-<index>.rows` of a live reader that writes no parts itself: a header of 64 bytes (magic
`AKPREAD1`, number of the first read, number of rows), then a row of eight 64-bit words for each read::

    read         CLOCK_MONOTONIC ns of the read; 0: none. Written last: it makes the row whole
    place        index of the partition (32 bits) | assignment (32 bits)
    offset       offset of the record
    epoch        leader epoch, -1 unknown (32 bits) | producer, -1 unknown (32 bits)
    seq          seq of the record, -1 unknown
    origin       topic that it was produced to: index from 1 in the reader's topics, 0 unknown (32 bits) | partition
    timestamp    the record's own timestamp in ms
    intact       1 if the checksum holds

The pages belong to the kernel: they outlive the process, at whatever instruction it is killed (not the machine). A
chunk gets its name once its header is written. All its bytes are written before it is mapped, so that a full disk is an
OSError there and no SIGBUS later. A chunk is removed once its part of the ledger exists.

Parts are written by a thread of the producer (`Converter`), or by the harness (`conversion`). Arrow is loaded only
where a part is written.
"""

from __future__ import annotations

import mmap
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ackproof.base.errors import AckproofError
from ackproof.clients.contract import CHUNK_ROWS, TRANSACTIONS_LOG, ProducerSettings, ReaderSettings
from ackproof.clients.parts import PHASES, FreeMemory
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.outcome import Outcome, TxnOutcome

if TYPE_CHECKING:
    from ackproof.rundir.ledger import ProducedRows, TxnRow

WORDS: Final = 4
SENT, DONE, OFFSET, RESULT = range(WORDS)

ROW: Final = np.dtype(
    [
        ("read_ns", "=i8"),
        ("place", "=i4"),
        ("assignment", "=i4"),
        ("offset", "=i8"),
        ("leader_epoch", "=i4"),
        ("producer", "=i4"),
        ("seq", "=i8"),
        ("origin", "=i4"),
        ("origin_partition", "=i4"),
        ("timestamp_ms", "=i8"),
        ("intact", "=i8"),
    ]
)
"""Type of a row of a reader's journal (`reads-<index>.rows`, which the text of this module describes)."""
_MAGIC: Final = b"AKPJRNL1"
_READ_MAGIC: Final = b"AKPREAD1"
_HEADER: Final = struct.Struct("=8sqq40x")
CHUNKS: Final = "chunk-"
READS: Final = "reads-"
"""Beginnings of the names of journal files: `CHUNKS` for a producer, `READS` for a reader."""

_LOOK_EVERY_S: Final = 0.25
_WARM_UP_AFTER_S: Final = 0.5
_LATER: Final = 16
"""Number of chunks (64 MiB) that a producer at full speed leaves unconverted until it ends, so that their conversion
takes no processor time from it. Most loads end before these chunks are full."""

Matrix = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]


class TornJournal(AckproofError):
    """Raised if a journal file cannot be read as a chunk, or has a row with a partition that the client does not have.
    The text names the chunk and the reason."""


def pack_result(place: int, error: int, outcome: int) -> int:
    """Return a row's result as one 64-bit word. Bits 0 to 31: `place`, the index of the partition. Bits 32 to 47: error
    code, signed. From bit 48 on: outcome."""
    return place | (error & 0xFFFF) << 32 | outcome << 48


def chunk_path(folder: Path, index: int, kind: str = CHUNKS) -> Path:
    """Return the path of the journal file with chunk number `index`, from 0. `kind`: `CHUNKS` or `READS`."""
    return folder / f"{kind}{index:06d}.rows"


def chunk_files(folder: Path, kind: str = CHUNKS) -> list[tuple[int, Path]]:
    """Return index and path of each chunk file in a journal folder, sorted by index. `kind`: `CHUNKS` or `READS`."""
    files = [(path.name[len(kind) : -len(".rows")], path) for path in folder.glob(f"{kind}*.rows")]
    return sorted((int(number), path) for number, path in files if number.isdigit())


# -- writing ---------------------------------------------------------------------------------------------------------


class Chunk:
    """One memory-mapped file of a producer's journal, made with all words 0. `index`: its number, from 0; its first row
    has seq `index * rows`. `words`: its 64-bit words, four for each row, row after row. `matrix`: the same memory as an
    array with the columns SENT, DONE, OFFSET, RESULT."""

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
    """Journal of a running producer: a row for each produce call (attempt), in memory-mapped files (chunks) that
    survive the producer's death. Other code turns full chunks into parts of the ledger and removes them (`Converter`,
    `conversion`).

    `rows`: rows of a chunk, a power of two, else ValueError. `chunks`: the chunks that were not removed yet, by index.
    `current`: the chunk that takes the next rows; there is none before the first `extend`.
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
        """Return the chunks before the current one in which every attempt has its final outcome, in order of index."""
        before = list(self.chunks.values())[:-1]
        return [chunk for chunk in before if chunk.resolved() and chunk.index not in self.pinned]

    def retire(self, chunk: Chunk) -> None:
        """Remove a chunk and its file, after its part of the ledger was written."""
        del self.chunks[chunk.index]
        chunk.path.unlink(missing_ok=True)


class ReadJournal:
    """Writer of the read journal of a user's program: the harness writes a row for each read that the program prints.
    `rows`: rows of a chunk."""

    def __init__(self, folder: Path, rows: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._rows = rows
        self._count = 0
        self._chunk: Rows = np.empty(0, ROW)

    def add(self, **columns: int) -> None:
        """Append one read: a value for each column of `ROW`. Raises OSError if the disk is full."""
        index, row = divmod(self._count, self._rows)
        if row == 0:
            self._extend(index)
        place = self._chunk[row]
        for name in reversed(ROW.names or ()):  # `read_ns`, the first column, makes the row whole
            place[name] = columns[name]
        self._count += 1

    def _extend(self, index: int) -> None:
        path = chunk_path(self._folder, index, READS)
        temporary = self._folder / f".{path.name}.tmp"
        head = _HEADER.pack(_READ_MAGIC, index * self._rows, self._rows)
        temporary.write_bytes(head + bytes(self._rows * ROW.itemsize))
        self._chunk = np.memmap(temporary, ROW, "r+", _HEADER.size, (self._rows,))
        temporary.replace(path)


# -- chunks to parts -------------------------------------------------------------------------------------------------


class Converter:
    """Background thread of a producer that converts full chunks, in which every attempt has its final outcome, into
    parts of the ledger. At full speed, it leaves the newest 16 of them to `finish`.

    `ledger`: the producer's folder in the ledger. `starts`: list of the first seqs of all transactions, which grows
    while the producer runs; None without transactions. `error`: the failure that ended the thread, None before.
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
        except Exception as error:  # noqa: BLE001 - raised in the main thread, which ends the client with it
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
    """Return the ledger rows of a chunk: one for each attempt that was sent.

    `first_seq`: seq of the first row of `matrix`, which has the columns SENT, DONE, OFFSET, RESULT. An attempt without
    a delivery report is indeterminate, with done_ns -1. Only acknowledged attempts have an offset; the others have -1.
    `starts`: first seq of each transaction, in order, from which the rows get their transaction numbers; None without
    transactions. An attempt before the first transaction gets number -1.
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


def read_chunk(path: Path, index: int) -> tuple[int, Matrix]:
    """Return the first seq of a chunk's file, and a matrix of its complete rows, used or not (columns SENT, DONE,
    OFFSET, RESULT). Raises `TornJournal` for a file that cannot be read, or is not the chunk with this index."""
    count, rows = _read_rows(path, index, _MAGIC, np.dtype((np.int64, WORDS)))
    return index * count, rows


def read_reads(path: Path, index: int) -> tuple[Rows, bool]:
    """Return the rows of a reader's chunk that hold a read, as an array of type `ROW`, and whether the chunk is full.
    Raises `TornJournal` for a file that cannot be read, or is not the chunk with this index."""
    count, rows = _read_rows(path, index, _READ_MAGIC, ROW)
    used = int(np.count_nonzero(rows["read_ns"]))  # rows are written in order
    return rows[:used], used == count


def _read_rows(path: Path, index: int, magic: bytes, row: np.dtype[Any]) -> tuple[int, npt.NDArray[Any]]:
    """Return the capacity of a chunk in rows, and the rows that its file holds completely, used or not. Raises
    `TornJournal` if the file cannot be read, or its header is not that of chunk `index` of this kind (`magic`)."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TornJournal(f"{path}: {error.strerror}") from error
    if len(raw) < _HEADER.size:
        raise TornJournal(f"{path}: {len(raw)} bytes are less than a header")
    found, first, count = _HEADER.unpack_from(raw)
    if found != magic or count <= 0 or first != index * count:
        raise TornJournal(f"{path}: not the header of chunk {index}")
    whole = min(count, (len(raw) - _HEADER.size) // row.itemsize)
    return count, np.frombuffer(raw, row, whole, _HEADER.size)


def write_reads(settings: ReaderSettings, ledger: Path, index: int, rows: Rows) -> Path | None:
    """Write the rows of a chunk (type `ROW`) as a part of the ledger. Return its path; None without rows.

    `ledger`: the client's folder in the ledger. Raises `TornJournal` if a row names a partition that the reader does
    not have.
    """
    from ackproof.rundir.ledger import ConsumedRows, write_consumed

    if not len(rows):
        return None
    if not 0 <= int(rows["place"].min()) <= int(rows["place"].max()) < len(settings.places):
        raise TornJournal(f"{ledger}: chunk {index} names a place beyond {len(settings.places)}")
    origins = ("", *dict.fromkeys(place.topic for place in settings.places))
    first_read = index * settings.flush_rows
    columns = {name: rows[name] for name in ROW.names or () if name not in ("read_ns", "intact")}
    consumed = ConsumedRows(
        reader=settings.reader,
        phase=PHASES[settings.ends is not None, settings.committed],
        places=settings.places,
        origins=origins,
        read_seq=np.arange(first_read, first_read + len(rows), dtype=np.int64),
        read_ns=rows["read_ns"] - settings.origin_ns,
        intact=rows["intact"] != 0,
        library=settings.client_library,
        **columns,
    )
    return write_consumed(ledger, index, consumed)


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
    left out. A transaction without an end has the outcome UNKNOWN if its commit was requested, else ABORTED."""
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
