"""The base class of injections, what they work with, and their claims on nodes (`Holds`)."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.processes import ClientProcess, RunTag
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import Cluster, Node
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec, Grip
from ackproof.experiment.roles import Role
from ackproof.faults.registry import import_all
from ackproof.network.wire import WireError
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Timeline

SpecT = TypeVar("SpecT", bound=FaultSpec)
T = TypeVar("T")
SEEN_WITHIN_S: Final = 15.0
"""Seconds until every broker must show a change of metadata: normally milliseconds, on a busy machine a second or
two."""
READY_WITHIN_S: Final = 60.0
"""Seconds for a node to become ready. A killed broker may have to wait for the end of its old session
(DUPLICATE_BROKER_REGISTRATION)."""
_MAKERS: Final[dict[type[FaultSpec], InjectionFactory[Any]]] = {}


class Clients(Protocol):
    """Producers and readers of the workload, for faults of clients. Methods raise KeyError for an unknown id."""

    def running(self) -> Mapping[str, ClientProcess]:
        """Return the clients that run, by id, in the order of their start."""

    def kill(self, client_id: str) -> int | None:
        """Send SIGKILL. Return the number of sends without an outcome; None for a reader."""

    def signal(self, client_id: str, number: int) -> None:
        """Send the signal `number` to the client's process, unless that has ended."""

    def replace(self, client_id: str) -> str:
        """Start a new client that replaces an ended one. Return its id."""

    def take_over(self, client_id: str) -> str:
        """Start a second producer with the transactional id of a running one. Return the new client's id."""

    def transactional_id(self, client_id: str) -> str:
        """Return the transactional id of a producer; '' if it has none."""

    def fenced(self, client_id: str) -> str:
        """Return the producer's own message that it was fenced; '' while it is not."""

    def successor(self, client_id: str) -> str | None:
        """Return the id of the client that now stands for this one: its last replacement, or itself if nothing
        replaced it. None while a killed client has no successor.
        """

    def ask_for_record(self, client_id: str) -> None:
        """Ask a producer that sends on demand for one more record. Raises OSError if it has ended."""

    def free(self) -> None:
        """Let producers that send on demand send by themselves from now on."""

    def acked(self, topic: str | None = None, partition: int | None = None) -> int:
        """Return the number of records acknowledged so far, at most 50 ms old: of a partition, of a topic
        (`partition` None), or of all topics (both None)."""

    def sent(self) -> int:
        """Return the number of records passed to the producers' libraries so far, at most 50 ms old."""

    def at_work(self, client_id: str) -> bool:
        """Return True if the client has sent or read something, or is closing already."""


@dataclass(frozen=True)
class FaultContext:
    """Surroundings of a fault: the cluster, the clients, and the flag that ends every wait."""

    cluster: Cluster
    stop: Flag
    case: Case | None = None
    """The case; None outside an experiment (the pytest plugin's cluster)."""
    clients: Clients | None = None
    """The workload's clients; None if there is no workload."""
    holds: Holds | None = None
    """Claims on nodes; None if faults do not overlap and the caller undoes each."""
    tag: RunTag | None = None
    """Marks of the processes that a fault starts; it also names the folder for their output. None: commands fail."""
    timeline: Timeline | None = None
    """Timeline for the progress of a fault of several steps. None: scripts fail."""


@dataclass(frozen=True)
class Aim:
    """The nodes that held each role when the fault was due. A role may have no holder."""

    roles: Mapping[Role, tuple[Node, ...]] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[Role, tuple[int, ...]]:
        return {role: tuple(node.id for node in nodes) for role, nodes in self.roles.items()}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes without duplicates, in the order of the roles."""
        return tuple({node.id: node for nodes in self.roles.values() for node in nodes}.values())


class Injection(ABC, Generic[SpecT]):
    """One fault on resolved nodes. Each step raises `FaultNotConfirmed` if it has no evidence.

    `inject` and `heal` return what they did, in words. `confirm` and `confirm_healed` return what an independent
    witness saw. `heal` may be called after `inject` failed half way: it then repairs whatever is broken.
    """

    def __init__(self, fault: SpecT, aim: Aim, context: FaultContext) -> None:
        self.fault = fault
        self.nodes = aim.nodes
        self.context = context

    @abstractmethod
    def inject(self) -> str:
        """Inject the fault; return what was done."""

    @abstractmethod
    def confirm(self) -> str:
        """Confirm that the fault is in effect; return what the witness saw."""

    def check(self) -> None:
        """Check that the fault still lasts; called often. Raises `FaultNotConfirmed` if it certainly does not."""

    def heal(self) -> str:
        return "nothing to undo"

    @abstractmethod
    def confirm_healed(self) -> str:
        """Confirm that the fault is undone; return what the witness saw."""

    @property
    def killed(self) -> Mapping[str, int] | None:
        """Return client → process id if the fault kills clients; None for other faults."""
        return None

    def put_back(self) -> str:
        """Undo changes of the cluster's metadata; return what was done, '' for nothing. Called if healing
        failed, after all faults are over."""
        return ""

    def wait_for(
        self,
        look: Callable[[], T | None],
        what: str,
        within_s: float = SEEN_WITHIN_S,
        *,
        state: Callable[[], str] | None = None,
        logs: Callable[[], str] | None = None,
        interval_s: float = 0.02,
        to_the_end: bool = False,
    ) -> T:
        """Wait until `look` returns a true value, and return that value. `what` completes "waited for …" in the
        error.

        `state` and `logs` return what was seen last and the last log lines, for the error. `to_the_end`: keep
        waiting while the run is being stopped. Raises `FaultNotConfirmed` after `within_s` seconds, `Interrupted`
        if the run is stopped (unless `to_the_end`).
        """
        stop = None if to_the_end else self.context.stop
        try:
            return wait_until(
                look, what=what, timeout_s=within_s, interval_s=interval_s, state=state, logs=logs, stop=stop
            )
        except WaitTimeout as error:
            raise self.not_confirmed(error) from error

    def wait_for_good(
        self,
        look: Callable[[], T],
        good: Callable[[T], bool],
        what: str,
        within_s: float,
        *,
        interval_s: float = 0.05,
        to_the_end: bool = False,
    ) -> T:
        """Call `look` until `good` is true of its result, and return that result.

        `what` completes "waited for …" in the error. `to_the_end`: keep waiting while the run is being stopped.
        Raises `FaultNotConfirmed` after `within_s` seconds, with the last result in its message, `Interrupted` if
        the run is stopped (unless `to_the_end`).
        """
        last: list[T] = []

        def is_good() -> bool:
            last[:] = [look()]
            return good(last[0])

        self.wait_for(
            is_good,
            what,
            within_s,
            state=lambda: str(last[0]) if last else "nothing",
            interval_s=interval_s,
            to_the_end=to_the_end,
        )
        return last[0]

    def wait_until_accepted(self, ask: Callable[[], bool], what: str, within_s: float) -> None:
        """Repeat a request until `ask` returns True: Kafka refuses it while another change is in progress.

        `ask` sends the request; it may raise `WireError` or `FaultNotConfirmed` for a refusal. `what` completes
        "waited for …" in the error. Raises `FaultNotConfirmed` after `within_s` seconds, with the last refusal in
        its message, and `Interrupted` if the run is stopped.
        """
        said = "nothing"

        def is_accepted() -> bool:
            nonlocal said
            try:
                return ask()
            except (WireError, FaultNotConfirmed) as error:
                said = str(error)
                return False

        self.wait_for(is_accepted, what, within_s, state=lambda: said)

    def await_ready(self, node: Node) -> None:
        """Wait until the node answers and, if it is a broker, is registered and unfenced.

        Raises `FaultNotConfirmed` after `READY_WITHIN_S` seconds.
        """
        try:
            node.await_ready(READY_WITHIN_S)
        except WaitTimeout as error:
            raise self.not_confirmed(error) from error

    def fall_short(self, why: str) -> str:
        """Return `why` (the fault ended early or hit nothing) if a storm drew the fault; else raise
        `FaultNotConfirmed`.

        A storm does not promise that each of its faults takes effect.
        """
        if not self.fault.is_drawn:
            raise self.not_confirmed(why)
        return why

    def not_confirmed(self, why: object) -> FaultNotConfirmed:
        return FaultNotConfirmed(f"{self.fault.kind}: {why}")


InjectionFactory: TypeAlias = Callable[[SpecT, Aim, FaultContext], Injection[Any]]


def injects(*kinds: type[SpecT]) -> Callable[[InjectionFactory[SpecT]], InjectionFactory[SpecT]]:
    """Class decorator: the class injects faults of `kinds`, and of their subclasses without an injection of their
    own."""

    def note(maker: InjectionFactory[SpecT]) -> InjectionFactory[SpecT]:
        _MAKERS.update(dict.fromkeys(kinds, maker))
        return maker

    return note


def find_factory(kind: type[FaultSpec]) -> InjectionFactory[Any] | None:
    """Return the class that injects faults of this kind; None for a storm, which the driver runs."""
    import_all()
    return next((_MAKERS[base] for base in kind.__mro__ if base in _MAKERS), None)


def make_injection(fault: FaultSpec, aim: Aim, context: FaultContext) -> Injection[Any]:
    """Return the injection of `fault` on the nodes of `aim`. Raises `FaultNotConfirmed` if its kind has no injection
    (a storm).
    """
    maker = find_factory(type(fault))
    if maker is None:
        raise FaultNotConfirmed(f"{fault.kind} has no injection")
    return maker(fault, aim, context)


FREE_WITHIN_S: Final = 3600.0
"""Seconds to wait for other faults: longer than any of them takes to heal."""
LOOK_EVERY_S: Final = 0.01
BACK_WITHIN_S: Final = 60.0
"""Seconds that a released node may need to start, register and be unfenced."""


class Holds:
    """Claims of a run's faults on nodes and partitions. Thread-safe.

    Faults that overlap on a node must heal as if each were alone. For example, if a kill and a shutdown overlap, the
    last one to heal starts the node, and the other waits for that. So a fault that ends or freezes a process claims
    its node first, and releases it when it heals. Of two reassignments of one partition, Kafka carries out the later
    one.
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
        """Lock this node while one fault reads its state and acts on it."""
        with self._lock:
            lock = self._nodes.setdefault(node, threading.RLock())
        with lock:
            yield

    def take(self, node: int, fault: int, grip: Grip) -> None:
        """Claim the node for this fault. `grip`: the state in which it keeps the node; replaces an earlier one."""
        with self._lock:
            self._grips.setdefault(node, {})[fault] = grip
            self._note_change(node)

    def release(self, node: int, fault: int) -> None:
        with self._lock:
            if self._grips.get(node, {}).pop(fault, None) is not None:
                self._note_change(node)

    def drop(self, fault: int) -> None:
        """Release all claims of a fault whose life has ended."""
        for node in list(self._grips):
            self.release(node, fault)
        with self._lock:
            self._over.add(fault)

    def is_over(self, fault: int) -> bool:
        with self._lock:
            return fault in self._over

    def _note_change(self, node: int) -> None:
        self._changes[node] = self._changes.get(node, 0) + 1
        self._changed_at[node] = time.monotonic()

    def others(self, node: int, fault: int, *grips: Grip) -> tuple[int, ...]:
        """Return the numbers of other faults that hold this node with one of these grips (default: any)."""
        with self._lock:
            held = self._grips.get(node, {})
            return tuple(
                sorted(other for other, grip in held.items() if other != fault and grip in (grips or Grip))
            )

    def changes(self, node: int) -> int:
        """Return how often claims on this node changed. Equal numbers mean that no fault touched it in between."""
        with self._lock:
            return self._changes.get(node, 0)

    def returns(self, node: int) -> bool:
        """Return True if a fault released this node in the last `BACK_WITHIN_S` seconds, so that it may not answer
        yet."""
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
        """Return the last fault that requested replicas of the partition, and the replicas; None if no fault did."""
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
