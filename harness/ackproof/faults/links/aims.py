"""Which links a fault breaks, once it is known who holds its roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.network.mesh import CLIENTS, Link
from ackproof.cluster.protocol import Cluster, Node
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.links import Group
from ackproof.faults.injection import Aim
from ackproof.faults.links.specification import BridgeFault, From, IsolateFault, LinkFault, SplitFault


def links_of(fault: FaultSpec, aim: Aim, cluster: Cluster) -> tuple[Link, ...]:
    """The links, sorted. Raises `FaultNotConfirmed` when there is none, or a node is on two sides."""
    match fault:
        case LinkFault():
            found = set(_named(fault, aim))
        case IsolateFault():
            found = set(_isolated(fault, aim, cluster))
        case SplitFault():
            sides = [_members(group, aim) for group in fault.groups]
            found = set(_between(sides))
        case BridgeFault():
            bridge = {node.id for node in aim.of(fault.over)}
            sides = [_members(group, aim) - bridge for group in fault.groups]
            found = set(_between(sides))
        case _:
            raise FaultNotConfirmed(f"{fault.kind} breaks no links")
    links = tuple(sorted(link for link in found if exists(cluster, link)))
    if not links:
        raise FaultNotConfirmed(f"aimed at nothing: {fault} names no link that there is")
    return links


def exists(cluster: Cluster, link: Link) -> bool:
    """Whether `source` ever connects to `target`: controllers that are not brokers open no connections to brokers."""
    source, target = link
    if source == target:
        return False
    to = cluster.node(target)
    if source == CLIENTS:
        return to.is_broker
    if cluster.spec.metadata.broker_controls and not cluster.node(source).is_broker:
        return False
    return to.is_controller or (cluster.node(source).is_broker and to.is_broker)


def _named(fault: LinkFault, aim: Aim) -> Iterator[Link]:
    source = fault.link.source
    froms = [CLIENTS] if source is None else [node.id for node in aim.of(source)]
    for target in aim.of(fault.link.target):
        for start in froms:
            yield Link(start, target.id)
            if fault.both_ways:
                yield Link(target.id, start)


def _isolated(fault: IsolateFault, aim: Aim, cluster: Cluster) -> Iterator[Link]:
    for node in aim.of(fault.target):
        for away in fault.away_from:
            if away in ("clients", "all"):
                yield Link(CLIENTS, node.id)
            for other in _others(cluster, node, away):
                yield Link(node.id, other)
                yield Link(other, node.id)


def _others(cluster: Cluster, node: Node, away: From) -> Iterator[int]:
    for other in cluster.nodes.values():
        if other.id == node.id:
            continue
        peer = (node.is_broker and other.is_broker) or (node.is_controller and other.is_controller)
        if (
            away == "all"
            or (away == "peers" and peer)
            or (away == "brokers" and other.is_broker)
            or (away == "controllers" and other.is_controller)
        ):
            yield other.id


def _members(group: Group, aim: Aim) -> set[int]:
    return {node.id for role in group.roles for node in aim.of(role)}


def _between(sides: Iterable[set[int]]) -> Iterator[Link]:
    for one, other in combinations(sides, 2):
        if both := one & other:
            raise FaultNotConfirmed(f"node {min(both)} holds roles of two groups; each node is on one side")
        for a in one:
            for b in other:
                yield Link(a, b)
                yield Link(b, a)
