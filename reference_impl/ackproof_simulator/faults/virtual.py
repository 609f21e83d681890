"""A fault in progress in virtual time, and the class that simulates each kind.

A kind without such a class cannot be simulated: validation refuses it, with the reason in the fault's `NOT_SIMULATED`.
Only a storm needs none: the faults that it draws are simulated."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from ackproof.base.errors import FaultNotConfirmed
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof_simulator import faults
from ackproof_simulator.clock import seconds
from ackproof_simulator.network import Host
from ackproof_simulator.world import World

Aim: TypeAlias = Mapping[Role, Sequence[int]]
SpecT = TypeVar("SpecT", bound=FaultSpec)


class NotYet(FaultNotConfirmed):
    """Raised if a component does not answer yet; the caller makes the same call again later."""


class Virtual(Generic[SpecT]):
    """Base class of simulated faults. `Schedule` calls `inject`, then `is_in_effect` until it returns True; later
    `heal`, then `healed` until it returns True.

    `aim`: by target of the fault (a role such as `leader(orders/0)`), the nodes to which it was resolved when the fault
    began. `nodes`: all of these nodes, sorted."""

    WITHIN_S: ClassVar[float] = 60.0
    """Seconds within which a fault must take effect, and later must have healed; else it counts as failed."""

    def __init__(self, fault: SpecT, aim: Aim, world: World) -> None:
        self.fault = fault
        self.aim = aim
        self.world = world
        self.nodes = tuple(sorted({node for nodes in aim.values() for node in nodes}))
        self.witness = "the model's state"
        """Sentence with the observation that confirms the effect, and later the recovery."""

    def inject(self) -> str:
        """Inject the fault; return in words what was done. Raises `FaultNotConfirmed` if there is nothing to break,
        `NotYet` if `inject` must be called again."""
        raise NotImplementedError

    def is_in_effect(self) -> bool:
        """Return True once the fault's effect can be observed."""
        return True

    def heal(self) -> str:
        """Heal the fault; return in words what was done. Raises `FaultNotConfirmed` if it cannot be healed, `NotYet` if
        `heal` must be called again."""
        return "nothing to heal"

    def abandon(self) -> None:
        """Stop the actions that the fault repeats by itself; called after it has failed."""

    def healed(self) -> bool:
        """Return True once the fault's effect is over and the cluster has recovered from it."""
        return True

    def host(self, node: int) -> Host:
        return self.world.network.hosts[node]

    def must_run(self, *, paused: bool = False) -> None:
        """Raise `FaultNotConfirmed` unless the processes of all target nodes run.

        `paused`: True to accept paused and starting processes too.
        """
        for node in self.nodes:
            host = self.host(node)
            if paused and node in self.world.control.starting:
                continue
            if not host.up or (host.paused and not paused):
                state = "gone" if not host.up else "stopped"
                raise FaultNotConfirmed(
                    f"{self.fault.kind} is aimed at node {node}, which is {state}: nothing to break"
                )

    def must_be_heard(self) -> None:
        """Raise `FaultNotConfirmed` if no broker can take an admin request, or no controller is active. Raise `NotYet`
        while the active controller's disk is frozen."""
        control = self.world.control
        if control.quorum.standing_still >= 0:
            raise NotYet("the active controller's disk stands still")
        if control.active < 0:
            raise FaultNotConfirmed(f"{self.fault.kind}: there is no active controller")
        if not any(control.ready(broker) and control.reaches(broker) for broker in control.brokers):
            raise FaultNotConfirmed(f"{self.fault.kind}: no broker runs that could be asked")

    def answer(self) -> bool:
        """Return True if each target node answers and each broker among them is unfenced.

        Nodes that another fault keeps down do not count.
        """
        return all(self.world.control.ready(node) or self.world.held_down(node) for node in self.nodes)

    def names(self) -> str:
        return "node " + ", ".join(map(str, self.nodes))

    def later(self, after_s: float, act: Callable[..., None], *args: object) -> None:
        self.world.clock.call_after(seconds(after_s), act, *args)


Maker: TypeAlias = Callable[[SpecT, Aim, World], Virtual[Any]]
"""Class or function that makes the simulation of a fault on the nodes of an aim."""
_MAKERS: Final[dict[type[FaultSpec], Maker[Any]]] = {}


def does(kind: type[SpecT]) -> Callable[[Maker[SpecT]], Maker[Any]]:
    """Return a decorator that registers the decorated class as the simulation of faults of `kind`, and of its
    subclasses without a class of their own."""

    def note(maker: Maker[SpecT]) -> Maker[Any]:
        _MAKERS[kind] = maker
        return maker

    return note


@cache
def _look_around() -> None:
    for found in pkgutil.iter_modules(faults.__path__, f"{faults.__name__}."):
        import_module(found.name)


def maker_of(kind: type[FaultSpec]) -> Maker[Any] | None:
    """Return the class or function that makes the simulation of a fault of this kind. None if the kind cannot
    be simulated, and for a storm, whose drawn faults are simulated instead.
    """
    _look_around()
    return next((_MAKERS[one] for one in kind.__mro__ if one in _MAKERS), None)


def virtual_of(fault: FaultSpec, aim: Aim, world: World) -> Virtual[Any]:
    """Return the simulation of `fault` on the nodes of `aim`. Raises `FaultNotConfirmed` if it cannot be
    simulated.
    """
    maker = maker_of(type(fault))
    if maker is None:
        raise FaultNotConfirmed(f"{fault.kind} cannot be simulated")
    return maker(fault, aim, world)
