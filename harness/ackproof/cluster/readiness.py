"""Waiting until started nodes are ready, and until topics are created and usable."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ackproof.base.errors import BadInput, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster import queries
from ackproof.cluster.metadata.protocol import ASK_S, MetadataQuorum
from ackproof.cluster.node import ProcessNode
from ackproof.cluster.protocol import Cluster, Node
from ackproof.experiment.spec import TopicSpec
from ackproof.network.wire import Connection, Refused, WireError
from ackproof.rundir.partition import TopicPartition

_HEAD_START_S: Final = 1.0


@dataclass(frozen=True)
class Readiness:
    """Checks whether nodes are ready. `links`: connection to each broker. `running` returns the
    connections to brokers that run now."""

    quorum: MetadataQuorum
    links: Mapping[int, Connection]
    running: Callable[[], Mapping[int, Connection]]

    def sees(self, node: Node, brokers: Collection[int]) -> bool:
        """Return True if the node is ready: as a controller, it serves (`MetadataQuorum.serves`); as a broker, it sees
        all these brokers unfenced. False if it does not answer."""
        try:
            return self._serves(node) and (not node.is_broker or self._view(node.id) >= set(brokers))
        except WireError:
            return False

    def takes_part(self, node: Node) -> bool:
        """Return True if the node takes part in the cluster: as a controller, it serves (`MetadataQuorum.serves`). As a
        broker, it is seen unfenced by itself and, if another running broker answers, by that one. False if the node
        does not answer."""
        try:
            if not self._serves(node) or (node.is_broker and node.id not in self._view(node.id)):
                return False
        except WireError:
            return False
        # The first other broker that answers counts: its own view may be outdated.
        for peer in self.running() if node.is_broker else ():
            if peer != node.id:
                with contextlib.suppress(WireError):
                    return node.id in self._view(peer)
        return True

    def _serves(self, node: Node) -> bool:
        return not node.is_controller or self.quorum.serves(node.id)

    def _view(self, broker: int) -> frozenset[int]:
        return queries.brokers(self.links[broker], ASK_S / 2)


def give_head_start(controllers: Sequence[ProcessNode]) -> None:
    """Wait until each controller that lives has a log file (0.3 s), at most 1 s, before brokers compete with them for
    cores. Brokers that find no quorum back off: waiting saves 0.1 to 0.3 s on two cores."""
    with contextlib.suppress(WaitTimeout):
        wait_until(
            lambda: all(node.files.log.exists() or not node.alive for node in controllers),
            what="controllers to log",
            timeout_s=_HEAD_START_S,
            interval_s=0.005,
        )


_PARTITION_S: Final = 0.05
"""Seconds added to the time-out for each partition: a loaded machine takes minutes to open thousands of logs."""
_LOOK_S: Final = 0.0005
"""Seconds between two checks, per partition: checks must not take processor time from brokers that open logs."""
_EXISTS: Final = 36
_GOING: Final = "marked for deletion"
"""Text of Kafka's refusal, in ZooKeeper mode, to create a topic whose deletion is not complete
(ZkAdminManager.createTopics)."""
_USERS_FAULT: Final = frozenset({17, 37, 38, 39, 40, 42, 44})
"""Error codes after which asking again does not help: INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION."""


def create_topics(cluster: Cluster, topics: Mapping[str, TopicSpec], timeout_s: float) -> None:
    """Create topics, and wait until every running broker sees all leaders and full ISRs, and the leaders answer.

    `timeout_s`: limit of the creation in seconds. The wait gets what is left of it and 0.05 s for each partition,
    but at least 1 s. Raises `BadInput` if a topic exists already or is invalid for Kafka; after other refusals the
    request is repeated. Raises `NodeDied` if a node ends, `WaitTimeout` if it takes too long.
    """
    count = len(_places(topics))
    deadline = time.monotonic() + timeout_s + count * _PARTITION_S
    _create(cluster, topics, timeout_s)
    lacking: list[str] = []

    def usable() -> bool:
        cluster.check()
        lacking[:] = _missing(cluster, topics)
        return not lacking

    wait_until(
        usable,
        what=f"leaders and full ISRs of {', '.join(topics)}",
        timeout_s=max(1.0, deadline - time.monotonic()),
        interval_s=max(0.01, count * _LOOK_S),
        state=lambda: "; ".join(lacking[:5]) or "unknown",
    )


def _create(cluster: Cluster, topics: Mapping[str, TopicSpec], timeout_s: float) -> None:
    pending = dict(topics)
    asked_already = False
    reasons: list[str] = []

    def created() -> bool:
        nonlocal asked_already
        cluster.check()
        link = cluster.admin_link()
        if link is None:
            reasons[:] = ["no broker runs that can create them"]
            return False
        try:
            refused = _request(link, pending)
        except WireError as error:
            reasons[:] = [str(error)]
            asked_already = True
            return False
        for name in list(pending):
            why = refused.get(name)
            exists = why is not None and why.code == _EXISTS and _GOING not in str(why)
            if why is None or (asked_already and exists):
                del pending[name]
            elif exists or why.code in _USERS_FAULT:
                raise BadInput(str(why)) from why
        reasons[:] = [str(why) for why in refused.values()]
        asked_already = True
        return not pending

    wait_until(
        created,
        what=f"topics {', '.join(topics)} to be created",
        timeout_s=timeout_s,
        state=lambda: "; ".join(reasons),
    )


def _request(link: Connection, pending: Mapping[str, TopicSpec]) -> dict[str, Refused]:
    """Ask the broker once for each pending topic: by a Metadata request if the topic is `auto_created`, else by
    CreateTopics. Return the topics that it refused or that do not exist yet, each with the error."""
    automatic = [name for name, topic in pending.items() if topic.auto_created]
    made = {name: topic for name, topic in pending.items() if not topic.auto_created}
    refused = queries.create_topics(link, made, 5.0) if made else {}
    return refused | (queries.auto_create_topics(link, automatic) if automatic else {})


def _missing(cluster: Cluster, topics: Mapping[str, TopicSpec]) -> list[str]:
    """Return what the topics still lack, in words; empty if nothing.

    Each running broker must know every partition with a leader and all replicas in the ISR, because clients may ask any
    broker. Then each leader must answer for its partitions.
    """
    lacking: list[str] = []
    for broker, link in cluster.running_links().items():
        try:
            view = queries.partitions(link, topics)
        except WireError as error:
            lacking.append(f"broker {broker}: {error}")
            continue
        for place in _places(topics):
            state = view.get(place)
            if state is None:
                lacking.append(f"broker {broker} does not know {place}")
            elif state.leader < 0 or set(state.isr) != set(state.replicas):
                lacking.append(
                    f"broker {broker} sees {place} led by {state.leader} with ISR {list(state.isr)}"
                )
    if not lacking:
        ends = cluster.partition_ends(topics)
        lacking = [
            f"the leader of {place} does not answer for it"
            for place in _places(topics)
            if place not in ends or ends[place].high_watermark < 0
        ]
    return lacking


def _places(topics: Mapping[str, TopicSpec]) -> list[TopicPartition]:
    return [
        TopicPartition(name, number) for name, topic in topics.items() for number in range(topic.partitions)
    ]
