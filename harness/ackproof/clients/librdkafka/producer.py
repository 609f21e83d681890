"""A producer process: ``python -m ackproof.clients.librdkafka.producer SETTINGS.json``.

One thread sends and serves delivery reports. Every send is in the journal before the library sees it. Reports
are written to the journal and to the shared counters while they are served, acknowledgements many at a time
(`reports`). It exits with 0 if it was asked to stop and closed cleanly, and with `EXIT_RESET` after a fatal
error of the library, or if a transaction could not be begun or ended.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from ackproof.clients.channel import FREE, SEND, ClientState, Events, SharedCounters, listen
from ackproof.clients.contract import EXIT_CLEAN, EXIT_RESET, TRANSACTIONS_LOG, ProducerSettings
from ackproof.clients.journal import RESULT, Converter, Journal, write_transaction_table
from ackproof.clients.librdkafka.adapter import delivery_timeout_s
from ackproof.clients.librdkafka.messages import show_error
from ackproof.clients.librdkafka.reports import DeliveryReports
from ackproof.clients.librdkafka.sending import Sender, Transactions
from ackproof.network.probe import read_socket_inodes
from ackproof.rundir.layout import CaseDir, client_folder
from ackproof.rundir.payload_bulk import BulkEncoder

_BLOCK: Final = 512
"""Greatest number of records sent at full speed between two calls that serve delivery reports: half a millisecond's
worth."""
_BLOCK_BYTES: Final = 1 << 20
_TICK_S: Final = 0.001
_IDLE_S: Final = 0.02
_MOST_BEHIND_S: Final = 0.2
_FREE_RATE: Final = 50.0
"""Records per second of an on-demand producer after it is freed, if the experiment sets no rate."""
_DECIDE_S: Final = 1.0
"""Longest wait in seconds for the last statistics, if outcomes of attempts depend on them."""
_STANDSTILL_S: Final = 10.0
"""Seconds without progress after which the producer stops waiting for brokers to read its sockets. On a busy machine a
live broker stood still for 7 s. It is less than the time that a client has to close (`workload`)."""
_LOOKS: Final = 3
"""Number of consecutive reads of the kernel's socket table that must find no unread byte. One read is not atomic."""


class Pace:
    """Schedule of `rate` records per second, evenly spaced, from its construction on.

    A producer that is late catches up at most 0.2 s worth of records, so that a recovered cluster does not get all
    delayed records in one burst.
    """

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._start_s = now_s
        self._sent = 0

    def due(self, now_s: float) -> int:
        """Return the number of records that are due by `now_s` and not sent yet. Records that are late by more than 0.2
        s are dropped from the schedule. `now_s`: present time in seconds, on the same clock as at construction."""
        due = int((now_s - self._start_s) * self._rate) + 1 - self._sent
        most = max(1, int(self._rate * _MOST_BEHIND_S))
        if due > most:
            self._start_s += (due - most) / self._rate
            due = most
        return max(0, due)

    def add_sent(self, count: int) -> None:
        self._sent += count

    def wait_s(self, now_s: float) -> float:
        """Return the seconds from `now_s` until the next record is due."""
        return max(0.0, self._start_s + self._sent / self._rate - now_s)


class _PaceOnDemand:
    """Schedule on demand: one record for each partition first, then one record for each request of the harness. After
    the command FREE, the producer sends `rate` records per second (None: `_FREE_RATE`)."""

    def __init__(self, places: int, rate: float | None) -> None:
        self._asked = places
        self._sent = 0
        self._rate = rate or _FREE_RATE
        self._free = False
        self._pace: Pace | None = None

    def obey(self, command: bytes) -> None:
        """Handle a command from the control pipe: SEND asks for one more record; FREE starts sending at `rate`."""
        self._asked += command == SEND
        self._free = self._free or command == FREE

    def due(self, now_s: float) -> int:
        """Return the number of records to send now: those that were asked for and, after FREE, those that `rate` makes
        due."""
        if self._free and self._pace is None:
            self._pace = Pace(self._rate, now_s)
        return self._asked - self._sent + (self._pace.due(now_s) if self._pace is not None else 0)

    def add_sent(self, count: int) -> None:
        by_demand = min(count, self._asked - self._sent)
        self._sent += by_demand
        if self._pace is not None:
            self._pace.add_sent(count - by_demand)

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the producer should call `due` again."""
        return _IDLE_S if self._pace is None else self._pace.wait_s(now_s)


class ProducerProcess:
    """One producer process: it sends records until the harness stops it, and writes its ledger."""

    def __init__(self, settings: ProducerSettings, folder: Path) -> None:
        run = CaseDir(Path(settings.case_dir))
        self.settings = settings
        self.on_demand = _PaceOnDemand(len(settings.places), settings.rate) if settings.on_demand else None
        self.stop = listen() if self.on_demand is None else listen(self.on_demand.obey)
        self.events = Events(folder / "events.jsonl", settings.origin_ns)
        self.counters = SharedCounters(folder / "counters", len(settings.places))
        self.ledger = run.produced / client_folder(settings.client)
        self.ledger.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(run.journal / settings.client, settings.chunk_rows)
        self.reports = DeliveryReports(settings, self.journal, self.counters)
        self.block = max(1, min(_BLOCK, settings.chunk_rows, _BLOCK_BYTES // settings.value_size))
        while settings.chunk_rows % self.block:
            self.block -= 1
        self.round = np.arange(self.block + len(settings.places)) % len(settings.places)
        self.client = Producer(
            {
                **settings.config,
                "on_delivery": self.reports.callback(),
                "error_cb": show_error,
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
            failed=self.reports.note_fatal,
            tombstone_callback=self.reports.tombstone_callback,
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
                fatal=self.reports.note_fatal,
            )
            starts = self.transactions.starts
        self.converter = Converter(settings, self.journal, self.ledger, starts)

    def run(self) -> int:
        """Send until asked to stop or until the library's client cannot be used any more, and close the ledger. Return
        the exit status: `EXIT_CLEAN`, or `EXIT_RESET` if the client could not be used any more. Raises KafkaException
        if the transactional id cannot be registered, and the error of the thread that writes the ledger."""
        joined = self.transactions is None or self.transactions.join()
        self.counters.stage = ClientState.READY
        if joined:
            self._load()
        self.counters.stage = ClientState.STOPPING
        if self.transactions is not None:
            self.transactions.finish(commit=True)
        self._flush()
        self._await_brokers()
        self._serve(0, lambda _: self.client.close())  # which raises a fatal error again
        if self.transactions is not None:
            # before the last chunk of the journal goes: `salvage` writes the table only for a client that left one
            write_transaction_table(CaseDir(Path(self.settings.case_dir)), self.settings)
        self.converter.finish()
        from ackproof.rundir.parts import mark_end

        mark_end(self.ledger)
        self.counters.stage = ClientState.CLOSED
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
        pace = self.on_demand or (None if settings.rate is None else Pace(settings.rate, time.monotonic()))
        block, rows = self.block, settings.chunk_rows
        seq = 0
        while not self._ending():
            if seq % rows == 0:
                self.journal.extend()
            # write the partition of each of the next records into its row before it is sent
            begin = (seq + settings.first_place) % len(settings.places)
            row = seq - self.journal.current.first_seq
            self.journal.current.matrix[row : row + block, RESULT] = self.round[begin : begin + block]
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
                    pace.add_sent(sent)
                self._serve(0)
            if at < block:
                return
            seq += block

    def _ending(self) -> bool:
        if self.converter.error is not None:
            raise self.converter.error
        gave_up = self.transactions is not None and self.transactions.gave_up
        return self.stop.is_set() or bool(self.reports.fatal) or bool(gave_up)

    def _await_due(self, pace: Pace | _PaceOnDemand, at: int) -> int:
        """Serve delivery reports until records are due. Return the index after the last due record of the current
        block, the `block` records that were encoded together. Return `at` if the producer is to stop first.

        `at`: index of the next record in the block.
        """
        while not self._ending():
            now = time.monotonic()
            due = pace.due(now)
            if due:
                return min(self.block, at + due)
            # librdkafka waits in whole milliseconds: wait at least one, and send all records that are due by then
            self._serve(min(_IDLE_S, max(_TICK_S, pace.wait_s(now))))
        return at

    def _serve(self, timeout_s: float, serve: Callable[[float], object] | None = None) -> None:
        """Serve delivery reports for at most `timeout_s`, by `serve` or the client's `poll`, and write the
        acknowledgements into the journal. A fatal error that the library raises is noted and not raised. Raises any
        other KafkaException or SystemError."""
        try:
            (serve or self.client.poll)(timeout_s)
        except (KafkaException, SystemError) as error:
            if (fatal := find_fatal(error)) is None:
                raise
            self.reports.note_fatal(fatal)
        self.reports.settle()

    def _flush(self) -> None:
        """Wait for the last delivery reports, at most the delivery time-out and 1 s, after a fatal error not at all.
        Records without a report are then purged, and their outcome stays open. Then wait for statistics that decide
        outcomes, at most `_DECIDE_S`."""
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

    def _await_brokers(self) -> None:
        """Wait, with acks=0, until the brokers have read all that was sent, or read nothing for `_STANDSTILL_S` s.
        Write the number of unread bytes, if any, as event `unread`. Does nothing after a fatal error."""
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


def find_fatal(error: Exception) -> KafkaError | None:
    """Return the fatal error of the client in an exception; None if the exception is another one.

    The library raises the fatal error while it serves delivery reports. Python then turns it into the cause of a
    SystemError. The delivery report that was served stays without an outcome.
    """
    found = error.__cause__ if isinstance(error, SystemError) else error
    if isinstance(found, KafkaException) and found.args[0].fatal():
        return found.args[0]  # type: ignore[no-any-return]
    return None


_ESTABLISHED: Final = "01"
_TABLES: Final = ("tcp", "tcp6")
_MAPPED: Final = "0000000000000000FFFF0000"
"""Prefix of an IPv4 address in the table of IPv6 sockets (::ffff:a.b.c.d). JVMs use sockets for both families."""


def unread_bytes(net: Path = Path("/proc/net"), own: frozenset[int] | None = None) -> int:
    """Return how many of the bytes that this process sent over TCP the other ends have not read yet.

    Bytes that the other end's kernel has not acknowledged count. If the other end is on this machine, `/proc/net` shows
    its socket too, and the bytes that its process has not read from there are added. `own`: inodes of the sockets to
    look at; None: this process's.

    With acks=0 a record counts as acknowledged once it is in a socket. A client may close while a broker has still to
    read records and to answer an earlier request, such as one for metadata. When that answer arrives, the kernel resets
    the connection, and the records that the broker has not read are gone, although nothing was broken. Applications
    that just exit lose such records too; the harness must not, or losses at acks=0 would partly be its own.
    """
    mine = read_socket_inodes(os.getpid()) if own is None else own
    sockets = {ends: counts for table in _TABLES for ends, counts in _sockets(net / table)}
    total = 0
    for (local, remote), (unsent, _, inode) in sockets.items():
        if inode in mine:
            _, unread_by_peer, _ = sockets.get((remote, local), (0, 0, 0))
            total += unsent + unread_by_peer
    return total


def _sockets(table: Path) -> Iterator[tuple[tuple[str, str], tuple[int, int, int]]]:
    """Yield each established TCP connection in a table of `/proc/net`: (local, remote address), (bytes not
    acknowledged, bytes not read, inode). Nothing for a missing table."""
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return  # a machine without this family
    for line in lines:
        words = line.split()
        if len(words) > 9 and words[3] == _ESTABLISHED:
            unsent, _, unread = words[4].partition(":")
            local, remote = (address.removeprefix(_MAPPED) for address in words[1:3])
            yield (local, remote), (int(unsent, 16), int(unread, 16), int(words[9]))


def main(arguments: list[str]) -> int:
    """Run a producer; the one argument is its settings file. Return the exit status."""
    path = Path(arguments[0])
    # reports make no reference cycles; a search for cycles among 100,000 messages would delay acknowledgements
    gc.disable()
    return ProducerProcess(ProducerSettings.read(path), path.parent).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
