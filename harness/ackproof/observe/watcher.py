"""What watches a run: a thread that looks until it is stopped, and whose crash is a fact of the run."""

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
    """Watches from `start` to `stop`."""

    NAME: ClassVar[str]
    """Of its thread."""
    DOES: ClassVar[str]
    """For the note of the timeline, if it crashes: "sampling ended: …"."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.NAME, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, and close what it writes. May be called again, and before `start`."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @abstractmethod
    def _watch(self) -> None:
        """Look until `_stop` is set. Whatever it raises is noted in the timeline."""

    def _looks(self, period_s: float) -> Iterator[None]:
        """One each period until it is stopped. After one that took too long the next is due at once, but none is made
        up for."""
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
"""A broker that owes an answer for this long gets a new connection. A paused one answers when it goes on."""

ReplyT = TypeVar("ReplyT")


class BrokerPoller(Watcher, Generic[ReplyT]):
    """Asks the brokers, and the metadata quorum, of some topics. No broker is asked again before it has answered."""

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
        """What is under way, by whom it was asked of."""

    def stop(self) -> None:
        super().stop()
        while wait(self._asked.values(), timeout=0.02).not_done:
            for link in self._links.values():
                link.interrupt()
        self._pool.shutdown()
        for link in self._links.values():
            link.close()
