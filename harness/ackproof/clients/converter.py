"""The background thread of a producer: chunks of the journal whose rows are all resolved become parts of the ledger."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from ackproof.clients.journal import Chunk, Journal
from ackproof.clients.memory import FreeMemory
from ackproof.clients.settings import ProducerSettings
from ackproof.rundir.part_order import ArrayPool

_LOOK_EVERY_S: Final = 0.25
_WARM_UP_AFTER_S: Final = 0.5
_LATER: Final = 16
"""So many chunks (64 MiB) of a producer at full speed wait until it has ended: a load takes no longer than that often,
and the processor is its own meanwhile."""


class Converter:
    """Turns chunks into parts while the producer sends. pyarrow is loaded here, off the producer's way."""

    def __init__(
        self, whose: ProducerSettings, journal: Journal, ledger: Path, starts: list[int] | None = None
    ) -> None:
        self._whose = whose
        self._journal = journal
        self._ledger = ledger
        self._starts = starts
        # one that waits between its records need not put anything off
        self._later = _LATER if whose.rate is None else 0
        self._shelf = ArrayPool()
        self._free = FreeMemory()
        self._stop = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="converter", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Turn everything that is left into parts. Raises what the thread met. Only after the last report."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        for chunk in self._journal.remaining():
            self._convert(chunk)
        self._journal.close()

    def _run(self) -> None:
        try:
            self._stop.wait(_WARM_UP_AFTER_S)
            import ackproof.clients.salvage  # noqa: F401  - so that the first part and the end need not wait

            while not self._stop.wait(_LOOK_EVERY_S):
                due = self._journal.resolved()
                for chunk in due[: max(0, len(due) - self._later)]:
                    self._convert(chunk)
                    self._free.give_back()
        except Exception as error:  # noqa: BLE001 - handed to the main thread, which ends the client with it
            self.error = error

    def _convert(self, chunk: Chunk) -> None:
        from ackproof.clients.salvage import produced_rows
        from ackproof.rundir.ledger import write_produced

        if chunk.used():
            rows = produced_rows(self._whose, chunk.first_seq, chunk.matrix, self._starts)
            write_produced(self._ledger, chunk.index, rows, self._shelf)
        self._journal.retire(chunk)
