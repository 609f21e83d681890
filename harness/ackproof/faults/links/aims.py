"""Which links a fault breaks, once it is known who holds its roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.network.mesh import CLIENTS as CLIENTS
from ackproof.cluster.network.mesh import Link
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.links import Group
from ackproof.experiment.roles import Role
from ackproof.experiment.spec import ClusterSpec
from ackproof.faults.links.specification import BridgeFault, From, IsolateFault, LinkFault, SplitFault

Holders = Mapping[Role, Sequence[int]]
"""Who held each role of the fault when it was due, by number."""


def links_of(fault: FaultSpec, holders: Holders, spec: ClusterSpec) -> tuple[Link, ...]:
    """The links, sorted. Raises `FaultNotConfirmed` when there is none, or a node is on two sides."""
    match fault:
        case LinkFault():
            found = set(_named(fault, holders))
        case IsolateFault():
            found = set(_isolated(fault, holders, spec))
        case SplitFault():
            found = set(_between([_members(group, holders) for group in fault.groups]))
        case BridgeFault():
            bridge = set(holders[fault.over])
            found = set(_between([_members(group, holders) - bridge for group in fault.groups]))
        case _:
            raise FaultNotConfirmed(f"{fault.kind} breaks no links")
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


def _named(fault: LinkFault, holders: Holders) -> Iterator[Link]:
    source = fault.link.source
    froms = [CLIENTS] if source is None else holders[source]
    for target in holders[fault.link.target]:
        for start in froms:
            yield Link(start, target)
            if fault.both_ways:
                yield Link(target, start)


def _isolated(fault: IsolateFault, holders: Holders, spec: ClusterSpec) -> Iterator[Link]:
    for node in holders[fault.target]:
        for away in fault.away_from:
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


def _members(group: Group, holders: Holders) -> set[int]:
    return {node for role in group.roles for node in holders[role]}


def _between(sides: Iterable[set[int]]) -> Iterator[Link]:
    for one, other in combinations(sides, 2):
        if both := one & other:
            raise FaultNotConfirmed(f"node {min(both)} holds roles of two groups; each node is on one side")
        for a in one:
            for b in other:
                yield Link(a, b)
                yield Link(b, a)
