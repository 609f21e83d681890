"""What every fault is while it is being done, and which class does which kind."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.processes import ClientProcess, RunTag
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import Cluster, Node
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec, Grip
from ackproof.experiment.roles import Members, Role, RoleKind
from ackproof.faults.registry import import_all
from ackproof.rundir.partition import TopicPartition, internal
from ackproof.rundir.timeline import Timeline

SpecT = TypeVar("SpecT", bound=FaultSpec)
T = TypeVar("T")
SEEN_WITHIN_S: Final = 15.0
"""A change of metadata reaches every broker in milliseconds; on a busy machine in a second or two."""
_MAKERS: Final[dict[type[FaultSpec], InjectionFactory[Any]]] = {}


class Clients(Protocol):
    """The producers and readers of the workload, for faults that are aimed at them. KeyError for an unknown id."""

    def running(self) -> Mapping[str, ClientProcess]:
        """Those that run, by id, in order of their start."""

    def kill(self, client_id: str) -> int | None:
        """SIGKILL; how many sends it left without an outcome (None for a reader)."""

    def signal(self, client_id: str, number: int) -> None:
        """Send it a signal, unless it has ended."""

    def replace(self, client_id: str) -> str:
        """Start another in the place of one that is gone; its id."""

    def take_over(self, client_id: str) -> str:
        """Start another producer with the transactional id of one that goes on, which then may end; its id."""

    def transactional_id(self, client_id: str) -> str:
        """The transactional id of a producer, '' if it has none."""

    def fenced(self, client_id: str) -> str:
        """With which words a producer said that its broker had fenced it; '' as long as it did not."""

    def successor(self, client_id: str) -> str | None:
        """Who is in its place now, it or the last that took it; None while nobody has come for one that was killed."""

    def ask_for_record(self, client_id: str) -> None:
        """Ask a producer that sends on demand for a record more. Raises OSError where it has ended."""

    def free(self) -> None:
        """Let all producers send without being asked."""

    def acked(self, topic: str | None = None, partition: int | None = None) -> int:
        """Records acknowledged so far; at most 50 ms behind."""

    def sent(self) -> int:
        """Records handed to the producers' libraries so far, as far behind."""

    def at_work(self, client_id: str) -> bool:
        """Whether it has sent or read something, or has come to its good end."""


@dataclass(frozen=True)
class FaultContext:
    """Where a fault is done: the cluster, the clients, and the flag that ends every wait."""

    cluster: Cluster
    stop: Flag
    case: Case | None = None
    """None where there is no experiment around it (the pytest plugin's cluster)."""
    clients: Clients | None = None
    """None where no workload of ours runs."""
    holds: Holds | None = None
    """None where each fault stands alone, and is undone by whoever made it."""
    tag: RunTag | None = None
    """How processes that a fault starts are marked, and where its run keeps what they say."""
    timeline: Timeline | None = None
    """Where a fault of several steps says which it is at."""


@dataclass(frozen=True)
class Aim:
    """The nodes that held each role at the moment when the fault was due; nobody may hold one."""

    roles: Mapping[Role, tuple[Node, ...]] = field(default_factory=dict)

    def of(self, role: Role) -> tuple[Node, ...]:
        """Who held this role, one of the fault's `targets`."""
        return self.roles[role]

    @property
    def numbers(self) -> dict[Role, tuple[int, ...]]:
        """The same by their numbers."""
        return {role: tuple(node.id for node in nodes) for role, nodes in self.roles.items()}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All of them, once each, in the order of the roles."""
        return tuple({node.id: node for nodes in self.roles.values() for node in nodes}.values())


class Injection(ABC, Generic[SpecT]):
    """One fault against resolved nodes. Each step raises `FaultNotConfirmed` when it cannot vouch for itself.

    `inject` and `heal` return the word for what they did; `confirm` and `confirm_healed` return what an
    independent witness saw. `heal` may be called when `inject` failed half way: it mends whatever is broken.
    """

    def __init__(self, fault: SpecT, aim: Aim, context: FaultContext) -> None:
        self.fault = fault
        self.nodes = aim.nodes
        self.context = context

    @abstractmethod
    def inject(self) -> str:
        """Do it."""

    @abstractmethod
    def confirm(self) -> str:
        """See that it bit."""

    def check(self) -> None:
        """Asked often, while it is in force. Raises `FaultNotConfirmed` when it is known that it does not last."""

    def heal(self) -> str:
        """Undo it."""
        return "nothing to undo"

    @abstractmethod
    def confirm_healed(self) -> str:
        """See that it is undone."""

    def put_back(self) -> str:
        """Undo what it set in the cluster's metadata: called when healing has failed and all faults are over."""
        return ""

    def seen(
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
        """What `look` sees once it sees something (`wait_until`). `to_the_end`: also when the run is to stop.

        Raises `FaultNotConfirmed` when it sees nothing in that time, `Interrupted`.
        """
        stop = None if to_the_end else self.context.stop
        try:
            return wait_until(
                look, what=what, timeout_s=within_s, interval_s=interval_s, state=state, logs=logs, stop=stop
            )
        except WaitTimeout as error:
            raise self.unseen(error) from error

    def unseen(self, why: object) -> FaultNotConfirmed:
        """The error that says why this fault cannot vouch for itself."""
        return FaultNotConfirmed(f"{self.fault.kind}: {why}")


InjectionFactory: TypeAlias = Callable[[SpecT, Aim, FaultContext], Injection[Any]]


def injects(kind: type[SpecT]) -> Callable[[InjectionFactory[SpecT]], InjectionFactory[SpecT]]:
    """Class decorator: this does faults of `kind`, and of its subclasses that have no injection of their own."""

    def note(maker: InjectionFactory[SpecT]) -> InjectionFactory[SpecT]:
        _MAKERS[kind] = maker
        return maker

    return note


def find_factory(kind: type[FaultSpec]) -> InjectionFactory[Any] | None:
    """What does faults of this kind; None for one that the driver itself plays (a storm)."""
    import_all()
    return next((_MAKERS[one] for one in kind.__mro__ if one in _MAKERS), None)


def make_injection(fault: FaultSpec, aim: Aim, context: FaultContext) -> Injection[Any]:
    """The injection of `fault` against those that it is aimed at."""
    maker = find_factory(type(fault))
    if maker is None:
        raise FaultNotConfirmed(f"{fault.kind} has no injection")
    return maker(fault, aim, context)


RESOLVE_WITHIN_S: Final = 5.0
"""How long a role may wait for a broker that answers."""
CREATED_WITHIN_S: Final = 30.0
"""How long it may wait for a topic of Kafka's own, which the brokers create when clients first need it."""


def find_holders(cluster: Cluster, role: Role, order: Sequence[int], stop: Flag) -> tuple[int, ...]:
    """The nodes that hold this role now; empty when nobody does. `order` is the draw of `Role.resolve`.

    Raises `WaitTimeout` when no broker can tell who holds a partition, `Interrupted` when `stop` is set.
    """
    return role.find_nodes(lambda one: _holders(cluster, one, order, stop), cluster.spec.members.racks)


def _holders(cluster: Cluster, role: Role, order: Sequence[int], stop: Flag) -> tuple[int, ...]:
    members = Members(
        brokers=tuple(node.id for node in cluster.brokers()),
        controllers=tuple(node.id for node in cluster.controllers()),
    )
    if role.topic is not None and role.partition is not None:
        place = TopicPartition(role.topic, role.partition)
        own = internal(place.topic)
        state = wait_until(
            lambda: cluster.topic_state([place.topic]).get(place),
            what=f"a broker to say who holds {place}"
            + (", created when clients first need it" if own else ""),
            timeout_s=CREATED_WITHIN_S if own else RESOLVE_WITHIN_S,
            stop=stop,
        )
        members = replace(members, leader=state.leader, replicas=state.replicas, isr=state.isr)
    if role.kind is RoleKind.CONTROLLER and role.node is None:
        members = replace(members, active_controller=_controller(cluster, stop))
    return role.resolve(members, _drawn(order, members.brokers))


def _controller(cluster: Cluster, stop: Flag) -> int:
    """The active controller, -1 none. With ZooKeeper there is none for a moment after it, or ZooKeeper, was gone."""

    def told() -> tuple[int] | None:
        found = cluster.controller()
        return None if found is None else (found,)

    now = told()
    if now is None and cluster.spec.metadata.broker_controls:
        with contextlib.suppress(WaitTimeout):
            now = wait_until(
                told, what="an active controller", timeout_s=RESOLVE_WITHIN_S, interval_s=0.05, stop=stop
            )
    return -1 if now is None else now[0]


def _drawn(order: Sequence[int], brokers: Sequence[int]) -> Sequence[int]:
    """The draw, in ids that there are: those of a cluster that someone else runs need not count from 1."""
    if set(order) <= set(brokers):
        return order
    ids = sorted(brokers)
    return [ids[place - 1] for place in order if 0 < place <= len(ids)]


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
