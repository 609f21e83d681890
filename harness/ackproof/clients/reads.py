"""The memory-mapped journal of a live reader that writes no parts of the ledger itself, and its way into the ledger.

`journal/<client>/reads-<index>.rows`: a header of 64 bytes (magic `AKPREAD1`, number of the first read, capacity in
rows), then a row of eight 64-bit words for each read, in the machine's byte order::

    read         CLOCK_MONOTONIC ns of the read; 0: none. Written last: it makes the row whole
    place        index of the partition (32 bits) | assignment (32 bits)
    offset       offset of the record
    epoch        leader epoch, -1 unknown (32 bits) | producer, -1 unknown (32 bits)
    seq          seq of the record, -1 unknown
    origin       topic that it was produced to: index from 1 in the reader's topics, 0 unknown (32 bits) | partition
    timestamp    the record's own timestamp in ms
    intact       1 if the checksum holds

Like a producer's journal, it keeps each complete row when its process is killed.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ackproof.clients.contract import ReaderSettings
from ackproof.clients.journal import TornJournal
from ackproof.clients.parts import PHASES
from ackproof.rundir.ledger import ConsumedRows, part_path, write_consumed
from ackproof.rundir.outcome import ReadPhase

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
_MAGIC: Final = b"AKPREAD1"
_HEADER: Final = struct.Struct("=8sqq40x")
_PREFIX: Final = "reads-"

Rows = npt.NDArray[np.void]


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
        path = self._folder / f"{_PREFIX}{index:06d}.rows"
        temporary = self._folder / f".{path.name}.tmp"
        head = _HEADER.pack(_MAGIC, index * self._rows, self._rows)
        temporary.write_bytes(head + bytes(self._rows * ROW.itemsize))
        self._chunk = np.memmap(temporary, ROW, "r+", _HEADER.size, (self._rows,))
        temporary.replace(path)


def read_files(folder: Path) -> list[tuple[int, Path]]:
    """Return index and path of each chunk in a reader's journal, sorted by index."""
    files = [(path.name[len(_PREFIX) : -len(".rows")], path) for path in folder.glob(f"{_PREFIX}*.rows")]
    return sorted((int(number), path) for number, path in files if number.isdigit())


def read_rows(path: Path, index: int) -> tuple[Rows, bool]:
    """Return the complete rows of a chunk as an array of type `ROW`, and whether the chunk is full. Raises
    `TornJournal` for a file that cannot be read, or is not the chunk with this index."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TornJournal(f"{path}: {error.strerror}") from error
    if len(raw) < _HEADER.size:
        raise TornJournal(f"{path}: {len(raw)} bytes are less than a header")
    magic, first, count = _HEADER.unpack_from(raw)
    if magic != _MAGIC or count <= 0 or first != index * count:
        raise TornJournal(f"{path}: not the header of chunk {index}")
    whole = min(count, (len(raw) - _HEADER.size) // ROW.itemsize)
    rows = np.frombuffer(raw, ROW, whole, _HEADER.size)
    used = int(np.count_nonzero(rows["read_ns"]))  # rows are written in order
    return rows[:used], used == count


def write_reads(
    settings: ReaderSettings, ledger: Path, index: int, rows: Rows, first_read: int
) -> Path | None:
    """Write the rows of a chunk (type `ROW`) as a part of the ledger. Return its path; None without rows, or if the
    part exists.

    `ledger`: the client's folder in the ledger. `first_read`: `read_seq` of the first row. Raises `TornJournal` if a
    row names a partition that the reader does not have.
    """
    if not len(rows) or part_path(ledger, index).exists():
        return None
    if not 0 <= int(rows["place"].min()) <= int(rows["place"].max()) < len(settings.places):
        raise TornJournal(f"{ledger}: chunk {index} names a place beyond {len(settings.places)}")
    origins = ("", *dict.fromkeys(place.topic for place in settings.places))
    phase: ReadPhase = PHASES[settings.ends is not None, settings.committed]
    columns = {name: rows[name] for name in ROW.names or () if name not in ("read_ns", "intact")}
    consumed = ConsumedRows(
        reader=settings.reader,
        phase=phase,
        places=settings.places,
        origins=origins,
        read_seq=np.arange(first_read, first_read + len(rows), dtype=np.int64),
        read_ns=rows["read_ns"] - settings.origin_ns,
        intact=rows["intact"] != 0,
        library=settings.client_library,
        **columns,
    )
    return write_consumed(ledger, index, consumed)
