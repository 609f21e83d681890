"""What the metadata quorum itself holds, looked at ten times a second by a thread of its own.

With ZooKeeper a partition's state is a znode that the controller and the leader write; brokers hear of it later, and
some never. A ZooKeeper that is dead or paused holds up nobody but this thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final

from ackproof.cluster.protocol import Cluster, PartitionState
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Note, Timeline

PERIOD_S: Final = 0.1
FRESH_S: Final = 0.3
"""An older look says nothing of now."""


class QuorumWatch:
    """Looks from `start` to `stop`; tells the timeline who is the controller, each time it is another broker."""

    def __init__(self, cluster: Cluster, topics: Iterable[str], timeline: Timeline) -> None:
        self._cluster = cluster
        self._topics = tuple(topics)
        self._timeline = timeline
        self._stop = threading.Event()
        self._latest: tuple[float, dict[TopicPartition, PartitionState]] = (float("-inf"), {})
        self._controller: int | None = None
        self._thread = threading.Thread(target=self._run, name="quorum-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End. May be called again."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def latest(self) -> dict[TopicPartition, PartitionState]:
        """The newest look, empty when it is too old. Does not wait."""
        at, states = self._latest
        return states if time.monotonic() - at <= FRESH_S else {}

    def _run(self) -> None:
        try:
            while not self._stop.wait(PERIOD_S):
                self._look()
        except Exception as error:  # noqa: BLE001 — a thread's crash must become a fact of the run, not vanish
            self._timeline.add(Note(note=f"ZooKeeper is watched no more: {error}"))

    def _look(self) -> None:
        began = time.monotonic()
        states = self._cluster.metadata_state(self._topics)
        if states:
            self._latest = (began, states)
        controller = self._cluster.controller()
        if controller is not None and controller != self._controller:
            self._controller = controller
            self._timeline.add(Note(note=f"ZooKeeper: the controller is {controller}"), node=controller)
