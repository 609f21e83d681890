"""The load of a run: starts, watches, counts, stops and kills the client processes.

Ids are `p<n>` for producers (n is the producer's number in the ledger), `r<n>` for live readers, `f<n>` for final
readers. A producer that met a fatal error of its library ends, and a producer with the next free number replaces it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Final

from ackproof.base.errors import ClientDied, WaitTimeout
from ackproof.base.processes import ClientProcess, RunTag, end_all, find_client, find_members, signal_all
from ackproof.base.wait import wait_until
from ackproof.clients.channel import SEND, ClientState, SharedCounters
from ackproof.clients.contract import (
    EXIT_CLEAN,
    EXIT_RESET,
    WHOLE,
    ProducerSettings,
    ReaderSettings,
    Rotation,
    client_adapter,
)
from ackproof.clients.conversion import JournalConverter
from ackproof.clients.launch import Handle, start_client, verify_config
from ackproof.clients.settings import SettingsMaker
from ackproof.experiment.kafka import DEFAULT, KafkaBuild
from ackproof.experiment.spec import TopicSpec, WorkloadSpec
from ackproof.rundir.documents import Client
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import ClientDied as ClientDiedEvent
from ackproof.rundir.timeline import ClientEnded, ClientStarted, Note, Timeline

_WATCH_EVERY_S: Final = 0.02
_MARGIN_S: Final = 15.0
"""Seconds that a client gets to close and to write its last parts, on top of its own time-outs."""
_MOST_RESETS: Final = 100


class Workload:
    """Starts, watches, counts and ends the producers and live readers of one run. Thread-safe. Methods raise KeyError
    for an unknown client id, except `members` and `signal`, which then find no process.

    `topics` must exist on the cluster before `start`. `timeline` receives the clients' events. `seed` decides at which
    partition producers begin. `hidden`: library settings with secrets, which no file may hold. `readers_tell`: readers
    report from which brokers they fetch. `on_demand`: producers send one record for each partition, then one for each
    `ask_for_record`, until `free`. `kafka`: the cluster's build, which decides the release of Java clients if the
    experiment names none. `rotation`: sizes of ledger parts.
    """

    def __init__(
        self,
        spec: WorkloadSpec,
        topics: Mapping[str, TopicSpec],
        bootstrap: str,
        timeline: Timeline,
        tag: RunTag,
        *,
        seed: int = 0,
        hidden: Mapping[str, str] | None = None,
        readers_tell: bool = False,
        on_demand: bool = False,
        kafka: KafkaBuild = KafkaBuild(DEFAULT),  # noqa: B008 - it is immutable
        rotation: Rotation = WHOLE,
    ) -> None:
        self.spec = spec
        self.bootstrap = bootstrap
        self.run = CaseDir(tag.case_dir)
        self.tag = tag
        written = spec.producers.topics or tuple(topics)
        self.places = tuple(
            TopicPartition(name, number) for name in topics for number in range(topics[name].partitions)
        )
        self.written = tuple(place for place in self.places if place.topic in written)
        self._timeline = timeline
        self._hidden = dict(hidden or {})
        self._maker = SettingsMaker(
            spec=spec,
            places=self.places,
            written=self.written,
            bootstrap=bootstrap,
            tag=tag,
            clock=timeline.clock,
            seed=seed,
            kafka=kafka,
            rotation=rotation,
            readers_tell=readers_tell,
            on_demand=on_demand,
        )
        self._journals = JournalConverter(self.run, self._journalling)
        self._watch_stop = threading.Event()
        self._watcher: threading.Thread | None = None
        # shared by the watching thread and the callers, under the lock
        self._lock = threading.RLock()
        self._by_id: dict[str, Handle] = {}
        self._failure = ""
        self._next_producer = self._next_reader = 0
        self._slots: dict[str, int] = {}
        """Slot by client id. A successor keeps the slot, and with it the transactional id or the readers' group."""
        self._successors: dict[str, str] = {}
        """Id of a client that has ended or was fenced → id of the client that replaces it."""
        self._resets = 0
        self._stopping = False

    def start(self, timeout_s: float = 30.0) -> None:
        """Start all clients and wait until each has its client library running.

        Raises `BadInput` for settings that a library refuses or a program that cannot be started, `ClientDied` with the
        output of a client that ended, `WaitTimeout` after `timeout_s` seconds.
        """
        producers, readers = self.spec.producers, self.spec.consumers
        verify_config(producers.client.library, "producer", self._maker.producer_config("p0"), self._hidden)
        if readers.live:
            verify_config(readers.client.library, "consumer", self._maker.reader_config(0), self._hidden)
        for ledger in (self.run.produced, self.run.consumed):
            ledger.mkdir(parents=True, exist_ok=True)
        self._journals.start()
        with self._lock:
            for _ in range(readers.live):
                self._start_reader()
            for _ in range(producers.count):
                self._start_producer()
        self._watcher = threading.Thread(target=self._watch, name="workload", daemon=True)
        self._watcher.start()

        def ready() -> bool:
            self.check()
            return all(handle.counters.state >= ClientState.READY for handle in self._handles())

        wait_until(
            ready,
            what="all clients to be ready",
            timeout_s=timeout_s,
            state=lambda: ", ".join(f"{one.client.id} {one.counters.state.name}" for one in self._handles()),
        )

    def stop(self) -> None:
        """Stop producers, then readers, and return when all have ended. Producers get the delivery time-out and 15 s to
        close, readers 15 s.

        A client that takes longer is killed. Its journal is still converted, but its ledger lacks `_END`, the mark of a
        complete one. Raises `ClientDied` if a client had ended by itself, and the error of the converting thread.
        """
        with self._lock:
            self._stopping = True
        adapter = client_adapter(self.spec.producers.client.library)
        flush_s = adapter.delivery_timeout_s(self._maker.producer_config(""))
        self._stop_all("producer", flush_s + _MARGIN_S)
        self._stop_all("reader", _MARGIN_S)
        self._end_watch()
        self.check()

    def abort(self) -> None:
        """Kill all running clients and convert the rest of all journals into ledgers, at the end of a failed run."""
        with self._lock:
            self._stopping = True
            for handle in [handle for handle in self._handles() if handle.status is None]:
                handle.killed = True
                handle.child.kill()
                self._note_end(handle)
        self._end_watch()
        self._journals.salvage()

    def kill(self, client_id: str) -> int | None:
        """Send SIGKILL to all processes of a client and convert its journal into the ledger. Nothing replaces it.
        Return how many attempts of a producer have no delivery report; None for a reader. Raises `WaitTimeout` if the
        client is not gone after 10 s."""
        with self._lock:
            handle = self._by_id[client_id]
            handle.killed = True
            end_all(find_members(self.tag.run_id, client_id))
            handle.child.kill()
            self._note_end(handle)
            # a journal that cannot be salvaged leaves the ledger incomplete; so does a client that does not close
            _, refused = self._journals.salvage(client_id)
            if not refused and not handle.expected:
                handle.client = handle.client.model_copy(update={"killed": True})
        if handle.client.kind != "producer":
            return None
        counters = handle.counters
        return max(0, counters.sent - counters.total() - counters.failed - counters.indeterminate)

    def running(self) -> dict[str, ClientProcess]:
        """Return the clients that run, by id, in order of their start."""
        return {
            handle.client.id: ClientProcess(handle.client.id, handle.child.pid, handle.child.started)
            for handle in self._handles()
            if handle.status is None
        }

    def members(self, client_id: str) -> list[ClientProcess]:
        """Return the living processes of a client: its own, and those that a user's program started; [] if none."""
        return find_client(self.tag.run_id, client_id)

    def signal(self, client_id: str, number: int) -> None:
        """Send a signal to all processes of a client that still run."""
        signal_all(find_members(self.tag.run_id, client_id), number)

    def replace(self, client_id: str) -> str:
        """Start a client in place of one that has ended, also if that was replaced before. Return the new one's id."""
        return self.start_another(self._by_id[client_id].client.kind, client_id)

    def start_another(self, kind: str, after: str | None = None) -> str:
        """Start another client of a kind ("producer" or "reader"). Return its id. `after`: id of the client whose
        transactional id, or group of a reader that starts at committed offsets, it takes over; None: a new one."""
        with self._lock:
            return (self._start_producer if kind == "producer" else self._start_reader)(after).client.id

    def take_over(self, client_id: str) -> str:
        """Start a producer with the transactional id of a running one, which is thereby fenced. Return the id of the
        new producer."""
        with self._lock:
            self._by_id[client_id].succeeded = True
            return self._start_producer(client_id).client.id

    def transactional_id(self, client_id: str) -> str:
        """Return the transactional id of a producer, '' if it has none."""
        with self._lock:
            slot = self._slots[client_id]
        return f"ackproof-{self.tag.run_id}-{slot}" if self.spec.producers.transaction_size else ""

    def fenced(self, client_id: str) -> str:
        """Return the library's message after this producer was fenced; '' if it was not, or did not report it yet."""
        with self._lock:
            return self._by_id[client_id].fenced

    def successor(self, client_id: str) -> str | None:
        """Return the id of the last client in this one's chain of replacements; its own id if it was not replaced.
        None if that last client was killed."""
        with self._lock:
            while (later := self._successors.get(client_id)) is not None:
                client_id = later
            handle = self._by_id[client_id]
            return None if handle.killed and handle.status is not None else client_id

    def at_work(self, client_id: str) -> bool:
        """Return True if a client has sent or read at least one record, or is closing already."""
        counters = self.counters(client_id)
        return counters.sent > 0 or counters.total() > 0 or counters.state >= ClientState.STOPPING

    def ask_for_record(self, client_id: str) -> None:
        """Ask a producer that sends on demand for one more record. Raises OSError if the producer has ended."""
        with self._lock:
            os.write(self._by_id[client_id].control, SEND)

    def free(self) -> None:
        """Let all on-demand producers send at their rate from now on."""
        with self._lock:
            for handle in self._handles("producer"):
                handle.free()

    def check(self) -> None:
        """Raise `ClientDied` if a client has ended by itself; a thread looks for that every 20 ms. Raise the error of
        the thread that converts journals, if it failed."""
        if self._failure:
            raise ClientDied(self._failure)
        if self._journals.error is not None:
            raise self._journals.error

    def assigned(self, kind: str) -> tuple[TopicPartition, ...]:
        """Return the partitions that clients of a kind ("producer" or "reader") write or read. They are the same for
        all clients of the kind: by the contract (README.md) a reader assigns itself every partition, in no group."""
        return self.written if kind == "producer" else self.places

    def end_of(self, client_id: str) -> tuple[int, int]:
        """Return a client's start (CLOCK_MONOTONIC ns) and exit status (negative: a signal ended it; 0: it runs)."""
        handle = self._by_id[client_id]
        return handle.started_ns, handle.status or 0

    @property
    def clients(self) -> tuple[Client, ...]:
        """Every client that was started, in order of start."""
        with self._lock:
            return tuple(handle.client for handle in self._by_id.values())

    @property
    def readers(self) -> int:
        """Number of live readers started so far, which is the next free reader number."""
        return self._next_reader

    def acked(self, topic: str | None = None, partition: int | None = None) -> int:
        """Return the number of records acknowledged so far: of a partition, of a topic (`partition` None), or
        of all topics (both None)."""
        return sum(handle.count(topic, partition) for handle in self._handles("producer"))

    def read(self, topic: str | None = None, partition: int | None = None) -> int:
        """Return the number of records read so far, as a sum over all live readers: of a partition, of a topic
        (`partition` None), or of all topics (both None)."""
        return sum(handle.count(topic, partition) for handle in self._handles("reader"))

    def sent(self) -> int:
        """Return the number of records that producers have given to their library so far, including refused records."""
        return sum(handle.counters.sent for handle in self._handles("producer"))

    def counters(self, client_id: str) -> SharedCounters:
        """Return a client's counters, which the client updates while it runs."""
        with self._lock:
            return self._by_id[client_id].counters

    def _handles(self, kind: str | None = None) -> list[Handle]:
        with self._lock:
            return [handle for handle in self._by_id.values() if kind in (None, handle.client.kind)]

    def _journalling(self) -> list[ProducerSettings | ReaderSettings]:
        """Return the settings of the running clients that write no ledger themselves: the harness writes it from their
        journals."""
        return [
            handle.settings
            for handle in self._handles()
            if handle.status is None and not client_adapter(handle.settings.library).writes_ledger()
        ]

    def _start_producer(self, after: str | None = None) -> Handle:
        number = self._next_producer
        self._next_producer += 1
        slot = number if after is None else self._slots[after]
        name = f"p{number}"
        self._slots[name] = slot
        return self._launch(self._maker.producer(number, self.transactional_id(name)), after)

    def _start_reader(self, after: str | None = None) -> Handle:
        number, name = self._next_reader, f"r{self._next_reader}"
        self._next_reader += 1
        slot = self._slots[name] = number if after is None else self._slots[after]
        return self._launch(self._maker.reader(number, slot), after)

    def _launch(self, settings: ProducerSettings | ReaderSettings, after: str | None) -> Handle:
        handle = self._by_id[settings.client] = start_client(settings, self.tag, self._hidden)
        if after is not None:
            self._successors[after] = settings.client
        self._timeline.add(ClientStarted(pid=handle.child.pid), client=settings.client)
        return handle

    def _watch(self) -> None:
        while not self._watch_stop.wait(_WATCH_EVERY_S):
            with self._lock:
                for handle in [handle for handle in self._by_id.values() if handle.status is None]:
                    handle.copy_events(self._timeline)
                    handle.follow_program()
                    self._note_end(handle)

    def _note_end(self, handle: Handle) -> None:
        """Note the end of a client, if it has ended. A producer that a fatal error of its library ended (`EXIT_RESET`)
        is replaced, unless the load stops or it was fenced. After 100 of these in a run, the next counts as a death; so
        does this exit status of any user's program. The caller holds the lock."""
        status = handle.child.poll()
        if status is None or handle.status is not None:
            return
        handle.end_program(status)
        if status in (EXIT_CLEAN, EXIT_RESET) and not handle.killed and not handle.breach:
            for why in self._journals.close_ledger(handle.settings):
                self._timeline.add(Note(note=why), client=handle.client.id)
        handle.status = status
        handle.release()
        handle.copy_events(self._timeline)
        name = handle.client.id
        if status == EXIT_RESET and handle.translation is None and self._resets < _MOST_RESETS:
            self._resets += 1
            self._timeline.add(ClientEnded(status=status), client=name)
            if not self._stopping and not handle.succeeded:
                self._start_producer(name)
        elif not handle.breach and (handle.killed or (handle.expected and status == EXIT_CLEAN)):
            self._timeline.add(ClientEnded(status=status), client=name)
        else:
            tail = handle.breach or handle.tail()
            self._timeline.add(ClientDiedEvent(status=status, output=tail), client=name)
            self._failure = self._failure or (
                f"{handle.client.kind} {name} ended by itself with status {status}"
                + (f"; its last output:\n{tail}" if tail else "")
            )

    def _end_watch(self) -> None:
        self._watch_stop.set()
        self._journals.finish()
        if self._watcher is not None:
            self._watcher.join()

    def _stop_all(self, kind: str, timeout_s: float) -> None:
        handles = [handle for handle in self._handles(kind) if handle.status is None]
        with self._lock:
            for handle in handles:
                if handle.status is None:
                    handle.ask_to_stop()
        try:
            wait_until(
                lambda: all(handle.status is not None for handle in handles),
                what=f"every {kind} to close",
                timeout_s=timeout_s,
            )
        except WaitTimeout:
            for handle in handles:
                if handle.status is None:
                    self.kill(handle.client.id)
        for handle in handles:
            if handle.status not in (EXIT_CLEAN, EXIT_RESET):
                self._journals.salvage(handle.client.id)
