"""Writes the ledgers of clients that write only a journal (Java clients, programs of the user): a thread of the harness
turns the journals into parts.

While such a client runs, its full chunks become parts once all their rows are whole. When it has closed, the rest
follows, and `_END`. After a kill the rest is salvaged without `_END`, as for every client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from ackproof.clients.contract import (
    TRANSACTIONS_LOG,
    ProducerSettings,
    ReaderSettings,
    client_adapter,
)
from ackproof.clients.journal import (
    DONE,
    chunk_files,
    produced_rows,
    read_chunk,
    read_transactions,
    salvage,
)
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.parts import mark_end

_LOOK_EVERY_S: Final = 0.25
Settings: TypeAlias = ProducerSettings | ReaderSettings


class JournalConverter:
    """Thread that turns the full journal chunks of running clients into parts of their ledgers. Thread-safe. `running`
    returns the settings of the clients that run. `error`: the first failure of the thread, None before."""

    def __init__(self, run: CaseDir, running: Callable[[], Sequence[Settings]]) -> None:
        self._run = run
        self._running = running
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="journals", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop the thread and wait for its end. A failure of the thread stays in `error` and is not raised. The caller
        salvages or closes the journals that are left."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def close_ledger(self, settings: Settings) -> list[str]:
        """Write the last parts of a client that has closed, and then `_END`, which marks its ledger as complete. Raises
        OSError if a file cannot be written.

        A client whose library writes its own ledger is skipped. Return the reasons why files of its journal cannot be
        read; if there are any, `_END` is not written.
        """
        if client_adapter(settings.library).writes_ledger():
            return []
        _, refused = self.salvage(settings.client)
        if not refused:
            mark_end(_ledger(self._run, settings))
        return refused

    def salvage(self, client: str | None = None) -> tuple[list[Path], list[str]]:
        """Turn the remaining journal of a client (None: of every client) into parts of its ledger.

        The clients must have ended. Return the parts that were written, and a text for each journal file that could not
        be read: its path and why. Raises OSError if a part cannot be written.
        """
        with self._lock:
            return salvage(self._run, client)

    def _work(self) -> None:
        try:
            while not self._stop.wait(_LOOK_EVERY_S):
                for settings in self._running():
                    with self._lock:
                        _convert_full_chunks(self._run, settings)
        except Exception as error:  # noqa: BLE001 - `Workload.check` raises it in the thread of the run
            self.error = error


def _ledger(run: CaseDir, settings: Settings) -> Path:
    root = run.produced if isinstance(settings, ProducerSettings) else run.consumed
    return root / client_folder(settings.client)


def _convert_full_chunks(run: CaseDir, settings: Settings) -> None:
    """Turn each full journal chunk of a running client into a part of its ledger, and remove it. The newest chunk is
    never full. A producer's chunk is full if each of its attempts has an outcome, a reader's if each of its rows has a
    read."""
    from ackproof.clients.reads import read_files, read_rows, write_reads
    from ackproof.rundir.ledger import write_produced

    folder, ledger = run.journal / settings.client, _ledger(run, settings)
    if isinstance(settings, ReaderSettings):
        for index, path in read_files(folder)[:-1]:
            rows, full = read_rows(path, index)
            if full:
                write_reads(settings, ledger, index, rows, index * len(rows))
                path.unlink()
        return
    for index, path in chunk_files(folder)[:-1]:
        first_seq, matrix = read_chunk(path, index)
        if not np.all(matrix[:, DONE]):
            continue
        log = run.clients / settings.client / TRANSACTIONS_LOG
        starts = [row.first_seq for row in read_transactions(log, settings.producer)]
        write_produced(ledger, index, produced_rows(settings, first_seq, matrix, starts or None))
        path.unlink()
