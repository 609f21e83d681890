"""Rows of a reader in memory, and the thread that turns full buffers into parts of the consumed ledger."""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ackproof.clients.contract import ReaderSettings
from ackproof.rundir.outcome import ReadPhase

if TYPE_CHECKING:
    from ackproof.rundir.ledger import ConsumedRows

Column: TypeAlias = npt.NDArray[Any]
_WAITING_BUFFERS: Final = 4
_COLUMNS: Final[Mapping[str, npt.DTypeLike]] = {
    "place": np.int32,
    "assignment": np.int32,
    "offset": np.int64,
    "leader_epoch": np.int32,
    "producer": np.int32,
    "seq": np.int64,
    "origin": np.int32,
    "origin_partition": np.int32,
    "intact": np.bool_,
    "read_ns": np.int64,
    "timestamp_ms": np.int64,
}
PHASES: Final = {
    (False, False): ReadPhase.LIVE,
    (True, False): ReadPhase.FINAL,
    (False, True): ReadPhase.LIVE_COMMITTED,
    (True, True): ReadPhase.FINAL_COMMITTED,
}
"""Phase of a reader's ledger rows, by (whether it is the final reader, `ReaderSettings.committed`)."""

_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 64 << 10
"""Size in bytes from which malloc maps a block separately. Once set, glibc no longer adjusts it (mallopt(3))."""
_GIVE_BACK_EVERY_S: Final = 30.0
"""Least seconds between two releases of memory. A client at full speed would need the released pages again at once."""


class RowBuffer:
    """Buffer with one array per ledger column, with room for `capacity` rows plus one batch of at most `batch` rows.

    `used`: number of rows in the buffer. `first_read_seq`: `read_seq` of the first row, which the buffer's owner sets.
    """

    def __init__(self, capacity: int, batch: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.first_read_seq = 0
        self._columns: dict[str, Column] = {
            name: np.empty(capacity + batch, dtype) for name, dtype in _COLUMNS.items()
        }

    def add(self, count: int, values: Mapping[str, Column | int]) -> None:
        """Append `count` rows. `values`: for each column of the buffer an array of that length, or one value for all
        rows. `used` must be at most `capacity` before the call."""
        rows = slice(self.used, self.used + count)
        for name, column in self._columns.items():
            column[rows] = values[name]
        self.used = rows.stop

    def rows(self, settings: ReaderSettings, phase: ReadPhase, origins: Sequence[str]) -> ConsumedRows:
        """Return the buffered rows in the form that the ledger's writer takes. `phase`: the phase of all rows.
        `origins`: topic names; the column `origin` holds indices into it."""
        from ackproof.rundir.ledger import ConsumedRows

        return ConsumedRows(
            reader=settings.reader,
            phase=phase,
            places=settings.places,
            origins=origins,
            read_seq=np.arange(self.first_read_seq, self.first_read_seq + self.used, dtype=np.int64),
            library=settings.client_library,
            **{name: column[: self.used] for name, column in self._columns.items()},
        )


class PartWriter:
    """Thread that writes buffers as ledger parts; after its first error it drops them. `put` blocks while four buffers
    wait. `folder`: the client's folder in the ledger. `origins`: topic names; the column `origin` holds indices into
    it."""

    def __init__(self, folder: Path, settings: ReaderSettings, origins: list[str]) -> None:
        self._folder, self._settings, self._origins = folder, settings, origins
        self._phase = PHASES[settings.ends is not None, settings.committed]
        self._queue: queue.Queue[RowBuffer | None] = queue.Queue(_WAITING_BUFFERS)
        self._written: queue.SimpleQueue[RowBuffer] = queue.SimpleQueue()
        self._error: Exception | None = None
        self.queued = 0
        """Number of buffers that `put` took."""
        self.written = 0
        """Number of buffers whose part is in the ledger. They are written in the order in which `put` took them."""
        self._memory = FreeMemory()
        self._thread = threading.Thread(target=self._run, name="parts", daemon=True)
        self._thread.start()

    def put(self, buffer: RowBuffer) -> None:
        """Queue a buffer, which the caller must not change any more. Raises the earlier error of the thread, if any."""
        self._queue.put(buffer)
        self.queued += 1
        if self._error is not None:
            raise self._error

    def empty_buffer(self) -> RowBuffer | None:
        """Return a written buffer for reuse, which is cheaper than fresh memory; None if no written buffer is free."""
        try:
            return self._written.get_nowait()
        except queue.Empty:
            return None

    def finish(self) -> None:
        """Wait until all buffers are written, and end the thread. Raises the error of the thread, if any."""
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        import ackproof.rundir.ledger  # noqa: F401  - while the client connects, not when the first part is due

        number = self._settings.first_part
        while (buffer := self._queue.get()) is not None:
            if self._error is not None:
                continue
            try:
                from ackproof.rundir.ledger import write_consumed

                rows = buffer.rows(self._settings, self._phase, tuple(self._origins))
                write_consumed(self._folder, number, rows)
                number += 1
                self.written += 1
                # Usually one buffer is being filled and one written. There are more only after a backlog.
                if self._written.empty():
                    buffer.used = 0
                    self._written.put(buffer)
                del buffer, rows  # free them while the thread waits for the next buffer
                self._memory.give_back()
            except Exception as error:  # noqa: BLE001 - raised in the main thread, which ends the client with it
                self._error = error


class FreeMemory:
    """Returns memory to the kernel that the process has freed, but that malloc and Arrow's pool keep. The thread that
    writes parts calls `give_back`.

    The constructor also sets glibc's M_MMAP_THRESHOLD to 64 KiB for the whole process: each larger block is mapped
    separately, and unmapped when it is freed.

    Reason: while a leader is gone, tens of thousands of records wait in the library and become one large part. By
    default glibc raises that threshold to the size of each such block that is freed (mallopt(3)). It takes later blocks
    from arenas, where free memory lies between used memory: a reader grew from 7 to 25 MiB within 14 minutes.
    """

    def __init__(self, every_s: float = _GIVE_BACK_EVERY_S) -> None:
        libc = ctypes.CDLL(None)
        self._trim = getattr(libc, "malloc_trim", None)
        if self._trim is not None:
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        self._every_s = every_s
        self._due_s = time.monotonic() + every_s

    def give_back(self) -> None:
        """Release free memory of Arrow's pool and, with glibc, of malloc (malloc_trim(3)), which takes 1 ms. Does
        nothing if the last release or the construction of this object was less than `every_s` ago."""
        now = time.monotonic()
        if now < self._due_s:
            return
        import pyarrow as pa  # already imported, because the caller has written a part

        pa.default_memory_pool().release_unused()
        if self._trim is not None:
            self._trim(0)
        self._due_s = now + self._every_s
