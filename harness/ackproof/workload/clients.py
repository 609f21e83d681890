"""The parent's side of the load: client processes started, watched, counted, stopped, killed.

Ids are `p<n>` for producers (n is the producer's number in the ledger), `r<n>` for live readers, `f<n>` for final
readers. A producer whose client met a fatal error ends, and the next free number takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from ackproof.base.errors import ClientDied, WaitTimeout
from ackproof.base.processes import ClientProcess, RunTag
from ackproof.base.wait import wait_until
from ackproof.experiment.spec import TopicSpec, WorkloadSpec
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import Client
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import ClientDied as ClientDiedEvent
from ackproof.rundir.timeline import ClientEnded, ClientReset, ClientStarted, Happening, Timeline
from ackproof.workload.config import delivery_timeout_s, producer_config, reader_config, verify
from ackproof.workload.counters import State
from ackproof.workload.handles import Handle, Launcher, Shared
from ackproof.workload.journal import CHUNK_ROWS
from ackproof.workload.launch import Outfit, Outfitter
from ackproof.workload.salvage import Salvaged, salvage
from ackproof.workload.settings import EXIT_CLEAN, EXIT_RESET

_WATCH_EVERY_S: Final = 0.02
_MARGIN_S: Final = 15.0
"""What a client may take to close and to write its last parts, beyond its own bounds."""
_MOST_RESETS: Final = 100


class Workload:
    """Producers and live readers of one run. Safe to use from several threads.

    `topics` must exist on the cluster before `start`. `timeline` receives the clients' events. `seed` turns the
    round of places, so that producers of different runs do not begin at the same one. `hidden`: settings of
    librdkafka that let clients in, and are written nowhere.
    """

    def __init__(
        self,
        spec: WorkloadSpec,
        topics: Mapping[str, TopicSpec],
        bootstrap: str,
        case_dir: CaseDir,
        clock: RunClock,
        tag: RunTag,
        *,
        seed: int = 0,
        hidden: Mapping[str, str] | None = None,
        timeline: Timeline | None = None,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        self.spec = spec
        self.bootstrap = bootstrap
        self.run = case_dir
        self.clock = clock
        self.tag = tag
        written = spec.producers.topics or tuple(topics)
        self.places = tuple(
            TopicPartition(name, number) for name in topics for number in range(topics[name].partitions)
        )
        self._outfitter = Outfitter(
            spec=spec,
            bootstrap=bootstrap,
            run_id=tag.run_id,
            case_dir=str(case_dir.path.absolute()),
            places=self.places,
            written=tuple(place for place in self.places if place.topic in written),
            origin_ns=clock.origin_ns,
            chunk_rows=chunk_rows,
            seed=seed,
        )
        self._timeline = timeline
        self._hidden = dict(hidden or {})
        self._launcher = Launcher(case_dir, tag, self._hidden)
        self._shared = Shared()
        self._watch_stop = threading.Event()
        self._watcher: threading.Thread | None = None

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float = 30.0) -> None:
        """Start all clients and wait until each has its client library running.

        Raises `BadInput` for settings of librdkafka that it refuses or that are ours, `ClientDied` with the client's
        last output, `WaitTimeout`.
        """
        readers = self.spec.consumers
        verify(
            producer_config(self.spec.producers, self.bootstrap, "p0") | self._hidden,
            reader_config(readers.config, readers.isolation, self.bootstrap, "r0") | self._hidden
            if readers.live
            else None,
        )
        for ledger in (self.run.produced, self.run.consumed):
            ledger.mkdir(parents=True, exist_ok=True)
        with self._shared.lock:
            for _ in range(self.spec.consumers.live):
                self._start_reader()
            for _ in range(self.spec.producers.count):
                self._start_producer()
        self._watcher = threading.Thread(target=self._watch, name="workload", daemon=True)
        self._watcher.start()
        wait_until(self._all_ready, what="all clients to be ready", timeout_s=timeout_s, state=self._states)

    def stop(self) -> None:
        """Stop producers, then readers, in good order; bounded by the delivery time-out.

        Returns when all are gone. One that does not come to its end in time is killed and its journal salvaged: it
        leaves no `END`. Raises `ClientDied` if a client had ended by itself.
        """
        with self._shared.lock:
            self._shared.stopping = True
        flush_s = delivery_timeout_s(producer_config(self.spec.producers, "", ""))
        self._stop_all("producer", flush_s + _MARGIN_S)
        self._stop_all("reader", _MARGIN_S)
        self._end_watch()
        self.check()

    def abort(self) -> Salvaged:
        """Kill what still runs and turn what is left into Parquet. For the end of a run that failed."""
        with self._shared.lock:
            self._shared.stopping = True
            running = [handle for handle in self._handles() if handle.status is None]
            for handle in running:
                handle.killed = True
                handle.child.kill()
                self._note_end(handle)
        self._end_watch()
        return self.salvage()

    def kill(self, client_id: str) -> int | None:
        """SIGKILL one client and salvage what it left; it does not come back. Raises KeyError for an unknown id.

        Returns how many attempts of a producer were left without an outcome, None for a reader.
        """
        with self._shared.lock:
            handle = self._shared.handles[client_id]
            handle.killed = True
            handle.child.kill()
            self._note_end(handle)
            # what could not be salvaged keeps the ledger incomplete, and so does a client that would not close
            if not salvage(self.run, client_id).refused and not handle.expected:
                handle.client = handle.client.model_copy(update={"killed": True})
        if handle.client.kind != "producer":
            return None
        counters = handle.counters
        return max(0, counters.sent - counters.total() - counters.failed - counters.indeterminate)

    def running(self) -> dict[str, ClientProcess]:
        """The clients that run, by id, in order of their start."""
        return {
            handle.client.id: ClientProcess(handle.client.id, handle.child.pid, handle.child.started)
            for handle in self._handles()
            if handle.status is None
        }

    def signal(self, client_id: str, number: int) -> None:
        """Send a client a signal, unless it has ended. Raises KeyError for an unknown id."""
        with self._shared.lock:
            self._shared.handles[client_id].child.signal(number)

    def replace(self, client_id: str) -> str:
        """Start another client in the place of one that is gone. Its id. Raises KeyError for an unknown id."""
        with self._shared.lock:
            gone = self._shared.handles[client_id]
            is_producer = gone.client.kind == "producer"
            other = self._start_producer(client_id) if is_producer else self._start_reader(client_id)
            return other.client.id

    def take_over(self, client_id: str) -> str:
        """Start another producer with the transactional id of one that goes on, and that is fenced by it.

        Its id. Raises KeyError for an unknown id.
        """
        with self._shared.lock:
            self._shared.handles[client_id].succeeded = True
            return self._start_producer(client_id).client.id

    def transactional_id(self, client_id: str) -> str:
        """The transactional id of a producer, '' if it has none. Raises KeyError for an unknown id."""
        with self._shared.lock:
            return self._outfitter.transactional_id(self._shared.slots[client_id])

    def fenced(self, client_id: str) -> str:
        """With which words a producer said that it was fenced, '' as long as it did not. Raises KeyError."""
        with self._shared.lock:
            return self._shared.handles[client_id].fenced

    def successor(self, client_id: str) -> str | None:
        """Who is in a client's place now: itself, or whoever took the place of whoever took it.

        None while a fault has killed that one and nobody has come yet. Raises KeyError for an unknown id.
        """
        with self._shared.lock:
            while (later := self._shared.successors.get(client_id)) is not None:
                client_id = later
            handle = self._shared.handles[client_id]
            return None if handle.killed and handle.status is not None else client_id

    def at_work(self, client_id: str) -> bool:
        """Whether a client has sent or read something, or has come to its good end."""
        with self._shared.lock:
            handle = self._shared.handles[client_id]
        return (
            handle.counters.sent > 0 or handle.counters.total() > 0 or handle.counters.state >= State.STOPPING
        )

    def salvage(self) -> Salvaged:
        """Turn journals of ended clients into Parquet. Nothing to do after a `stop` in good order."""
        return salvage(self.run)

    def check(self) -> None:
        """Raise `ClientDied` if a client has ended by itself. It is noticed within 20 ms."""
        failure = self._shared.failure
        if failure:
            raise ClientDied(failure)

    # -- what it did so far --------------------------------------------------------------------------------------

    @property
    def clients(self) -> tuple[Client, ...]:
        """Every client there has been, in order of their start."""
        with self._shared.lock:
            return tuple(handle.client for handle in self._shared.handles.values())

    @property
    def readers(self) -> int:
        """How many live readers there have been: the next free number."""
        return self._shared.next_reader

    def acked(self, topic: str | None = None, partition: int | None = None) -> int:
        """Records acknowledged so far: in all, of a topic, or of a partition. At most 50 ms behind."""
        return self._count("producer", topic, partition)

    def read(self, topic: str | None = None, partition: int | None = None) -> int:
        """Records handed to live readers so far, each reader counted."""
        return self._count("reader", topic, partition)

    def done(self, client_id: str) -> int:
        """Records acknowledged to a producer, or handed to a reader, so far. Raises KeyError for an unknown id."""
        with self._shared.lock:
            return self._shared.handles[client_id].counters.total()

    def sent(self) -> int:
        """Produce calls so far."""
        return sum(handle.counters.sent for handle in self._handles("producer"))

    def failed(self) -> int:
        """Attempts known to have failed so far."""
        return sum(handle.counters.failed for handle in self._handles("producer"))

    def indeterminate(self) -> int:
        """Attempts whose report leaves it open, so far; those still without a report are not in it."""
        return sum(handle.counters.indeterminate for handle in self._handles("producer"))

    def _count(self, kind: str, topic: str | None, partition: int | None) -> int:
        total = 0
        for handle in self._handles(kind):
            if topic is None:
                total += handle.counters.total()
                continue
            for place, count in zip(handle.places, handle.counters.counts, strict=True):
                if place.topic == topic and partition in (None, place.partition):
                    total += count
        return total

    def _handles(self, kind: str | None = None) -> list[Handle]:
        with self._shared.lock:
            return [handle for handle in self._shared.handles.values() if kind in (None, handle.client.kind)]

    # -- starting ------------------------------------------------------------------------------------------------

    def _start_producer(self, after: str | None = None) -> Handle:
        """Start a producer, in the place of the one with the id `after` if there was one."""
        number = self._shared.next_producer
        self._shared.next_producer += 1
        slot = number if after is None else self._shared.slots[after]
        handle = self._launch(self._outfitter.producer(number, slot))
        self._shared.slots[handle.client.id] = slot
        if after is not None:
            self._shared.successors[after] = handle.client.id
        return handle

    def _start_reader(self, after: str | None = None) -> Handle:
        """Start a reader, in the place of the one with the id `after` if there was one."""
        number = self._shared.next_reader
        self._shared.next_reader += 1
        handle = self._launch(self._outfitter.reader(number))
        if after is not None:
            self._shared.successors[after] = handle.client.id
        return handle

    def _launch(self, outfit: Outfit) -> Handle:
        handle = self._launcher.start(outfit.client, outfit.module, outfit.places, outfit.write)
        name = outfit.client.id
        self._shared.handles[name] = handle
        self._event(ClientStarted(pid=handle.child.pid), name)
        return handle

    def _all_ready(self) -> bool:
        self.check()
        return all(handle.counters.state >= State.READY for handle in self._handles())

    def _states(self) -> str:
        return ", ".join(f"{handle.client.id} {handle.counters.state.name}" for handle in self._handles())

    # -- watching ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._watch_stop.wait(_WATCH_EVERY_S):
            self._look()

    def _look(self) -> None:
        with self._shared.lock:
            for handle in list(self._shared.handles.values()):
                if handle.status is None:
                    self._tell(handle)
                    if handle.child.poll() is not None:
                        self._note_end(handle)

    def _tell(self, handle: Handle) -> None:
        """Merge what a client wrote down into the timeline."""
        for line in handle.inbox.read():
            if isinstance(line.what, ClientReset) and handle.succeeded:
                handle.fenced = line.what.reason
            if self._timeline is not None:
                self._timeline.add(
                    line.what,
                    client=handle.client.id,
                    topic=line.topic or None,
                    partition=None if line.partition < 0 else line.partition,
                    t_ns=line.t_ns,
                )

    def _note_end(self, handle: Handle) -> None:
        """A client is gone: say so, and bring a producer that asked for it back as a new one. Under the lock."""
        status = handle.child.poll()
        if status is None or handle.status is not None:
            return
        handle.status = status
        handle.release()
        self._tell(handle)
        name = handle.client.id
        if status == EXIT_RESET and self._shared.resets < _MOST_RESETS:
            self._shared.resets += 1
            self._event(ClientEnded(status=status), name)
            if not self._shared.stopping and not handle.succeeded:
                self._start_producer(name)
        elif handle.killed or (handle.expected and status == EXIT_CLEAN):
            self._event(ClientEnded(status=status), name)
        else:
            tail = handle.tail()
            self._event(ClientDiedEvent(status=status, output=tail), name)
            self._shared.failure = self._shared.failure or (
                f"{handle.client.kind} {name} ended by itself with status {status}"
                + (f"; its last output:\n{tail}" if tail else "")
            )

    def _event(self, what: Happening, client: str) -> None:
        if self._timeline is not None:
            self._timeline.add(what, client=client)

    def _end_watch(self) -> None:
        self._watch_stop.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None

    def _stop_all(self, kind: str, timeout_s: float) -> None:
        handles = [handle for handle in self._handles(kind) if handle.status is None]
        with self._shared.lock:
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
                salvage(self.run, handle.client.id)
