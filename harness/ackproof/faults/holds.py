"""What faults want of nodes and partitions, so that faults which overlap on one heal as if each were alone.

Two faults may want the same node dead at the same time (a kill during a shutdown, a bounce that is overtaken by a
kill): then the last of them to heal starts it, and the others wait for that before they call it healed. Whoever ends
or freezes a process takes hold of its node before he does, and lets go when he heals. Of two reassignments of one
partition Kafka carries out the later; the earlier is through when that is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Flag
from typing import Final

from ackproof.base.wait import wait_until
from ackproof.experiment.fault import Grip
from ackproof.rundir.partition import TopicPartition

FREE_WITHIN_S: Final = 3600.0
"""The other fault has a time of its own to heal; this is beyond any."""
LOOK_EVERY_S: Final = 0.01
BACK_WITHIN_S: Final = 60.0
"""So long after it was let go a node may still be on its way back: it starts, registers, is unfenced."""


class Holds:
    """Who holds what, over all faults of one run. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over: set[int] = set()
        self._nodes: dict[int, threading.RLock] = {}
        self._grips: dict[int, dict[int, Grip]] = {}
        self._changes: dict[int, int] = {}
        self._changed_at: dict[int, float] = {}
        self._jumps: dict[int, dict[int, float]] = {}
        self._assigned: dict[TopicPartition, tuple[int, tuple[int, ...]]] = {}

    @contextmanager
    def acting_on(self, node: int) -> Iterator[None]:
        """One fault at a time looks at this node and acts on what it saw."""
        with self._lock:
            lock = self._nodes.setdefault(node, threading.RLock())
        with lock:
            yield

    def take(self, node: int, fault: int, grip: Grip) -> None:
        """This fault wants the node like that from now on."""
        with self._lock:
            self._grips.setdefault(node, {})[fault] = grip
            self._note_change(node)

    def release(self, node: int, fault: int) -> None:
        """This fault has no wish any more."""
        with self._lock:
            if self._grips.get(node, {}).pop(fault, None) is not None:
                self._note_change(node)

    def drop(self, fault: int) -> None:
        """This fault's life has ended, well or badly: it wants no node any more."""
        for node in list(self._grips):
            self.release(node, fault)
        with self._lock:
            self._over.add(fault)

    def is_over(self, fault: int) -> bool:
        """Whether this fault's life has ended, well or badly."""
        with self._lock:
            return fault in self._over

    def _note_change(self, node: int) -> None:
        self._changes[node] = self._changes.get(node, 0) + 1
        self._changed_at[node] = time.monotonic()

    def others(self, node: int, fault: int, *grips: Grip) -> tuple[int, ...]:
        """The numbers of the other faults that hold this node (in one of these ways; in any by default)."""
        with self._lock:
            held = self._grips.get(node, {})
            return tuple(
                sorted(one for one, grip in held.items() if one != fault and grip in (grips or Grip))
            )

    def changes(self, node: int) -> int:
        """How often a hold on this node was taken or released: equal numbers, nobody touched it in between."""
        with self._lock:
            return self._changes.get(node, 0)

    def returns(self, node: int) -> bool:
        """Whether a fault let this node go a moment ago, so that it need not answer yet."""
        with self._lock:
            at = self._changed_at.get(node)
            return at is not None and time.monotonic() - at < BACK_WITHIN_S

    def jump(self, node: int, fault: int, by: float) -> None:
        """This fault wants the node's clock so many seconds ahead of where the others have it; 0: no more."""
        with self._lock:
            self._jumps.setdefault(node, {})[fault] = by

    def jumped(self, node: int) -> float:
        """How far all faults together have set the node's clock off, in seconds."""
        with self._lock:
            return sum(self._jumps.get(node, {}).values())

    def assign(self, place: TopicPartition, fault: int, replicas: tuple[int, ...]) -> None:
        """This fault has asked for these replicas of the partition."""
        with self._lock:
            self._assigned[place] = fault, replicas

    def assigned(self, place: TopicPartition) -> tuple[int, tuple[int, ...]] | None:
        """Which fault was the last to ask for replicas of the partition, and which; None: nobody has."""
        with self._lock:
            return self._assigned.get(place)

    def await_free(self, node: int, fault: int, stop: Flag) -> None:
        """Wait until no other fault holds this node. Raises `Interrupted` when `stop` is set."""
        wait_until(
            lambda: not self.others(node, fault),
            what=f"the other faults on node {node} to heal",
            timeout_s=FREE_WITHIN_S,
            interval_s=LOOK_EVERY_S,
            stop=stop,
        )
