"""Finds the nodes that hold a role (`leader(orders/0)`) now, by asking brokers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event as Flag
from typing import Final

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import Cluster
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.roles import Members, Role, RoleKind
from ackproof.observe.committed import partition_of_group
from ackproof.rundir.committed import OFFSETS_TOPIC
from ackproof.rundir.partition import TopicPartition, internal

RESOLVE_WITHIN_S: Final = 5.0
"""Maximum seconds to wait for a broker that knows the holder of a role."""
CREATED_WITHIN_S: Final = 30.0
"""Maximum seconds to wait for an internal topic, which brokers create when clients first need it."""


def find_holders(cluster: Cluster, role: Role, order: Sequence[int], stop: Flag) -> tuple[int, ...]:
    """Return the nodes that hold this role now, ascending; () if no node holds it.

    `order`: ids of all brokers in a random order; a role such as `broker` takes the first that qualify. In a cluster
    that ackproof did not start, brokers may have other ids. If `order` has an id that no broker has, each number in it
    is a position in the ascending ids of the brokers, from 1. Raises `WaitTimeout` if no broker knows in time the
    partition that the role names (for a coordinator, that of the group's offsets). Raises `Interrupted` when `stop` is
    set.
    """
    return role.find_nodes(lambda single: _holders(cluster, single, order, stop), cluster.spec.members.racks)


def _holders(cluster: Cluster, role: Role, order: Sequence[int], stop: Flag) -> tuple[int, ...]:
    members = Members(
        brokers=tuple(node.id for node in cluster.brokers()),
        controllers=tuple(node.id for node in cluster.controllers()),
    )
    topic = OFFSETS_TOPIC if role.group is not None else role.topic
    if topic is not None:
        own = internal(topic)
        state = wait_until(
            lambda: _state_of(cluster.topic_state([topic]), role),
            what=f"a broker to say who is {role}" + (", created when clients first need it" if own else ""),
            timeout_s=CREATED_WITHIN_S if own else RESOLVE_WITHIN_S,
            stop=stop,
        )
        members = replace(members, leader=state.leader, replicas=state.replicas, isr=state.isr)
    if role.kind is RoleKind.CONTROLLER and role.node is None:
        members = replace(members, active_controller=_controller(cluster, stop))
    if not set(order) <= set(members.brokers):
        # Positions are drawn, because the ids of a cluster that ackproof does not own need not count from 1.
        ids = sorted(members.brokers)
        order = [ids[position - 1] for position in order if 0 < position <= len(ids)]
    return role.resolve(members, order)


def _state_of(states: Mapping[TopicPartition, PartitionState], role: Role) -> PartitionState | None:
    """Return the state of the partition that the role names or, for a group's coordinator, of the partition of
    `__consumer_offsets` that has the group. None if `states` lacks it."""
    if role.group is not None:
        partition = partition_of_group(role.group, len(states)) if states else -1
        return states.get(TopicPartition(OFFSETS_TOPIC, partition))
    return states.get(TopicPartition(role.topic or "", role.partition or 0))


def _controller(cluster: Cluster, stop: Flag) -> int:
    """Return the id of the active controller; -1 if there is none or it is unknown. With ZooKeeper, wait up to
    `RESOLVE_WITHIN_S` seconds for one: there is none just after a controller was lost."""

    def find_active() -> tuple[int] | None:
        found = cluster.controller()
        return None if found is None else (found,)

    now = find_active()
    if now is None and cluster.spec.metadata.broker_controls:
        with contextlib.suppress(WaitTimeout):
            now = wait_until(
                find_active,
                what="an active controller",
                timeout_s=RESOLVE_WITHIN_S,
                interval_s=0.05,
                stop=stop,
            )
    return -1 if now is None else now[0]
