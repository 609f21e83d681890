"""Which links a fault breaks, once it is known who holds its roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Literal, TypeAlias

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.network.mesh import CLIENTS as CLIENTS
from ackproof.cluster.network.mesh import Link
from ackproof.experiment.links import Group
from ackproof.experiment.roles import Role
from ackproof.experiment.spec import ClusterSpec

if TYPE_CHECKING:
    from ackproof.faults.links.specification import OfLinks

From: TypeAlias = Literal["peers", "brokers", "controllers", "clients", "all"]
Holders = Mapping[Role, Sequence[int]]
"""Who held each role of the fault when it was due, by number."""


def links_of(fault: OfLinks, holders: Holders, spec: ClusterSpec) -> tuple[Link, ...]:
    """The links, sorted. Raises `FaultNotConfirmed` when there is none, or a node is on two sides."""
    found = set(fault.links(holders, spec))
    links = tuple(sorted(link for link in found if exists(spec, link)))
    if not links:
        raise FaultNotConfirmed(f"aimed at nothing: {fault} names no link that there is")
    return links


def exists(spec: ClusterSpec, link: Link) -> bool:
    """Whether `source` ever connects to `target`: controllers that are not brokers open no connections to brokers."""
    source, target = link
    brokers, controllers = spec.broker_ids, spec.controller_ids
    if source == target:
        return False
    if source == CLIENTS:
        return target in brokers
    if spec.metadata.broker_controls and source not in brokers:
        return False
    return target in controllers or (source in brokers and target in brokers)


def apart(nodes: Iterable[int], away: From, spec: ClusterSpec) -> Iterator[Link]:
    """All links, in both directions, between each of these nodes and those from which it is to be apart."""
    for node in nodes:
        if away in ("clients", "all"):
            yield Link(CLIENTS, node)
        for other in _others(spec, node, away):
            yield Link(node, other)
            yield Link(other, node)


def _others(spec: ClusterSpec, node: int, away: From) -> set[int]:
    brokers, controllers = set(spec.broker_ids), set(spec.controller_ids)
    of_a_kind = [kind for kind in (brokers, controllers) if node in kind]
    found: dict[str, set[int]] = {
        "all": brokers | controllers,
        "peers": set().union(*of_a_kind),
        "brokers": brokers,
        "controllers": controllers,
    }
    return found.get(away, set()) - {node}


def members(group: Group, holders: Holders) -> set[int]:
    """The nodes of a group."""
    return {node for role in group.roles for node in holders[role]}


def sides_apart(sides: Iterable[set[int]]) -> Iterator[Link]:
    """All links between nodes of different sides. Raises `FaultNotConfirmed` when a node is on two."""
    for one, other in combinations(sides, 2):
        if both := one & other:
            raise FaultNotConfirmed(f"node {min(both)} holds roles of two groups; each node is on one side")
        for a in one:
            for b in other:
                yield Link(a, b)
                yield Link(b, a)
