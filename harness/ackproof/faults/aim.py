"""Whom a fault hits: the nodes that hold a role at this moment, as the protocol says."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from threading import Event as Flag
from typing import Final

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import Cluster
from ackproof.experiment.roles import Members, Role, RoleKind
from ackproof.rundir.partition import TopicPartition, internal

RESOLVE_WITHIN_S: Final = 5.0
"""How long a role may wait for a broker that answers."""
CREATED_WITHIN_S: Final = 30.0
"""How long it may wait for a topic of Kafka's own, which the brokers create when clients first need it."""


def holders(cluster: Cluster, role: Role, order: Sequence[int], stop: Flag) -> tuple[int, ...]:
    """The nodes that hold this role now; empty when nobody does. `order` is the draw of `Role.resolve`.

    Raises `WaitTimeout` when no broker can tell who holds a partition, `Interrupted` when `stop` is set.
    """
    return role.find_nodes(lambda one: _holders(cluster, one, order, stop), cluster.spec.members.racks)


def _holders(cluster: Cluster, role: Role, order: Sequence[int], stop: Flag) -> tuple[int, ...]:
    members = Members(
        brokers=tuple(node.id for node in cluster.brokers()),
        controllers=tuple(node.id for node in cluster.controllers()),
    )
    if role.topic is not None and role.partition is not None:
        place = TopicPartition(role.topic, role.partition)
        own = internal(place.topic)
        state = wait_until(
            lambda: cluster.topic_state([place.topic]).get(place),
            what=f"a broker to say who holds {place}"
            + (", created when clients first need it" if own else ""),
            timeout_s=CREATED_WITHIN_S if own else RESOLVE_WITHIN_S,
            stop=stop,
        )
        members = replace(members, leader=state.leader, replicas=state.replicas, isr=state.isr)
    if role.kind is RoleKind.CONTROLLER and role.node is None:
        members = replace(members, active_controller=_controller(cluster, stop))
    return role.resolve(members, _drawn(order, members.brokers))


def _controller(cluster: Cluster, stop: Flag) -> int:
    """The active controller, -1 none. With ZooKeeper there is none for a moment after it, or ZooKeeper, was gone."""

    def told() -> tuple[int] | None:
        found = cluster.controller()
        return None if found is None else (found,)

    now = told()
    if now is None and cluster.spec.metadata.broker_controls:
        with contextlib.suppress(WaitTimeout):
            now = wait_until(
                told, what="an active controller", timeout_s=RESOLVE_WITHIN_S, interval_s=0.05, stop=stop
            )
    return -1 if now is None else now[0]


def _drawn(order: Sequence[int], brokers: Sequence[int]) -> Sequence[int]:
    """The draw, in ids that there are: those of a cluster that someone else runs need not count from 1."""
    if set(order) <= set(brokers):
        return order
    ids = sorted(brokers)
    return [ids[place - 1] for place in order if 0 < place <= len(ids)]
