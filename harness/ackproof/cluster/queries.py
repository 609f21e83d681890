"""Questions to nodes, and readers of their answers (`network.wire`).

Versions are those that every release from 3.9 to 4.3 understands. Offsets are asked with ListOffsets:
as a consumer at the leader (high watermark, last stable offset, log start), or as a *debugging replica*
(replica id -2), which any replica answers with its own log end offset (ReplicaManager.fetchOffset).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ackproof.cluster.protocol import PartitionState
from ackproof.experiment.spec import TopicSpec
from ackproof.network.wire import KRAFT, Access, Connection, Question, Refused, WireError, check
from ackproof.rundir.partition import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
DEBUGGING_REPLICA: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_ANY_EPOCH: Final = -1

_METADATA: Final = 9
_ROW_LIMIT: Final = 2000


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address at which a controller listens."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter or observer of the metadata quorum. `log_end` -1: not known to the leader.

    Without them in the leader's answer, directory is None and endpoints are empty.
    """

    node: int
    log_end: int
    directory: uuid.UUID | None = None
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Quorum:
    """The metadata quorum as its leader (the active controller) sees it."""

    leader: int
    epoch: int
    high_watermark: int
    voters: tuple[Voter, ...]
    observers: tuple[Voter, ...]

    def voter(self, node: int) -> Voter | None:
        """Return this voter, None if the node is none."""
        return next((voter for voter in self.voters if voter.node == node), None)


# -- questions --------------------------------------------------------------------------------------------------


def ask_brokers() -> Question:
    """Ask for metadata without topics."""
    return Question("Metadata", _METADATA, topics=[])


def ask_partitions(
    topics: Iterable[str],
    access: Access = KRAFT,
    cursor: Any = None,  # noqa: ANN401 — kafka-python's messages are untyped
) -> Question:
    """Ask for leaders, epochs, ISRs and ELRs: DescribeTopicPartitions, or Metadata for brokers without it.

    `cursor`: the end of the page before.
    """
    wanted = sorted(set(topics))
    if not access.describes_partitions:
        return Question("Metadata", _METADATA, topics=wanted, allow_auto_topic_creation=False)
    return Question(
        "DescribeTopicPartitions", 0, topics=wanted, response_partition_limit=_ROW_LIMIT, cursor=cursor
    )


def ask_offsets(
    partitions: Iterable[TopicPartition],
    *,
    what: int,
    replica: int = CONSUMER,
    isolation: int = READ_UNCOMMITTED,
) -> Question:
    """Ask for offsets `what` (LATEST or EARLIEST) of each partition, in the name of `replica` (ListOffsets)."""
    by_topic: dict[str, list[tuple[int, int, int]]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append((partition, _ANY_EPOCH, what))
    return Question(
        "ListOffsets", 5, replica_id=replica, isolation_level=isolation, topics=list(by_topic.items())
    )


def ask_log_ends(partitions: Iterable[TopicPartition]) -> Question:
    """Ask a broker for its own log end offsets, as leader or follower."""
    return ask_offsets(partitions, what=LATEST, replica=DEBUGGING_REPLICA)


def ask_high_watermark(place: TopicPartition) -> Question:
    """Ask a broker for its own high watermark, as leader or follower: followers answer consumers too (KIP-392)."""
    rows = [(place.topic, [(place.partition, _ANY_EPOCH, 0, -1, 1)])]
    return Question(
        "Fetch",
        11,
        replica_id=CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=READ_UNCOMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=rows,
        forgotten_topics_data=[],
        rack_id="",
    )


# -- answers ----------------------------------------------------------------------------------------------------


def read_brokers(response: Any) -> frozenset[int]:  # noqa: ANN401 — kafka-python's messages are untyped
    """Return the ids of the brokers that are registered and unfenced in this broker's view."""
    return frozenset(broker.node_id for broker in response.brokers)


def read_partitions(response: Any) -> dict[TopicPartition, PartitionState]:  # noqa: ANN401
    """Return the partitions in a broker's answer; topics unknown to it are missing."""
    return {
        TopicPartition(topic.name, row.partition_index): PartitionState(
            topic=topic.name,
            partition=row.partition_index,
            leader=row.leader_id,
            leader_epoch=row.leader_epoch,
            replicas=tuple(row.replica_nodes),
            isr=tuple(row.isr_nodes),
            eligible=tuple(getattr(row, "eligible_leader_replicas", None) or ()),
        )
        for topic in response.topics
        if not topic.error_code
        for row in topic.partitions
    }


def read_offsets(response: Any) -> dict[TopicPartition, int]:  # noqa: ANN401
    """Return offsets; partitions for which the broker could not answer (not the leader, …) are missing."""
    return {
        TopicPartition(topic.name, row.partition_index): row.offset
        for topic in response.topics
        for row in topic.partitions
        if not row.error_code
    }


def read_high_watermark(response: Any) -> int | None:  # noqa: ANN401
    """Return the high watermark of the one partition in question, None if the broker does not answer for it."""
    (row,) = [row for topic in response.responses for row in topic.partitions] or [None]
    return None if row is None or row.error_code else int(row.high_watermark)


# -- whole exchanges --------------------------------------------------------------------------------------------


def brokers(connection: Connection, timeout_s: float | None = None) -> frozenset[int]:
    """Return the ids of the brokers that are registered and unfenced in this broker's view. Raises `WireError`."""
    return read_brokers(connection.ask(ask_brokers(), timeout_s=timeout_s))


def partitions(
    connection: Connection, topics: Iterable[str], timeout_s: float | None = None
) -> dict[TopicPartition, PartitionState]:
    """Return all partitions of these topics, page by page. Raises `WireError`."""
    wanted = tuple(topics)
    return read_pages(
        connection, wanted, connection.ask(ask_partitions(wanted, connection.access), timeout_s=timeout_s)
    )


def read_pages(
    connection: Connection,
    topics: Iterable[str],
    response: Any,  # noqa: ANN401 — kafka-python's messages are untyped
) -> dict[TopicPartition, PartitionState]:
    """Read the first answer to `ask_partitions` and ask for the further pages. Raises `WireError`.

    A page has at most 2,000 partitions (max.request.partition.size.limit).
    """
    found = read_partitions(response)
    while (cursor := getattr(response, "next_cursor", None)) is not None:
        response = connection.ask(ask_partitions(topics, connection.access, cursor))
        found |= read_partitions(response)
    return found


def topic_id(connection: Connection, topic: str) -> str:
    """Return the id of a topic, in hexadecimal digits. Raises `WireError`, also if there is no such topic."""
    response = connection.ask(ask_partitions((topic,), connection.access))
    found = next((row for row in response.topics if row.name == topic and not row.error_code), None)
    if found is None:
        raise WireError(f"there is no topic {topic}")
    return f"{found.topic_id.int:032x}"


def quorum(connection: Connection, timeout_s: float | None = None, *, directories: bool = False) -> Quorum:
    """Return the metadata quorum. Only its leader answers; a broker passes the question on. Raises `WireError`.

    `directories`: with directory and endpoints of each voter, which 3.9 and later know.
    """
    version = 2 if directories else 1
    question = Question("DescribeQuorum", version, topics=[("__cluster_metadata", [0])])
    response = connection.ask(question, timeout_s=timeout_s)
    check("DescribeQuorum", response.error_code, response.error_message)
    if not response.topics or not response.topics[0].partitions:
        raise WireError("DescribeQuorum: the node says nothing of the metadata log")
    row = response.topics[0].partitions[0]
    check("DescribeQuorum", row.error_code, row.error_message)
    endpoints = {
        node.node_id: tuple(Endpoint(point.name, point.host, point.port) for point in node.listeners)
        for node in response.nodes or ()
    }

    def members(states: Iterable[Any]) -> tuple[Voter, ...]:
        return tuple(
            Voter(
                state.replica_id,
                state.log_end_offset,
                state.replica_directory_id,
                endpoints.get(state.replica_id, ()),
            )
            for state in states
        )

    return Quorum(
        leader=row.leader_id,
        epoch=row.leader_epoch,
        high_watermark=row.high_watermark,
        voters=members(row.current_voters),
        observers=members(row.observers),
    )


def quorum_leader(controller: Connection, timeout_s: float | None = None) -> int:
    """Return the quorum's leader in this controller's view, -1 for none. Raises `WireError`."""
    response = controller.ask(Question("DescribeCluster", 1, endpoint_type=2), timeout_s=timeout_s)
    check("DescribeCluster", response.error_code, response.error_message)
    return int(response.controller_id)


def create_topics(
    connection: Connection, topics: Mapping[str, TopicSpec], timeout_s: float
) -> dict[str, Refused]:
    """Create topics. Return those that were refused, with the reason. Raises `Unreachable` without an answer."""
    rows = [
        (
            name,
            -1 if topic.assignment else topic.partitions,
            -1 if topic.assignment else topic.replication_factor,
            [(i, list(replicas)) for i, replicas in enumerate(topic.assignment or ())],
            list(topic.config.items()),
        )
        for name, topic in topics.items()
    ]
    question = Question("CreateTopics", 5, topics=rows, timeout_ms=int(timeout_s * 1000))
    response = connection.ask(question, timeout_s=timeout_s + 1.0)
    return {
        row.name: Refused(f"topic {row.name} cannot be created", row.error_code, row.error_message)
        for row in response.topics
        if row.error_code
    }


def auto_create_topics(connection: Connection, topics: Iterable[str]) -> dict[str, Refused]:
    """Ask for topics, which makes a broker create missing ones (auto.create.topics.enable).

    Return those that it does not know yet, with its answer. Raises `Unreachable` without an answer.
    """
    wanted = sorted(topics)
    question = Question("Metadata", _METADATA, topics=wanted, allow_auto_topic_creation=True)
    return {
        topic.name: Refused(f"topic {topic.name} is not there yet", topic.error_code)
        for topic in connection.ask(question).topics
        if topic.error_code
    }


def delete_topics(connection: Connection, topics: Iterable[str], timeout_s: float) -> None:
    """Delete topics. Raises `Refused` for the first one refused, `Unreachable` without an answer."""
    question = Question("DeleteTopics", 5, topic_names=list(topics), timeout_ms=int(timeout_s * 1000))
    for row in connection.ask(question, timeout_s=timeout_s + 1.0).responses:
        check(f"topic {row.name} could not be deleted", row.error_code, row.error_message)


def delete_records(
    connection: Connection, offsets: Mapping[TopicPartition, int], timeout_s: float = 5.0
) -> None:
    """Delete records before these offsets, at their leader.

    Raises `Refused` for the first partition refused, `Unreachable` without an answer.
    """
    rows = [(place.topic, [(place.partition, offset)]) for place, offset in offsets.items()]
    question = Question("DeleteRecords", 2, topics=rows, timeout_ms=int(timeout_s * 1000))
    for topic in connection.ask(question, timeout_s=timeout_s + 1.0).topics:
        for row in topic.partitions:
            check(f"deletion of records of {topic.name}/{row.partition_index}", row.error_code)
