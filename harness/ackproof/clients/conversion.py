"""Turns the journals of clients into parts of their ledgers, in the harness.

Java clients and programs of the user write only a journal. While such a client runs, a thread turns its full chunks
into parts once all their rows are whole. When the client has closed, the rest follows, and `_END`. After a kill the
rest is salvaged without `_END`, as for every client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from ackproof.clients.contract import (
    SETTINGS,
    TRANSACTIONS_LOG,
    ProducerSettings,
    ReaderSettings,
    client_adapter,
)
from ackproof.clients.journal import (
    CHUNKS,
    DONE,
    READS,
    Matrix,
    Rows,
    TornJournal,
    chunk_files,
    produced_rows,
    read_chunk,
    read_reads,
    read_transactions,
    write_reads,
    write_transaction_table,
)
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.parts import mark_end

_LOOK_EVERY_S: Final = 0.25
Settings: TypeAlias = ProducerSettings | ReaderSettings


class JournalConverter:
    """Thread that turns the full journal chunks of running clients into parts of their ledgers. Thread-safe. `running`
    returns the settings of the clients that run and write only a journal, no ledger. `error`: the first failure of the
    thread, None before."""

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
        read; [] for none. If there are any, `_END` is not written.
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


def salvage(run: CaseDir, client: str | None = None) -> tuple[list[Path], list[str]]:
    """Turn the journals that clients left into parts of their ledgers. `client`: the only client whose journal is
    turned; None: all clients. These clients must not run any more.

    Return the parts that were written, and a text for each file that could not be read: the file stays where it is.
    Unfinished parts in these clients' ledgers are removed. The call can be repeated, also after its process was killed:
    a part has the number of its chunk, so none is written twice. Raises OSError if a part cannot be written.
    """
    from ackproof.rundir.ledger import remove_unfinished

    written: list[Path] = []
    refused: list[str] = []
    folders = [run.journal / client] if client is not None else sorted(run.journal.glob("*/"))
    for folder in folders:
        if folder.is_dir():
            _salvage_folder(run, folder, written, refused)
    for ledger in (run.produced, run.consumed):
        for folder in ledger.glob("client=*" if client is None else client_folder(client)):
            remove_unfinished(folder)
    if client is None and run.journal.is_dir() and not any(run.journal.iterdir()):
        run.journal.rmdir()
    return written, refused


def _salvage_folder(run: CaseDir, folder: Path, written: list[Path], refused: list[str]) -> None:
    path = run.clients / folder.name / SETTINGS
    for kind, files in ((ReaderSettings, READS), (ProducerSettings, CHUNKS)):
        if not (chunks := chunk_files(folder, files)):
            continue
        try:
            settings: Settings = kind.read(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            refused.append(f"{path}: {error}")
            continue
        starts = write_transaction_table(run, settings) if isinstance(settings, ProducerSettings) else None
        for index, chunk in chunks:
            try:
                if isinstance(settings, ReaderSettings):
                    part = _convert_reads(run, settings, index, chunk, read_reads(chunk, index)[0])
                else:
                    part = _convert_attempts(run, settings, index, chunk, read_chunk(chunk, index), starts)
                written += [part] if part is not None else []
            except TornJournal as error:
                refused.append(str(error))
    if not any(folder.glob("*.rows")):
        for leftover in folder.iterdir():
            leftover.unlink(missing_ok=True)
        folder.rmdir()


def _convert_full_chunks(run: CaseDir, settings: Settings) -> None:
    """Turn each full journal chunk of a running client into a part of its ledger, and remove it. The newest chunk is
    left out. A producer's chunk is full if each of its attempts has an outcome, a reader's if each of its rows has a
    read."""
    folder = run.journal / settings.client
    if isinstance(settings, ReaderSettings):
        for index, path in chunk_files(folder, READS)[:-1]:
            reads, full = read_reads(path, index)
            if full:
                _convert_reads(run, settings, index, path, reads)
        return
    for index, path in chunk_files(folder)[:-1]:
        attempts = read_chunk(path, index)
        if np.all(attempts[1][:, DONE]):
            log = run.clients / settings.client / TRANSACTIONS_LOG
            starts = [row.first_seq for row in read_transactions(log, settings.producer)]
            _convert_attempts(run, settings, index, path, attempts, starts or None)


def _convert_reads(
    run: CaseDir, settings: ReaderSettings, index: int, chunk: Path, reads: Rows
) -> Path | None:
    """Write the rows of a reader's journal chunk as a part of its ledger, remove the chunk, and return the part.

    None if there was nothing to write, or if the part exists already: the process that wrote it died before it removed
    the chunk. Raises `TornJournal` if a row names a partition that the reader does not have, OSError if the part cannot
    be written.
    """
    from ackproof.rundir.ledger import part_path

    ledger, part = _ledger(run, settings), None
    if not part_path(ledger, index).exists():
        part = write_reads(settings, ledger, index, reads)
    chunk.unlink(missing_ok=True)
    return part


def _convert_attempts(
    run: CaseDir,
    settings: ProducerSettings,
    index: int,
    chunk: Path,
    attempts: tuple[int, Matrix],
    starts: list[int] | None,
) -> Path | None:
    """Write the attempts of a producer's journal chunk, as `_convert_reads` writes reads. `starts`: the first seq of
    each transaction; None without transactions."""
    from ackproof.rundir.ledger import part_path, write_produced

    ledger, part, rows = _ledger(run, settings), None, produced_rows(settings, *attempts, starts)
    if len(rows.seq) and int(rows.place.max()) >= len(settings.places):
        raise TornJournal(f"{chunk}: a row names place {int(rows.place.max())} of {len(settings.places)}")
    if len(rows.seq) and not part_path(ledger, index).exists():
        part = write_produced(ledger, index, rows)
    chunk.unlink(missing_ok=True)
    return part


def _ledger(run: CaseDir, settings: Settings) -> Path:
    root = run.produced if isinstance(settings, ProducerSettings) else run.consumed
    return root / client_folder(settings.client)
