"""What every fault is while it is being done, and the registry from a fault's kind to its injection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event as Flag
from typing import Final, Protocol, TypeVar

from ackproof.cluster.protocol import Cluster, Node
from ackproof.plan.faults import FaultSpec


@dataclass(frozen=True)
class Field:
    """Where a fault is done: the cluster, and the flag that ends every wait."""

    cluster: Cluster
    stop: Flag


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


Maker = Callable[[FaultSpec, Sequence[Node], Field], Injection]
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


def injection_of(fault: FaultSpec, nodes: Sequence[Node], field: Field) -> Injection:
    """The injection of `fault` against `nodes`."""
    return _MAKERS[type(fault)](fault, nodes, field)


def injectable() -> frozenset[str]:
    """The kinds that can be injected."""
    return frozenset(kind.KIND for kind in _MAKERS)
