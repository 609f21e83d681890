"""A producer process: ``python -m ackproof.clients.producer SETTINGS.json``.

One thread sends and serves delivery reports; every send is in the journal before the client library sees it, every
report in the journal and in the shared counters before the next is looked at. It ends with 0 when it was asked to
stop and closed in good order, and with `EXIT_RESET` after a fatal error of its client.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from ackproof.clients.control import Demand, Events, listen
from ackproof.clients.converter import Converter
from ackproof.clients.counters import SharedCounters, State
from ackproof.clients.journal import RESULT, Journal
from ackproof.clients.reports import Reports
from ackproof.clients.sending import Sender
from ackproof.clients.settings import (
    EXIT_CLEAN,
    EXIT_RESET,
    TRANSACTIONS_LOG,
    ProducerSettings,
    delivery_timeout_s,
)
from ackproof.clients.sockets import unread_bytes
from ackproof.clients.transactions import Transactions
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.payload_bulk import BulkEncoder

_BLOCK: Final = 512
"""Records between two looks at delivery reports at full speed: half a millisecond of sending."""
_BLOCK_BYTES: Final = 1 << 20
_TICK_S: Final = 0.001
_IDLE_S: Final = 0.02
_MOST_BEHIND_S: Final = 0.2
_FREE_RATE: Final = 50.0
"""Records per second of one that sent on demand and is free, where its experiment gives no rate."""
_DECIDE_S: Final = 1.0
"""How long the last statistics are awaited when outcomes depend on them."""
_STANDSTILL_S: Final = 10.0
"""Brokers that read nothing for this long will not read before the end either; on a busy machine a live one has stood
still for seven. It is within what the harness allows a client for its end (`workload.clients`)."""
_LOOKS: Final = 3
"""So many looks in a row must find nothing: the kernel's table of sockets is not read in one piece."""


class Pace:
    """A smooth schedule of `rate` records per second, from the first look on.

    What a client could not send in time is made up for by at most 0.2 s worth of records: a cluster that comes
    back is not met by a burst of everything that its absence delayed.
    """

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._start_s = now_s
        self._sent = 0

    def due(self, now_s: float) -> int:
        """How many records are due at `now_s` (seconds on any one clock)."""
        due = int((now_s - self._start_s) * self._rate) + 1 - self._sent
        most = max(1, int(self._rate * _MOST_BEHIND_S))
        if due > most:
            self._start_s += (due - most) / self._rate
            due = most
        return max(0, due)

    def sent(self, count: int) -> None:
        self._sent += count

    def wait_s(self, now_s: float) -> float:
        """Seconds from `now_s` until the next record is due."""
        return max(0.0, self._start_s + self._sent / self._rate - now_s)


class OnDemand:
    """A record for each place at first, then those that the parent asks for; once it is free, at this rate."""

    def __init__(self, demand: Demand, places: int, rate: float | None) -> None:
        self._demand = demand
        self._left = places
        self._taken = 0
        self._rate = rate or _FREE_RATE
        self._pace: Pace | None = None

    def due(self, now_s: float) -> int:
        """How many records are due now."""
        asked = self._demand.records
        self._left += asked - self._taken
        self._taken = asked
        if self._demand.free and self._pace is None:
            self._pace = Pace(self._rate, now_s)
        return self._left + (self._pace.due(now_s) if self._pace is not None else 0)

    def sent(self, count: int) -> None:
        asked = min(count, self._left)
        self._left -= asked
        if self._pace is not None:
            self._pace.sent(count - asked)

    def wait_s(self, now_s: float) -> float:
        """Seconds until it is worth a look again."""
        return _IDLE_S if self._pace is None else self._pace.wait_s(now_s)


class ProducerProcess:
    """The state of one producer."""

    def __init__(self, settings: ProducerSettings, folder: Path) -> None:
        run = CaseDir(Path(settings.case_dir))
        self.settings = settings
        self.demand = Demand()
        self.stop = listen(self.demand)
        self.events = Events(folder / "events.jsonl", settings.origin_ns)
        self.counters = SharedCounters(folder / "counters", len(settings.places))
        self.ledger = run.produced / client_folder(settings.client)
        self.ledger.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(run.journal / settings.client, settings.chunk_rows)
        self.reports = Reports(settings, self.journal, self.counters)
        self.block = max(1, min(_BLOCK, settings.chunk_rows, _BLOCK_BYTES // settings.value_size))
        while settings.chunk_rows % self.block:
            self.block -= 1
        self.round = np.arange(self.block + len(settings.places)) % len(settings.places)
        self.client = Producer(
            {
                **settings.config,
                "on_delivery": self.reports.callback(),
                "error_cb": self._on_error,
                "stats_cb": self.reports.on_statistics,
            }
        )
        self.sender = Sender(
            self.client,
            self.journal,
            self.counters,
            settings,
            serve=self._serve,
            ending=self._ending,
            failed=self.reports.ended_by,
            unvalued=self.reports.unvalued,
        )
        self.transactions: Transactions | None = None
        starts: list[int] | None = None
        if settings.transaction_size:
            self.transactions = Transactions(
                self.client,
                folder / TRANSACTIONS_LOG,
                settings,
                flush=self._flush,
                ending=self._ending,
                fatal=self.reports.ended_by,
            )
            starts = self.transactions.starts
        self.converter = Converter(settings, self.journal, self.ledger, starts)

    def run(self) -> int:
        """Send until asked to stop or until the client is dead; leave the ledger whole. The exit status."""
        joined = self.transactions is None or self.transactions.join()
        self.counters.stage = State.READY
        if joined:
            self._load()
        self.counters.stage = State.STOPPING
        if self.transactions is not None:
            self.transactions.finish(commit=True)
        self._flush()
        self._let_them_read()
        self._serve(0, lambda _: self.client.close())  # which raises a fatal error again
        self.converter.finish()
        from ackproof.rundir.parts import mark_end

        if self.transactions is not None:
            from ackproof.clients.salvage import write_transaction_table

            write_transaction_table(CaseDir(Path(self.settings.case_dir)), self.settings)
        mark_end(self.ledger)
        self.counters.stage = State.CLOSED
        gave_up = "" if self.transactions is None else self.transactions.gave_up
        if self.reports.fatal or gave_up:
            self.events.add("reset", reason=self.reports.fatal or gave_up)
            return EXIT_RESET
        return EXIT_CLEAN

    def _load(self) -> None:
        settings = self.settings
        encode = BulkEncoder(
            settings.run_id, settings.producer, settings.places, settings.first_place, settings.value_size
        )
        pace = self._pace()
        block, rows = self.block, settings.chunk_rows
        seq = 0
        while not self._ending():
            if seq % rows == 0:
                self.journal.extend()
            self._name_places(seq, block)
            at = 0
            values = encode.values(seq, block)
            while at < block and not self._ending():
                stop = block if pace is None else self._await_due(pace, at)
                if self.transactions is not None and at < stop:
                    stop = min(stop, at + self.transactions.room(seq + at))
                sent = self.sender.send(seq + at, values[at:stop])
                at += sent
                self.counters.sent = seq + at
                if pace is not None:
                    pace.sent(sent)
                self._serve(0)
            if at < block:
                return
            seq += block

    def _pace(self) -> Pace | OnDemand | None:
        settings = self.settings
        if settings.on_demand:
            return OnDemand(self.demand, len(settings.places), settings.rate)
        return None if settings.rate is None else Pace(settings.rate, time.monotonic())

    def _ending(self) -> bool:
        if self.converter.error is not None:
            raise self.converter.error
        gave_up = self.transactions is not None and self.transactions.gave_up
        return self.stop.is_set() or bool(self.reports.fatal) or bool(gave_up)

    def _name_places(self, seq: int, count: int) -> None:
        """Write the places of the next records into their rows, which are not yet sent."""
        chunk = self.journal.current
        at = seq - chunk.first_seq
        begin = (seq + self.settings.first_place) % len(self.settings.places)
        chunk.matrix[at : at + count, RESULT] = self.round[begin : begin + count]

    def _await_due(self, pace: Pace | OnDemand, at: int) -> int:
        """Serve reports until records are due; the end of what is due in the present block."""
        while not self._ending():
            now = time.monotonic()
            due = pace.due(now)
            if due:
                return min(self.block, at + due)
            # librdkafka waits in whole milliseconds: below that, one, and what is due goes out together
            self._serve(min(_IDLE_S, max(_TICK_S, pace.wait_s(now))))
        return at

    def _serve(self, timeout_s: float, serve: Callable[[float], object] | None = None) -> None:
        """Serve delivery reports, by `poll`, `flush` or `close`. A fatal error comes as an exception, once."""
        try:
            (serve or self.client.poll)(timeout_s)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self.reports.ended_by(error.args[0])
        self.reports.settle()

    def _flush(self) -> None:
        """Wait for the last reports; what has none when its time is over is purged and stays indeterminate."""
        bound_s = 0 if self.reports.fatal else delivery_timeout_s(self.settings.config) + 1
        deadline = time.monotonic() + bound_s
        while len(self.client) and time.monotonic() < deadline:
            self._serve(0.1, self.client.flush)
        if len(self.client):
            self.client.purge()
            self._serve(1, self.client.flush)
        deadline = time.monotonic() + _DECIDE_S
        while self.reports.undecided and time.monotonic() < deadline:
            self._serve(_IDLE_S)

    def _let_them_read(self) -> None:
        """acks=0: close only when the brokers have read what was sent (see `sockets`), or stand still for long."""
        if self.settings.config["acks"] != "0" or self.reports.fatal:
            return
        left, moved = unread_bytes(), time.monotonic()
        empty = 0 if left else 1
        while empty < _LOOKS and time.monotonic() - moved < _STANDSTILL_S:
            self._serve(_IDLE_S)
            now = unread_bytes()
            if now < left:
                moved = time.monotonic()
            empty = 0 if now else empty + 1
            left = now
        if left:
            self.events.add("unread", unread_bytes=left, producer=self.settings.producer)

    def _on_error(self, error: KafkaError) -> None:
        sys.stderr.write(f"{error.name()}: {error.str()}\n")


def main(arguments: list[str]) -> int:
    """Run the producer whose settings file is the one argument."""
    path = Path(arguments[0])
    # reports make no reference cycles; looking for some among a hundred thousand messages costs acks their time
    gc.disable()
    return ProducerProcess(ProducerSettings.read(path), path.parent).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
