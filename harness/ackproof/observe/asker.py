"""A watcher that asks all brokers at once, each over a connection of its own by a thread of its own."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, Generic, TypeVar

from ackproof.cluster.protocol import Cluster
from ackproof.cluster.wire import Connection
from ackproof.observe.watcher import Watcher
from ackproof.rundir.timeline import Timeline

GIVE_UP_AFTER_S: Final = 10.0
"""A broker that owes an answer for this long gets a new connection. A paused one answers when it goes on."""

ReplyT = TypeVar("ReplyT")


class Asker(Watcher, Generic[ReplyT]):
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
