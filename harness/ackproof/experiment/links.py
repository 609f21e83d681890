"""Links between nodes and clients, and the APIs of Kafka that they carry.

A link `A -> B` is every connection that A opens to B, with its traffic in both directions: `followers(orders/0) ->
leader(orders/0)`, `clients -> leader(orders/0)`.

The keys of APIs are those of https://kafka.apache.org/protocol#protocol_api_keys. The senders are those of KRaft
(release 3.9 and later), read from Kafka's sources: clients' requests from `KafkaApis`, a broker's requests to
controllers from the classes that hold a `NodeToControllerChannelManager`, and those to its peers from the fetcher
threads and transaction coordinators. Two groups are left out: requests that only administrators send, and requests
that cannot be sent as a probe without changing something (`network.requests.questions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, JsonValue, PlainSerializer, WithJsonSchema

from ackproof.base.advice import Advice, expected
from ackproof.base.units import wrong
from ackproof.experiment.backends import Need
from ackproof.experiment.base import text_field
from ackproof.experiment.kafka import numbers
from ackproof.experiment.problems import nearest
from ackproof.experiment.roles import ROLE_PATTERN, TARGET_PATTERN, Role, RoleKind
from ackproof.experiment.spec import ClusterSpec

CLIENTS: Final = "clients"
ARROW: Final = "->"
_EXAMPLE: Final = "followers(orders/0) -> leader(orders/0)"
_TARGET: Final = TARGET_PATTERN.removeprefix("^").removesuffix("$")
LINK_PATTERN: Final = rf"^ *(clients|{_TARGET}) *-> *{_TARGET} *$"
OF_CONTROLLERS: Final = frozenset({RoleKind.CONTROLLER, RoleKind.CONTROLLERS})


@dataclass(frozen=True)
class LinkEnds:
    """The links from every holder of `source` (None: the clients) to every holder of `target`."""

    source: Role | None
    target: Role

    @classmethod
    def parse(cls, text: str) -> LinkEnds:
        """Parse a link such as `follower(orders/0) -> leader(orders/0)` or `clients -> broker(1)`. Raises ValueError
        with the expected form."""
        left, arrow, right = text.partition(ARROW)
        if not arrow:
            raise ValueError(f"expected a link such as {_EXAMPLE}, not '{text[:60]}'")
        if right.strip() == CLIENTS:
            raise ValueError(f"clients open connections and take none: write clients -> {left.strip()[:60]}")
        name = left.strip()
        if name == CLIENTS:
            return cls(None, Role.parse(right))
        if name.isalpha() and nearest(name, [CLIENTS], cutoff=0.8):
            raise ValueError(Advice(f"unknown role '{name[:60]}'", suggestion=CLIENTS))
        return cls(Role.parse(left), Role.parse(right))

    def __str__(self) -> str:
        return f"{CLIENTS if self.source is None else self.source} {ARROW} {self.target}"

    @property
    def roles(self) -> tuple[Role, ...]:
        return (self.target,) if self.source is None else (self.source, self.target)

    def needs(self, *, both_ways: bool = False) -> frozenset[Need]:
        """Return the preparations (such as proxies) that links from holders of `source` to holders of `target` require,
        whichever nodes hold these roles. `both_ways`: also for the links from target to source."""
        if self.source is None:
            return frozenset({Need.CLIENT_LINKS})
        return between(self.source, self.target) | (
            between(self.target, self.source) if both_ways else frozenset()
        )


def between(source: Role, target: Role) -> frozenset[Need]:
    """Return the preparations (proxies) that links from the holders of `source` to the holders of `target` require."""
    needs: set[Need] = set()
    for one, other in product(source.roles, target.roles):
        # Only brokers connect to ZooKeeper. In ZooKeeper mode the holder of the role `controller` is a broker.
        zookeeper = RoleKind.ZOOKEEPER in (one.kind, other.kind)
        if zookeeper or one.kind not in (*OF_CONTROLLERS, RoleKind.RACK):
            needs.add(Need.BROKER_LINKS)
        elif other.kind in OF_CONTROLLERS and one.kind in OF_CONTROLLERS:
            needs.add(Need.CONTROLLER_LINKS)
        else:
            # Isolated controllers open no connections to brokers; combined nodes are brokers.
            needs |= {Need.BROKER_LINKS, Need.CONTROLLER_LINKS}
    return frozenset(needs)


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


def _member(value: object) -> Role:
    if isinstance(value, Role):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Role.of_node(value)
    if isinstance(value, str):
        try:
            return Role.parse(value)
        except ValueError as error:
            raise wrong(error) from error
    raise wrong(expected("a node's number or a role such as minority"))


def _read_group(value: object) -> tuple[Role, ...]:
    members = value if isinstance(value, (list, tuple)) else [value]
    if not members:
        raise wrong("a group needs at least one node")
    return tuple(map(_member, members))


_MEMBER_SCHEMAS: Final[list[JsonValue]] = [
    {"type": "string", "pattern": ROLE_PATTERN},
    {"type": "integer", "minimum": 1},
]
GroupField: TypeAlias = Annotated[
    tuple[Role, ...],
    BeforeValidator(_read_group),
    PlainSerializer(lambda group: list(map(str, group)), return_type=list[str]),
    WithJsonSchema(
        {
            "title": "Group",
            "description": "Nodes on one side: a role, a node's number, or a list of these.",
            "anyOf": [
                *_MEMBER_SCHEMAS,
                {"type": "array", "minItems": 1, "items": {"anyOf": _MEMBER_SCHEMAS}},
            ],
            "examples": [[1, 2], "minority"],
        }
    ),
]
"""Nodes on one side of a split: all holders of these roles."""


def roles_in(value: object) -> Iterator[Role]:
    """Yield every role in the value of a fault's field: a role, the ends of a link, or a list of these. Any other
    value contains no role."""
    if isinstance(value, Role):
        yield value
    elif isinstance(value, LinkEnds):
        yield from value.roles
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from roles_in(item)


class Flow(StrEnum):
    """A kind of connection, named by the side that opens it and the side that accepts it."""

    CLIENTS = "clients to brokers"
    BROKERS = "brokers to brokers"
    CONTROLLERS = "brokers to controllers"
    QUORUM = "controllers to controllers"


@dataclass(frozen=True)
class Api:
    """An API of Kafka. `key`: its API key. `flows`: the kinds of connections that carry it.

    `since`: the first supported release line in which it is sent; '': it is sent in all of them.
    """

    name: str
    key: int
    flows: frozenset[Flow]
    since: str = ""

    def sent_in(self, release: str) -> bool:
        """Return True if nodes or clients of this release send the API."""
        return not self.since or numbers(release)[:2] >= numbers(self.since)


def _table() -> dict[str, Api]:
    clients, brokers, controllers, quorum = (frozenset({flow}) for flow in Flow)
    everywhere = frozenset(Flow)
    rows: tuple[tuple[str, int, frozenset[Flow], str], ...] = (
        ("Produce", 0, clients, ""),
        ("Fetch", 1, everywhere, ""),
        ("ListOffsets", 2, clients | brokers, ""),
        ("Metadata", 3, clients, ""),
        ("OffsetCommit", 8, clients, ""),
        ("OffsetFetch", 9, clients, ""),
        ("FindCoordinator", 10, clients, ""),
        ("JoinGroup", 11, clients, ""),
        ("Heartbeat", 12, clients, ""),
        ("LeaveGroup", 13, clients, ""),
        ("SyncGroup", 14, clients, ""),
        ("ApiVersions", 18, everywhere, ""),
        ("InitProducerId", 22, clients, ""),
        ("OffsetForLeaderEpoch", 23, clients | brokers, ""),
        ("AddPartitionsToTxn", 24, clients | brokers, ""),
        ("AddOffsetsToTxn", 25, clients, ""),
        ("EndTxn", 26, clients, ""),
        ("WriteTxnMarkers", 27, brokers, ""),
        ("TxnOffsetCommit", 28, clients, ""),
        ("Vote", 52, quorum, ""),
        ("BeginQuorumEpoch", 53, quorum, ""),
        ("EndQuorumEpoch", 54, quorum, ""),
        ("AlterPartition", 56, controllers, ""),
        ("FetchSnapshot", 59, controllers | quorum, ""),
        ("BrokerRegistration", 62, controllers, ""),
        ("BrokerHeartbeat", 63, controllers, ""),
        ("AllocateProducerIds", 67, controllers, ""),
        ("ConsumerGroupHeartbeat", 68, clients, "4.0"),
        ("AssignReplicasToDirs", 73, controllers, ""),
    )
    return {row[0]: Api(*row) for row in rows}


APIS: Final[Mapping[str, Api]] = MappingProxyType(_table())


def flows_of(ends: LinkEnds, cluster: ClusterSpec) -> frozenset[Flow]:
    """Return the kinds of connections that holders of the source role of `ends` open to holders of the target role;
    empty if they open none.

    Combined nodes are brokers and controllers. Between them, all kinds of connections between nodes are returned.
    """
    if ends.source is None:
        return frozenset({Flow.CLIENTS})
    if cluster.combined:
        return frozenset({Flow.BROKERS, Flow.CONTROLLERS, Flow.QUORUM})
    found = set()
    for of_source, of_target in product(ends.source.sides(), ends.target.sides()):
        if of_target:
            found.add(Flow.QUORUM if of_source else Flow.CONTROLLERS)
        elif not of_source:
            found.add(Flow.BROKERS)
    return frozenset(found)
