"""Base classes of threads that observe a run until they are stopped. If one crashes, the timeline gets a note."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import ClassVar, Final, Generic, TypeVar

from ackproof.cluster.protocol import Cluster
from ackproof.network.wire import Connection
from ackproof.rundir.timeline import Note, Timeline


class Watcher(ABC):
    """Base class of a thread that observes a run from `start` to `stop`. A subclass sets `NAME` and `DOES`, and
    implements `_watch`."""

    NAME: ClassVar[str]
    """Name of the thread, such as `sampler`, as thread dumps show it."""
    DOES: ClassVar[str]
    """What the thread does, for the note of a crash: "sampling ended: …"."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.NAME, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end. May be called again, and before `start`."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @abstractmethod
    def _watch(self) -> None:
        """Observe until `_stop` is set. Any exception becomes a note in the timeline."""

    def _looks(self, period_s: float) -> Iterator[None]:
        """Yield once per period until stopped. After a late period the next one begins at once; missed periods are
        not repeated."""
        due = time.monotonic()
        while not self._stop.is_set():
            yield
            due = max(due + period_s, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 — a thread's crash must become a fact of the run, not vanish
            self._timeline.add(Note(note=f"{self.DOES} ended: {type(error).__name__}: {error}"))


GIVE_UP_AFTER_S: Final = 10.0
"""Time-out of a request in seconds; its connection is then opened again. A broker that was paused for a shorter
time still answers."""

ReplyT = TypeVar("ReplyT")


class BrokerPoller(Watcher, Generic[ReplyT]):
    """Base class of a watcher whose `_watch` asks all brokers and the metadata quorum in parallel. It has a connection
    to each broker (`_links`), and a pool with a thread for each broker and one for the quorum. `stop` ends them.

    A subclass sends a broker no further request while `_asked` has one: until it answers or the request times out.
    """

    def __init__(self, cluster: Cluster, topics: Iterable[str], timeline: Timeline) -> None:
        super().__init__(timeline)
        self._cluster = cluster
        self._topics = tuple(topics)
        self._links = {
            broker: Connection(
                address, timeout_s=GIVE_UP_AFTER_S, access=cluster.access, connect_s=cluster.access.connect_s
            )
            for broker, address in cluster.client_addresses().items()
        }
        self._pool = ThreadPoolExecutor(len(self._links) + 1, thread_name_prefix=self.NAME)
        self._asked: dict[int, Future[ReplyT]] = {}
        """Unanswered requests by broker id (0: the quorum), which a subclass adds and removes."""

    def stop(self) -> None:
        super().stop()
        while wait(self._asked.values(), timeout=0.02).not_done:
            for link in self._links.values():
                link.interrupt()
        self._pool.shutdown()
        for link in self._links.values():
            link.close()
