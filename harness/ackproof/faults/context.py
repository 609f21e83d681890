"""What an injection acts on (`FaultContext`): the cluster, client and service processes, and claims of faults
on nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import TYPE_CHECKING, Final, Protocol

from ackproof.base.processes import ClientProcess, RunTag
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.case import Case
from ackproof.experiment.fault import Grip
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Timeline

if TYPE_CHECKING:  # a fault is read without any client library
    from ackproof.clients.groups import Groups

FREE_WITHIN_S: Final = 3600.0
"""Maximum seconds to wait for other faults: longer than any of them takes to heal."""
LOOK_EVERY_S: Final = 0.01
BACK_WITHIN_S: Final = 60.0
"""Seconds that a released node may need to start, register and be unfenced."""


class Processes(Protocol):
    """Processes that a run starts: its producers and readers, its group members, or the instances of its service. For
    an unknown id `members` returns none and `signal` does nothing; other methods raise KeyError."""

    def running(self) -> Mapping[str, ClientProcess]:
        """Return the running processes by id, in the order of their start."""

    def members(self, client_id: str) -> Sequence[ClientProcess]:
        """Return all living processes under one id: the process that was started, and those that it started."""

    def kill(self, client_id: str) -> int | None:
        """Send SIGKILL to all processes of this id. Return the number of records that they had sent and whose outcome
        they had not learnt; None if their sends are not counted."""

    def signal(self, client_id: str, number: int) -> None:
        """Send the signal `number` to all processes of this id."""

    def replace(self, client_id: str) -> str:
        """Start a successor of a process that has ended, and return the successor's id. A group member or service
        instance that was replaced already is not replaced again: return its successor."""

    def successor(self, client_id: str) -> str | None:
        """Follow the replacements of this process to the last, and return its id: the given id if there is no
        replacement. Return None if that last process was killed and its replacement has not started yet."""

    def at_work(self, client_id: str) -> bool:
        """Return True if the process is at work. A producer or reader has sent or read a record, or is closing. A group
        member is in its group, or leaves it. A service runs and, if it prints events, has printed one."""


class Clients(Processes, Protocol):
    """Producers and readers of the workload."""

    def take_over(self, client_id: str) -> str:
        """Start a second producer with the transactional id of a running one. Return the new client's id."""

    def transactional_id(self, client_id: str) -> str:
        """Return the transactional id of a producer; '' if it has none."""

    def fenced(self, client_id: str) -> str:
        """Return the producer's own message that it was fenced; '' while it is not."""

    def ask_for_record(self, client_id: str) -> None:
        """Ask a producer that sends on demand for one more record. Raises OSError if the producer has ended."""

    def free(self) -> None:
        """Let producers that send on demand send at their configured rate from now on."""

    def acked(self, topic: str | None = None, partition: int | None = None) -> int:
        """Return the number of records acknowledged so far, at most 50 ms old. It counts one partition, one topic
        (`partition` None), or all topics (both None)."""

    def sent(self) -> int:
        """Return the number of records passed to the producers' libraries so far, at most 50 ms old."""


class Holds:
    """Claims of a run's faults on nodes and partitions. Thread-safe.

    Faults that overlap on a node must heal as if each were alone. For example, if a kill and a shutdown
    overlap, the last one to heal starts the node, and the other waits for that. So a fault that ends or
    freezes a process claims its node first, and releases it when it heals. Shifts of a node's clock are recorded
    too: they add up. So are requested reassignments: of two for one partition, Kafka carries out the later one.
    """

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
        """Context manager that locks this node while one fault reads its state and acts on it. The same thread may lock
        it again."""
        with self._lock:
            lock = self._nodes.setdefault(node, threading.RLock())
        with lock:
            yield

    def take(self, node: int, fault: int, grip: Grip) -> None:
        """Claim the node for the fault with this number. `grip`: state in which the fault keeps the node (down,
        stopped, …); replaces its earlier grip."""
        with self._lock:
            self._grips.setdefault(node, {})[fault] = grip
            self._note_change(node)

    def release(self, node: int, fault: int) -> None:
        with self._lock:
            if self._grips.get(node, {}).pop(fault, None) is not None:
                self._note_change(node)

    def drop(self, fault: int) -> None:
        """Release all claims on nodes of the fault with this number, and note that the fault is over (`over`)."""
        for node in list(self._grips):
            self.release(node, fault)
        with self._lock:
            self._over.add(fault)

    @property
    def over(self) -> frozenset[int]:
        """Numbers of the faults that have ended: those for which `drop` was called."""
        with self._lock:
            return frozenset(self._over)

    def _note_change(self, node: int) -> None:
        self._changes[node] = self._changes.get(node, 0) + 1
        self._changed_at[node] = time.monotonic()

    def others(self, node: int, fault: int, *grips: Grip) -> tuple[int, ...]:
        """Return the numbers of other faults that have claimed this node with one of these grips (default: any
        grip)."""
        with self._lock:
            held = self._grips.get(node, {})
            return tuple(
                sorted(other for other, grip in held.items() if other != fault and grip in (grips or Grip))
            )

    def changes(self, node: int) -> int:
        """Return how often claims on this node have changed. If two calls return the same number, no fault
        claimed or released the node between them."""
        with self._lock:
            return self._changes.get(node, 0)

    def returns(self, node: int) -> bool:
        """Return True if a fault claimed or released this node in the last `BACK_WITHIN_S` seconds, so that
        it may not answer yet."""
        with self._lock:
            at = self._changed_at.get(node)
            return at is not None and time.monotonic() - at < BACK_WITHIN_S

    def jump(self, node: int, fault: int, by: float) -> None:
        """Set the seconds by which this fault shifts the node's clock; 0 ends the shift."""
        with self._lock:
            self._jumps.setdefault(node, {})[fault] = by

    def jumped(self, node: int) -> float:
        """Return the sum of all shifts of the node's clock, in seconds."""
        with self._lock:
            return sum(self._jumps.get(node, {}).values())

    def assign(self, place: TopicPartition, fault: int, replicas: tuple[int, ...]) -> None:
        """Record that this fault requested these replicas of the partition."""
        with self._lock:
            self._assigned[place] = fault, replicas

    def assigned(self, place: TopicPartition) -> tuple[int, tuple[int, ...]] | None:
        """Return the number of the last fault that requested replicas of the partition, and these replicas;
        None if no fault did."""
        with self._lock:
            return self._assigned.get(place)

    def await_free(self, node: int, fault: int, stop: Flag) -> None:
        """Wait until no other fault than `fault` holds this node. Raises `Interrupted` when `stop` is set,
        `WaitTimeout` after `FREE_WITHIN_S` seconds."""
        wait_until(
            lambda: not self.others(node, fault),
            what=f"the other faults on node {node} to heal",
            timeout_s=FREE_WITHIN_S,
            interval_s=LOOK_EVERY_S,
            stop=stop,
        )


@dataclass(frozen=True)
class FaultContext:
    """Everything that an injection may use: cluster, clients, service, claims, timeline. `stop` is set when the run is
    stopped: it ends waits of the fault, except those that a step must complete (`to_the_end`)."""

    cluster: Cluster
    stop: Flag
    case: Case | None = None
    """The case. In the pytest plugin's cluster: that of a `fault` block; None for its other calls, such as `kill`."""
    clients: Clients | None = None
    """The workload's clients; None if there is no workload."""
    service: Processes | None = None
    """The instances of the service under test; None if there is none."""
    holds: Holds = field(default_factory=Holds)
    """Claims on nodes, shared by all faults of the run."""
    tag: RunTag | None = None
    """Marks of the processes that a fault starts; it also names the folder for their output. None: commands fail."""
    timeline: Timeline | None = None
    """Timeline for the progress of a fault of several steps. None: scripts and `reset_offsets` fail."""
    groups: Groups | None = None
    """Members of consumer groups and share groups; None if there are none."""
