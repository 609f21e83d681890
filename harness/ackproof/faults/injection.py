"""What every fault is while it is being done, and the registry from a fault's kind to its injection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Final, Protocol, TypeVar

from ackproof.base.processes import ClientProcess, RunTag
from ackproof.cluster.protocol import Cluster, Node
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.faults.holds import Holds


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

    def at_work(self, client_id: str) -> bool:
        """Whether it has sent or read something, or has come to its good end."""


@dataclass(frozen=True)
class Field:
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


@dataclass(frozen=True)
class Aim:
    """The nodes that held each role at the moment when the fault was due; nobody may hold one."""

    roles: Mapping[Role, tuple[Node, ...]] = field(default_factory=dict)

    def of(self, role: Role) -> tuple[Node, ...]:
        """Who held this role, one of the fault's `targets`."""
        return self.roles[role]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All of them, once each, in the order of the roles."""
        return tuple({node.id: node for nodes in self.roles.values() for node in nodes}.values())


class Injection(Protocol):
    """One fault against resolved nodes. Each step raises `FaultNotConfirmed` when it cannot vouch for itself.

    `inject` and `heal` return the word for what they did; `confirm` and `confirm_healed` return what an
    independent witness saw. `heal` may be called when `inject` failed half way: it mends whatever is broken.
    """

    def inject(self) -> str:
        """Do it."""

    def confirm(self) -> str:
        """See that it bit."""

    def heal(self) -> str:
        """Undo it."""

    def confirm_healed(self) -> str:
        """See that it is undone."""


Maker = Callable[[FaultSpec, Aim, Field], Injection]
_MAKERS: Final[dict[type[FaultSpec], Maker]] = {}

M = TypeVar("M", bound=Maker)


def injects(kind: type[FaultSpec]) -> Callable[[M], M]:
    """Decorator: this class (or function) makes the injection of `kind`. Raises ValueError when one exists."""

    def register(maker: M) -> M:
        if kind in _MAKERS:
            raise ValueError(f"{kind.KIND} has an injection already")
        _MAKERS[kind] = maker
        return maker

    return register


def injection_of(fault: FaultSpec, aim: Aim, field: Field) -> Injection:
    """The injection of `fault` against those that it is aimed at."""
    return _MAKERS[type(fault)](fault, aim, field)


def injectable() -> frozenset[str]:
    """The kinds that can be injected."""
    return frozenset(kind.KIND for kind in _MAKERS)
