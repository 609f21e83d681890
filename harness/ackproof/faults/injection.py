"""Injections: what every fault offers while it is in force, and which nodes it holds."""

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
"""A change of metadata reaches every broker in milliseconds; on a busy machine in a second or two."""
READY_WITHIN_S: Final = 60.0
"""A killed broker may register only after its old session has ended (DUPLICATE_BROKER_REGISTRATION)."""
_MAKERS: Final[dict[type[FaultSpec], InjectionFactory[Any]]] = {}


class Clients(Protocol):
    """Producers and readers of the workload, for faults that hit them. Methods raise KeyError for an unknown id."""

    def running(self) -> Mapping[str, ClientProcess]:
        """Return the clients that run, by id, in the order of their start."""

    def kill(self, client_id: str) -> int | None:
        """Send SIGKILL; return how many sends it left without an outcome (None for a reader)."""

    def signal(self, client_id: str, number: int) -> None:
        """Send a signal, unless the client has ended."""

    def replace(self, client_id: str) -> str:
        """Start another client in the place of one that is gone; return its id."""

    def take_over(self, client_id: str) -> str:
        """Start another producer with the transactional id of one that still runs; return the new client's id."""

    def transactional_id(self, client_id: str) -> str:
        """Return the transactional id of a producer, '' if it has none."""

    def fenced(self, client_id: str) -> str:
        """Return the producer's own words that it was fenced, '' as long as it was not."""

    def successor(self, client_id: str) -> str | None:
        """Return the id of the client that has this one's place now; None while a killed client has no successor."""

    def ask_for_record(self, client_id: str) -> None:
        """Ask a producer that sends on demand for one more record. Raises OSError if it has ended."""

    def free(self) -> None:
        """Let all producers send without being asked."""

    def acked(self, topic: str | None = None, partition: int | None = None) -> int:
        """Return how many records were acknowledged so far; at most 50 ms behind."""

    def sent(self) -> int:
        """Return how many records the producers' libraries were given so far; at most 50 ms behind."""

    def at_work(self, client_id: str) -> bool:
        """Return True if the client has sent or read something, or has finished without error."""


@dataclass(frozen=True)
class FaultContext:
    """Surroundings of a fault: the cluster, the clients, and the flag that ends every wait."""

    cluster: Cluster
    stop: Flag
    case: Case | None = None
    """None where there is no experiment around it (the pytest plugin's cluster)."""
    clients: Clients | None = None
    """None where no workload of ours runs."""
    holds: Holds | None = None
    """None where each fault stands alone, and its caller undoes it."""
    tag: RunTag | None = None
    """Marks the processes that a fault starts, and names the folder for their output."""
    timeline: Timeline | None = None
    """Receives the progress of a fault of several steps."""


@dataclass(frozen=True)
class Aim:
    """Nodes that held each role at the moment when the fault was due; a role may have no holder."""

    roles: Mapping[Role, tuple[Node, ...]] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[Role, tuple[int, ...]]:
        return {role: tuple(node.id for node in nodes) for role, nodes in self.roles.items()}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, once each, in the order of the roles."""
        return tuple({node.id: node for nodes in self.roles.values() for node in nodes}.values())


class Injection(ABC, Generic[SpecT]):
    """One fault against resolved nodes. Each step raises `FaultNotConfirmed` if it has no evidence.

    `inject` and `heal` return what they did, in words; `confirm` and `confirm_healed` return what an independent
    witness saw. `heal` may be called after `inject` failed half way: it mends whatever is broken.
    """

    def __init__(self, fault: SpecT, aim: Aim, context: FaultContext) -> None:
        self.fault = fault
        self.nodes = aim.nodes
        self.context = context

    @abstractmethod
    def inject(self) -> str:
        """Break something."""

    @abstractmethod
    def confirm(self) -> str:
        """See that the fault is in effect."""

    def check(self) -> None:
        """Look, often, whether the fault still lasts. Raises `FaultNotConfirmed` if it is known not to."""

    def heal(self) -> str:
        return "nothing to undo"

    @abstractmethod
    def confirm_healed(self) -> str:
        """See that the fault is undone."""

    @property
    def killed(self) -> Mapping[str, int] | None:
        """Client → process id, for a fault that kills clients; None for others."""
        return None

    def put_back(self) -> str:
        """Undo changes of the cluster's metadata. Called after healing has failed, when all faults are over."""
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
        """Wait until `look` returns something, and return it (`wait_until`). `to_the_end`: also while the run is
        stopped.

        Raises `FaultNotConfirmed` after `within_s` seconds, `Interrupted`.
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
        """Look until a look is `good`, and return it. An error's message ends with the last look."""
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
        """Ask until Kafka accepts: it refuses while another change is in progress. Raises as `wait_for`."""
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
        """Wait until the node answers, registered and unfenced. Raises `FaultNotConfirmed`."""
        try:
            node.await_ready(READY_WITHIN_S)
        except WaitTimeout as error:
            raise self.not_confirmed(error) from error

    def fall_short(self, why: str) -> str:
        """Return why the fault was over early or hit nothing, if a storm drew it; else raise `FaultNotConfirmed`.

        A storm promises nothing of a single fault.
        """
        if not self.fault.is_drawn:
            raise self.not_confirmed(why)
        return why

    def not_confirmed(self, why: object) -> FaultNotConfirmed:
        return FaultNotConfirmed(f"{self.fault.kind}: {why}")


InjectionFactory: TypeAlias = Callable[[SpecT, Aim, FaultContext], Injection[Any]]


def injects(*kinds: type[SpecT]) -> Callable[[InjectionFactory[SpecT]], InjectionFactory[SpecT]]:
    """Class decorator: the class injects faults of `kinds`, and of subclasses without an injection of their own."""

    def note(maker: InjectionFactory[SpecT]) -> InjectionFactory[SpecT]:
        _MAKERS.update(dict.fromkeys(kinds, maker))
        return maker

    return note


def find_factory(kind: type[FaultSpec]) -> InjectionFactory[Any] | None:
    """Return the class that injects faults of this kind; None for a storm, which the driver plays."""
    import_all()
    return next((_MAKERS[base] for base in kind.__mro__ if base in _MAKERS), None)


def make_injection(fault: FaultSpec, aim: Aim, context: FaultContext) -> Injection[Any]:
    """Return the injection of `fault` at the nodes of `aim`."""
    maker = find_factory(type(fault))
    if maker is None:
        raise FaultNotConfirmed(f"{fault.kind} has no injection")
    return maker(fault, aim, context)


FREE_WITHIN_S: Final = 3600.0
"""Beyond any time that another fault takes to heal."""
LOOK_EVERY_S: Final = 0.01
BACK_WITHIN_S: Final = 60.0
"""A node that was released may need this long to start, register and be unfenced."""


class Holds:
    """Claims of the faults of one run on nodes and partitions. Thread-safe.

    Faults that overlap on a node heal as if each were alone: if a kill meets a shutdown, the last of the two to heal
    starts the node, and the other waits for that. A fault that ends or freezes a process takes hold of its node
    first, and releases it when it heals. Of two reassignments of one partition Kafka carries out the later.
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
        """Lock this node for one fault that looks at it and acts on what it saw."""
        with self._lock:
            lock = self._nodes.setdefault(node, threading.RLock())
        with lock:
            yield

    def take(self, node: int, fault: int, grip: Grip) -> None:
        """Claim the node for this fault."""
        with self._lock:
            self._grips.setdefault(node, {})[fault] = grip
            self._note_change(node)

    def release(self, node: int, fault: int) -> None:
        with self._lock:
            if self._grips.get(node, {}).pop(fault, None) is not None:
                self._note_change(node)

    def drop(self, fault: int) -> None:
        """Give up all claims of a fault whose life has ended."""
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
        """Return the numbers of the other faults that hold this node, in one of these ways (default: any)."""
        with self._lock:
            held = self._grips.get(node, {})
            return tuple(
                sorted(other for other, grip in held.items() if other != fault and grip in (grips or Grip))
            )

    def changes(self, node: int) -> int:
        """Return how often a claim on this node changed. Equal numbers mean that nobody touched it in between."""
        with self._lock:
            return self._changes.get(node, 0)

    def returns(self, node: int) -> bool:
        """Return True if a fault released this node a moment ago, so that it may not answer yet."""
        with self._lock:
            at = self._changed_at.get(node)
            return at is not None and time.monotonic() - at < BACK_WITHIN_S

    def jump(self, node: int, fault: int, by: float) -> None:
        """Set by how many seconds this fault shifts the node's clock; 0 ends the shift."""
        with self._lock:
            self._jumps.setdefault(node, {})[fault] = by

    def jumped(self, node: int) -> float:
        """Return the sum of all shifts of the node's clock, in seconds."""
        with self._lock:
            return sum(self._jumps.get(node, {}).values())

    def assign(self, place: TopicPartition, fault: int, replicas: tuple[int, ...]) -> None:
        """Note that this fault asked for these replicas of the partition."""
        with self._lock:
            self._assigned[place] = fault, replicas

    def assigned(self, place: TopicPartition) -> tuple[int, tuple[int, ...]] | None:
        """Return the last fault that asked for replicas of the partition, and the replicas; None if nobody did."""
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
