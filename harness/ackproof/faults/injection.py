"""What every fault is while it is being done, and which class does which kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.processes import ClientProcess, RunTag
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import Cluster, Node
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.faults.holds import Holds
from ackproof.faults.registry import import_all
from ackproof.rundir.timeline import Timeline

SpecT = TypeVar("SpecT", bound=FaultSpec)
T = TypeVar("T")
SEEN_WITHIN_S: Final = 15.0
"""A change of metadata reaches every broker in milliseconds; on a busy machine in a second or two."""
_MAKERS: Final[dict[type[FaultSpec], Maker[Any]]] = {}


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


Maker: TypeAlias = Callable[[SpecT, Aim, FaultContext], Injection[Any]]


def injects(kind: type[SpecT]) -> Callable[[Maker[SpecT]], Maker[SpecT]]:
    """Class decorator: this does faults of `kind`, and of its subclasses that have no injection of their own."""

    def note(maker: Maker[SpecT]) -> Maker[SpecT]:
        _MAKERS[kind] = maker
        return maker

    return note


def maker_of(kind: type[FaultSpec]) -> Maker[Any] | None:
    """What does faults of this kind; None for one that the driver itself plays (a storm)."""
    import_all()
    return next((_MAKERS[one] for one in kind.__mro__ if one in _MAKERS), None)


def injection_of(fault: FaultSpec, aim: Aim, context: FaultContext) -> Injection[Any]:
    """The injection of `fault` against those that it is aimed at."""
    maker = maker_of(type(fault))
    if maker is None:
        raise FaultNotConfirmed(f"{fault.kind} has no injection")
    return maker(fault, aim, context)
