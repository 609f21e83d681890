"""The background thread of a producer: chunks of the journal whose rows are all resolved become parts of the ledger."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from ackproof.workload.journal import Chunk, Journal

_LOOK_EVERY_S: Final = 0.25
_WARM_UP_AFTER_S: Final = 0.5


class Converter:
    """Turns chunks into parts while the producer sends. pyarrow is loaded here, off the producer's way."""

    def __init__(self, journal: Journal, ledger: Path, starts: list[int] | None = None) -> None:
        self._journal = journal
        self._ledger = ledger
        self._starts = starts
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
            import ackproof.workload.salvage  # noqa: F401  - so that the first part and the end need not wait

            while not self._stop.wait(_LOOK_EVERY_S):
                for chunk in self._journal.resolved():
                    self._convert(chunk)
        except Exception as error:  # noqa: BLE001 - handed to the main thread, which ends the client with it
            self.error = error

    def _convert(self, chunk: Chunk) -> None:
        from ackproof.rundir.ledger import write_produced
        from ackproof.workload.salvage import produced_rows

        if chunk.used():
            rows = produced_rows(self._journal.meta, chunk.first_seq, chunk.matrix, self._starts)
            write_produced(self._ledger, chunk.index, rows)
        self._journal.retire(chunk)
