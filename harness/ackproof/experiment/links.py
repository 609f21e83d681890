"""Links as a file says them: `followers(orders/0) -> leader(orders/0)`, `clients -> leader(orders/0)`, groups of nodes.

A link `A -> B` is every connection that A opens to B, with what flows over it in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from ackproof.base.units import wrong
from ackproof.experiment.backends import Need
from ackproof.experiment.base import text_field
from ackproof.experiment.problems import nearest
from ackproof.experiment.roles import ROLE_PATTERN, TARGET_PATTERN, Role, RoleKind

CLIENTS: Final = "clients"
ARROW: Final = "->"
_EXAMPLE: Final = "followers(orders/0) -> leader(orders/0)"
_TARGET: Final = TARGET_PATTERN.removeprefix("^").removesuffix("$")
LINK_PATTERN: Final = rf"^ *(clients|{_TARGET}) *-> *{_TARGET} *$"
OF_CONTROLLERS: Final = frozenset({RoleKind.CONTROLLER, RoleKind.CONTROLLERS})


@dataclass(frozen=True)
class LinkEnds:
    """The links from everybody who holds `source` (None: the clients) to everybody who holds `target`."""

    source: Role | None
    target: Role

    @classmethod
    def parse(cls, text: str) -> LinkEnds:
        """Read a link. Raises ValueError with a sentence that says what was expected."""
        left, arrow, right = text.partition(ARROW)
        if not arrow:
            raise ValueError(f"expected a link such as {_EXAMPLE}, not '{text[:60]}'")
        if right.strip() == CLIENTS:
            raise ValueError(f"clients open connections and take none: write clients -> {left.strip()[:60]}")
        name = left.strip()
        if name == CLIENTS:
            return cls(None, Role.parse(right))
        if name.isalpha() and nearest(name, [CLIENTS], cutoff=0.8):
            raise ValueError(f"unknown role '{name[:60]}' (did you mean '{CLIENTS}'?)")
        return cls(Role.parse(left), Role.parse(right))

    def __str__(self) -> str:
        return f"{CLIENTS if self.source is None else self.source} {ARROW} {self.target}"

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles at its ends."""
        return (self.target,) if self.source is None else (self.source, self.target)

    def needs(self, *, both_ways: bool = False) -> frozenset[Need]:
        """The classes of links to which it belongs, whoever holds the roles."""
        if self.source is None:
            return frozenset({Need.CLIENT_LINKS})
        return between(self.source, self.target) | (
            between(self.target, self.source) if both_ways else frozenset()
        )


def between(source: Role, target: Role) -> frozenset[Need]:
    """The classes of the links from one role's holders to another's."""
    pairs = product(source.roles, target.roles)
    return frozenset[Need]().union(*(_between(one, other) for one, other in pairs))


def _between(source: Role, target: Role) -> frozenset[Need]:
    if RoleKind.ZOOKEEPER in (source.kind, target.kind):
        # Only brokers connect to ZooKeeper, and in its mode the role `controller` is one of them.
        return frozenset({Need.BROKER_LINKS})
    if source.kind not in (*OF_CONTROLLERS, RoleKind.RACK):
        return frozenset({Need.BROKER_LINKS})
    if target.kind in OF_CONTROLLERS and source.kind in OF_CONTROLLERS:
        return frozenset({Need.CONTROLLER_LINKS})
    # Isolated controllers open no connections to brokers; combined nodes are brokers.
    return frozenset({Need.BROKER_LINKS, Need.CONTROLLER_LINKS})


LinkField: TypeAlias = Annotated[
    LinkEnds,
    *text_field(LinkEnds.parse, LinkEnds, f"a link such as {_EXAMPLE}"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": LINK_PATTERN,
            "title": "Link",
            "description": "Every connection that the first role's holders (or clients) open to the second's.",
            "examples": [_EXAMPLE, "clients -> leader(orders/0)", "leader(orders/0) -> controllers"],
        }
    ),
]


@dataclass(frozen=True)
class Group:
    """Nodes on one side of a split: all who hold one of these roles."""

    roles: tuple[Role, ...]

    def __str__(self) -> str:
        return " + ".join(map(str, self.roles))


def _member(value: object) -> Role:
    if isinstance(value, Role):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Role.of_node(value)
    if isinstance(value, str):
        try:
            return Role.parse(value)
        except ValueError as error:
            raise wrong(str(error)) from error
    raise wrong("expected a node's number or a role such as minority")


def _read_group(value: object) -> object:
    if isinstance(value, Group):
        return value
    members = value if isinstance(value, (list, tuple)) else [value]
    if not members:
        raise wrong("a group needs at least one node")
    return Group(tuple(_member(member) for member in members))


def _write_group(group: Group) -> list[str]:
    return [str(role) for role in group.roles]


_MEMBER_SCHEMA: Final[dict[str, object]] = {
    "anyOf": [{"type": "string", "pattern": ROLE_PATTERN}, {"type": "integer", "minimum": 1}]
}
GroupField: TypeAlias = Annotated[
    Group,
    BeforeValidator(_read_group),
    PlainSerializer(_write_group, return_type=list[str]),
    WithJsonSchema(
        {
            "title": "Group",
            "description": "Nodes on one side: a role, a node's number, or a list of these.",
            "anyOf": [
                {"type": "string", "pattern": ROLE_PATTERN},
                {"type": "integer", "minimum": 1},
                {"type": "array", "minItems": 1, "items": _MEMBER_SCHEMA},
            ],
            "examples": [[1, 2], "minority"],
        }
    ),
]


def roles_in(value: object) -> Iterator[Role]:
    """Every role that a field of a fault mentions."""
    if isinstance(value, Role):
        yield value
    elif isinstance(value, (LinkEnds, Group)):
        yield from value.roles
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from roles_in(item)
