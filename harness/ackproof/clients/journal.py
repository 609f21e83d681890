"""The memory-mapped journal of a producer: each send is written before the client library sees it.

A journal is a folder with chunks of rows, `chunk-<k>.rows`; whose it is, and the table of places, stands in the
client's settings. Row i of chunk k is record seq = k × rows + i, four 64-bit words in the machine's byte order::

    sent     CLOCK_MONOTONIC ns just before the produce call; 0: not sent
    done     CLOCK_MONOTONIC ns of the delivery report; 0: none came. Written last: it makes the row whole
    offset   offset in the acknowledgement, -1 unknown
    result   place (32 bits) | error code (16 bits, signed) | outcome (8 bits)

The pages belong to the kernel, so that they outlive the process, at whatever instruction it is killed (they need
not outlive the machine). A chunk has its name only once its header is written; all its bytes are written before it
is mapped, so that a full disk is an OSError there and no SIGBUS later. A chunk is removed after its part of the ledger
is there.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ackproof.base.errors import AckproofError
from ackproof.clients.settings import CHUNK_ROWS

WORDS: Final = 4
SENT, DONE, OFFSET, RESULT = range(WORDS)

_MAGIC: Final = b"AKPJRNL1"
_HEADER: Final = struct.Struct("=8sqq40x")
_NAME: Final = "chunk-{:06d}.rows"
_PATTERN: Final = "chunk-*.rows"

Words: Final = np.int64
Matrix = npt.NDArray[np.int64]


class TornJournal(AckproofError):
    """A file of a journal is not what its name says. The text says which and why."""


def pack_result(place: int, error: int, outcome: int) -> int:
    """The word `result` of a row."""
    return place | (error & 0xFFFF) << 32 | outcome << 48


def chunk_path(folder: Path, index: int) -> Path:
    """The file of chunk `index`."""
    return folder / _NAME.format(index)


def chunk_files(folder: Path) -> list[tuple[int, Path]]:
    """The chunks that are there, by index."""
    found = []
    for path in folder.glob(_PATTERN):
        number = path.name[len("chunk-") : -len(".rows")]
        if number.isdigit():
            found.append((int(number), path))
    return sorted(found)


class Chunk:
    """One mapped chunk. `words` is flat: row i starts at word 4 i."""

    def __init__(self, folder: Path, index: int, rows: int) -> None:
        self.index = index
        self.first_seq = index * rows
        self.path = chunk_path(folder, index)
        temporary = folder / f".{self.path.name}.tmp"
        size = _HEADER.size + rows * WORDS * 8
        with temporary.open("w+b") as file:
            # written, not only allocated: pages that are in the cache are mapped three times as fast
            file.write(bytes(size))
            file.flush()
            self._map = mmap.mmap(file.fileno(), size)
        self._map[: _HEADER.size] = _HEADER.pack(_MAGIC, self.first_seq, rows)
        self.words = memoryview(self._map)[_HEADER.size :].cast("q")
        self.matrix: Matrix = np.frombuffer(self.words, dtype=np.int64).reshape(rows, WORDS)
        temporary.replace(self.path)

    def resolved(self) -> bool:
        """Whether every row was sent and has its outcome."""
        return bool(self.matrix[:, DONE].all())

    def used(self) -> bool:
        return bool(self.matrix[:, SENT].any())


class Journal:
    """Writer's side. `views[k]` and `matrices[k]` are chunk k, until it is turned into Parquet."""

    def __init__(self, folder: Path, rows: int = CHUNK_ROWS) -> None:
        if rows & (rows - 1):
            raise ValueError(f"the rows of a chunk must be a power of two, not {rows}")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.rows = rows
        self.views: dict[int, memoryview] = {}
        self.matrices: dict[int, Matrix] = {}
        self._next = 0
        self.pinned: set[int] = set()
        """Chunks with rows whose outcome may still change."""
        self._chunks: dict[int, Chunk] = {}

    def extend(self) -> memoryview:
        """Add a chunk and return its words. Raises OSError when the disk is full."""
        chunk = Chunk(self.folder, self._next, self.rows)
        self._next += 1
        self._chunks[chunk.index] = chunk
        self.views[chunk.index] = chunk.words
        self.matrices[chunk.index] = chunk.matrix
        return chunk.words

    @property
    def current(self) -> Chunk:
        return self._chunks[self._next - 1]

    def resolved(self) -> list[Chunk]:
        """The chunks before the current one whose rows are all resolved."""
        current = self._next - 1
        return [
            chunk
            for index, chunk in sorted(self._chunks.items())
            if index < current and chunk.resolved() and index not in self.pinned
        ]

    def remaining(self) -> list[Chunk]:
        """All chunks that are still there, by index."""
        return [chunk for _, chunk in sorted(self._chunks.items())]

    def retire(self, chunk: Chunk) -> None:
        """Forget a chunk whose part of the ledger is there, and remove its file."""
        del self.views[chunk.index], self.matrices[chunk.index], self._chunks[chunk.index]
        chunk.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder of a journal whose chunks are all retired."""
        self.folder.rmdir()


def read_chunk(path: Path, index: int) -> tuple[int, Matrix]:
    """The first seq and the rows of a chunk's file, as many as are whole. Raises `TornJournal`."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TornJournal(f"{path}: {error.strerror}") from error
    if len(raw) < _HEADER.size:
        raise TornJournal(f"{path}: {len(raw)} bytes, not even a header")
    magic, first_seq, rows = _HEADER.unpack_from(raw)
    if magic != _MAGIC or rows <= 0 or first_seq != index * rows:
        raise TornJournal(f"{path}: not the header of chunk {index}")
    whole = min(rows, (len(raw) - _HEADER.size) // (WORDS * 8))
    flat = np.frombuffer(raw, dtype=np.int64, count=whole * WORDS, offset=_HEADER.size)
    return first_seq, flat.reshape(whole, WORDS)
