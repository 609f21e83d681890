"""The base class of injections, and the registry that maps each kind of fault to its injection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from ackproof.base.errors import FaultNotConfirmed, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import Node
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.faults.context import FaultContext
from ackproof.faults.registry import import_all
from ackproof.network.wire import WireError

if TYPE_CHECKING:
    from ackproof.clients.groups import Groups

SpecT = TypeVar("SpecT", bound=FaultSpec)
T = TypeVar("T")
SEEN_WITHIN_S: Final = 15.0
"""Seconds until every broker must show a change of metadata: normally milliseconds, on a busy machine a second or
two."""
READY_WITHIN_S: Final = 60.0
"""Seconds for a node to become ready. A killed broker may have to wait for the end of its old session
(DUPLICATE_BROKER_REGISTRATION)."""
_MAKERS: Final[dict[type[FaultSpec], InjectionFactory[Any]]] = {}


@dataclass(frozen=True)
class Aim:
    """The nodes that held each role of a fault when its trigger fired. A role may have no holder."""

    roles: Mapping[Role, tuple[Node, ...]] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[Role, tuple[int, ...]]:
        return {role: tuple(node.id for node in nodes) for role, nodes in self.roles.items()}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes of all roles without duplicates, in the order of the roles."""
        return tuple({node.id: node for nodes in self.roles.values() for node in nodes}.values())


class Injection(ABC, Generic[SpecT]):
    """One fault on given nodes. A driver calls `inject`, `confirm`, `heal` and `confirm_healed` in this order. Each
    step raises `FaultNotConfirmed` if it cannot be done, or has no evidence. It may also raise errors of what it uses,
    such as `LinkError` or OSError. Waits raise `Interrupted` if the run is stopped.

    `inject` and `heal` return what they did, in words. `confirm` and `confirm_healed` return what an independent
    witness saw. `heal` and `confirm_healed` are also called after `inject` or `confirm` failed: `heal` then repairs
    whatever is broken.
    """

    def __init__(self, fault: SpecT, aim: Aim, context: FaultContext) -> None:
        self.fault = fault
        self.nodes = aim.nodes
        self.context = context
        self.holds = context.holds

    @abstractmethod
    def inject(self) -> str:
        """Inject the fault; return in words what was done."""

    @abstractmethod
    def confirm(self) -> str:
        """Confirm by an independent observation that the fault is in effect; return the observation in words."""

    def check(self) -> None:
        """Check that the fault still lasts; called often while it is in force. Raises `FaultNotConfirmed` if it
        certainly does not last. Here: nothing is checked."""

    def heal(self) -> str:
        return "nothing to undo"

    @abstractmethod
    def confirm_healed(self) -> str:
        """Confirm by an independent observation that the fault is undone; return the observation in words."""

    @property
    def killed(self) -> Mapping[str, int] | None:
        """Return client → process id if the fault kills clients; None for other faults."""
        return None

    @property
    def clients(self) -> Sequence[str] | None:
        """Return the ids of the clients that the fault hit; None for a fault that hits no clients."""
        return None

    def put_back(self) -> str:
        """Undo changes of the cluster's metadata; return in words what was done, '' for nothing. Called only if healing
        failed or was not confirmed, after all faults are over."""
        return ""

    @property
    def groups(self) -> Groups:
        """Members of the run's consumer groups and share groups. Raises `FaultNotConfirmed` if the run has no
        groups."""
        if self.context.groups is None:
            raise self.not_confirmed("no consumer group of ours runs here")
        return self.context.groups

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
        """Wait until `look` returns a true value, and return that value.

        `what` completes "waited for …" in the error. `state` and `logs` return the last observation and log lines, for
        the error. `to_the_end`: keep waiting while the run is being stopped. Raises `FaultNotConfirmed` after
        `within_s` seconds, `Interrupted` if the run is stopped (unless `to_the_end`).
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
        """Repeat a request until `ask` returns True; Kafka refuses it while another change is in progress.

        `ask` sends the request. It returns False, or raises `WireError` or `FaultNotConfirmed`, if it was refused.
        `what` completes "waited for …" in the error. Raises `FaultNotConfirmed` after `within_s` seconds, with the last
        error that `ask` raised in its message, and `Interrupted` if the run is stopped.
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
        """Wait until the node is ready: a broker is registered and unfenced, a controller knows the quorum's leader, a
        ZooKeeper server answers.

        Raises `FaultNotConfirmed` after `READY_WITHIN_S` seconds, `NodeDied` at once if the node died by itself.
        """
        try:
            node.await_ready(READY_WITHIN_S)
        except WaitTimeout as error:
            raise self.not_confirmed(error) from error

    def fall_short(self, why: str) -> str:
        """Return `why` (the fault ended early or hit nothing) if a storm drew the fault; else raise `FaultNotConfirmed`
        with it.

        A storm does not promise that each of its faults takes effect. So the caller puts `why` into the words that its
        step returns.
        """
        if not self.fault.is_drawn:
            raise self.not_confirmed(why)
        return why

    def not_confirmed(self, why: object) -> FaultNotConfirmed:
        return FaultNotConfirmed(f"{self.fault.kind}: {why}")


InjectionFactory: TypeAlias = Callable[[SpecT, Aim, FaultContext], Injection[Any]]


def injects(*kinds: type[SpecT]) -> Callable[[InjectionFactory[SpecT]], InjectionFactory[SpecT]]:
    """Return a class decorator that registers the class as injection of faults of `kinds`, and of their subclasses
    without an injection of their own."""

    def note(maker: InjectionFactory[SpecT]) -> InjectionFactory[SpecT]:
        _MAKERS.update(dict.fromkeys(kinds, maker))
        return maker

    return note


def find_factory(kind: type[FaultSpec]) -> InjectionFactory[Any] | None:
    """Return the class that injects faults of this kind; None for a kind without one, such as a storm,
    which the driver runs."""
    import_all()
    return next((_MAKERS[base] for base in kind.__mro__ if base in _MAKERS), None)


def make_injection(fault: FaultSpec, aim: Aim, context: FaultContext) -> Injection[Any]:
    """Return the injection of `fault` on the nodes of `aim`; nothing is done yet. Raises `FaultNotConfirmed` if its
    kind has no injection (a storm), or the cluster or `context` lacks what the injection needs."""
    maker = find_factory(type(fault))
    if maker is None:
        raise FaultNotConfirmed(f"{fault.kind} has no injection")
    return maker(fault, aim, context)
