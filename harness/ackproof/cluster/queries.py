"""What the harness asks of nodes, as questions and as readers of their answers (`wire`).

Versions are fixed to what every release from 3.9 to 4.3 understands. Offsets are asked with ListOffsets:
as a consumer at the leader (high watermark, last stable offset, log start), or as a *debugging replica*
(replica id -2), which any replica answers with its own log end offset (ReplicaManager.fetchOffset).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ackproof.cluster.access import KRAFT, Access
from ackproof.cluster.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from ackproof.cluster.protocol import PartitionState
from ackproof.cluster.wire import Connection, Question, Refused, WireError
from ackproof.experiment.spec import TopicSpec
from ackproof.rundir.partition import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
DEBUGGING_REPLICA: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_METADATA_LOG: Final = "__cluster_metadata"
_LIST_OFFSETS, _METADATA, _QUORUM, _CLUSTER, _CREATE, _DELETE = 5, 9, 1, 1, 5, 5
_NO_ERROR: Final = 0
_ROW_LIMIT: Final = 2000


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the metadata quorum, or a broker that observes it. `log_end` -1: not known to the leader."""

    node: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """The metadata quorum as its leader (the active controller) sees it."""

    leader: int
    epoch: int
    high_watermark: int
    voters: tuple[Voter, ...]
    observers: tuple[Voter, ...]


# -- questions --------------------------------------------------------------------------------------------------


def ask_brokers() -> Question:
    """Metadata without topics."""
    return Question(MetadataRequest(topics=[], version=_METADATA), MetadataResponse, _METADATA)


def ask_partitions(
    topics: Iterable[str], access: Access = KRAFT, cursor: tuple[str, int] | None = None
) -> Question:
    """Leaders, epochs, ISRs, eligible leader replicas: DescribeTopicPartitions, or Metadata where need be."""
    if not access.describes_partitions:
        return _ask_metadata(sorted(set(topics)))
    kind = DescribeTopicPartitionsRequest
    request = kind(
        topics=[kind.TopicRequest(name=topic, version=0) for topic in sorted(set(topics))],
        response_partition_limit=_ROW_LIMIT,
        cursor=None
        if cursor is None
        else kind.Cursor(topic_name=cursor[0], partition_index=cursor[1], version=0),
        version=0,
    )
    return Question(request, DescribeTopicPartitionsResponse, 0)


def _ask_metadata(topics: Iterable[str]) -> Question:
    kind, version = MetadataRequest, _METADATA
    request = kind(
        topics=[kind.MetadataRequestTopic(name=name, version=version) for name in topics],
        allow_auto_topic_creation=False,
        version=version,
    )
    return Question(request, MetadataResponse, version)


def ask_offsets(
    partitions: Iterable[TopicPartition],
    *,
    what: int,
    replica: int = CONSUMER,
    isolation: int = READ_UNCOMMITTED,
) -> Question:
    """ListOffsets for `what` (LATEST or EARLIEST) of each partition, in the name of `replica`."""
    version = _LIST_OFFSETS
    topic_kind = ListOffsetsRequest.ListOffsetsTopic
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    request = ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=[
            topic_kind(
                name=topic,
                partitions=[
                    topic_kind.ListOffsetsPartition(partition_index=number, timestamp=what, version=version)
                    for number in numbers
                ],
                version=version,
            )
            for topic, numbers in by_topic.items()
        ],
        version=version,
    )
    return Question(request, ListOffsetsResponse, version)


def ask_log_ends(partitions: Iterable[TopicPartition]) -> Question:
    """The asked broker's own log end offsets, whether it leads or follows."""
    return ask_offsets(partitions, what=LATEST, replica=DEBUGGING_REPLICA)


# -- answers ----------------------------------------------------------------------------------------------------


def read_brokers(response: Any) -> frozenset[int]:  # noqa: ANN401 — kafka-python's messages are untyped
    """Ids of the brokers that are registered and unfenced, as the asked broker sees it."""
    return frozenset(broker.node_id for broker in response.brokers)


def read_partitions(response: Any) -> dict[TopicPartition, PartitionState]:  # noqa: ANN401
    """The partitions that the asked broker knows; topics unknown to it are missing."""
    found: dict[TopicPartition, PartitionState] = {}
    for topic in response.topics:
        if topic.error_code != _NO_ERROR:
            continue
        for row in topic.partitions:
            found[TopicPartition(topic.name, row.partition_index)] = PartitionState(
                topic=topic.name,
                partition=row.partition_index,
                leader=row.leader_id,
                leader_epoch=row.leader_epoch,
                replicas=tuple(row.replica_nodes),
                isr=tuple(row.isr_nodes),
                eligible=tuple(getattr(row, "eligible_leader_replicas", None) or ()),
            )
    return found


def read_offsets(response: Any) -> dict[TopicPartition, int]:  # noqa: ANN401
    """Offsets of the partitions that the broker could answer for; the others (not the leader, …) are missing."""
    return {
        TopicPartition(topic.name, row.partition_index): row.offset
        for topic in response.topics
        for row in topic.partitions
        if row.error_code == _NO_ERROR
    }


# -- whole exchanges --------------------------------------------------------------------------------------------


def brokers(connection: Connection, timeout_s: float | None = None) -> frozenset[int]:
    """Ids of the brokers that are registered and unfenced, as this broker sees it. Raises `WireError`."""
    return read_brokers(connection.ask(ask_brokers(), timeout_s=timeout_s))


def partitions(
    connection: Connection, topics: Iterable[str], timeout_s: float | None = None
) -> dict[TopicPartition, PartitionState]:
    """All partitions of these topics, page by page. Raises `WireError`."""
    wanted = tuple(topics)
    found: dict[TopicPartition, PartitionState] = {}
    cursor: tuple[str, int] | None = None
    while True:
        response = connection.ask(ask_partitions(wanted, connection.access, cursor), timeout_s=timeout_s)
        found |= read_partitions(response)
        following = getattr(response, "next_cursor", None)
        if following is None:
            return found
        cursor = (following.topic_name, following.partition_index)


def quorum(connection: Connection, timeout_s: float | None = None) -> Quorum:
    """The metadata quorum. Only its leader answers; a broker passes the question on. Raises `WireError`."""
    kind = DescribeQuorumRequest
    request = kind(
        topics=[
            kind.TopicData(
                topic_name=_METADATA_LOG,
                partitions=[kind.TopicData.PartitionData(partition_index=0, version=_QUORUM)],
                version=_QUORUM,
            )
        ],
        version=_QUORUM,
    )
    response = connection.ask(Question(request, DescribeQuorumResponse, _QUORUM), timeout_s=timeout_s)
    _check("DescribeQuorum", response.error_code, None)
    if not response.topics or not response.topics[0].partitions:
        raise WireError("DescribeQuorum: the node says nothing of the metadata log")
    row = response.topics[0].partitions[0]
    _check("DescribeQuorum", row.error_code, None)
    return Quorum(
        leader=row.leader_id,
        epoch=row.leader_epoch,
        high_watermark=row.high_watermark,
        voters=_members(row.current_voters),
        observers=_members(row.observers),
    )


def quorum_leader(controller: Connection, timeout_s: float | None = None) -> int:
    """The quorum's leader as this controller knows it, -1 none. For controllers only. Raises `WireError`."""
    request = DescribeClusterRequest(endpoint_type=2, version=_CLUSTER)
    response = controller.ask(Question(request, DescribeClusterResponse, _CLUSTER), timeout_s=timeout_s)
    _check("DescribeCluster", response.error_code, response.error_message)
    return int(response.controller_id)


def create_topics(
    connection: Connection, topics: Mapping[str, TopicSpec], timeout_s: float
) -> dict[str, Refused]:
    """Create topics. Returns those that were refused, and why. Raises `Unreachable` without an answer."""
    kind, version = CreateTopicsRequest.CreatableTopic, _CREATE
    rows = [
        kind(
            name=name,
            num_partitions=-1 if topic.assignment else topic.partitions,
            replication_factor=-1 if topic.assignment else topic.replication_factor,
            assignments=[
                kind.CreatableReplicaAssignment(partition_index=i, broker_ids=list(replicas), version=version)
                for i, replicas in enumerate(topic.assignment or ())
            ],
            configs=[
                kind.CreatableTopicConfig(name=key, value=value, version=version)
                for key, value in topic.config.items()
            ],
            version=version,
        )
        for name, topic in topics.items()
    ]
    request = CreateTopicsRequest(topics=rows, timeout_ms=int(timeout_s * 1000), version=version)
    response = connection.ask(Question(request, CreateTopicsResponse, version), timeout_s=timeout_s + 1.0)
    return {
        row.name: Refused(f"topic {row.name} cannot be created", row.error_code, row.error_message)
        for row in response.topics
        if row.error_code != _NO_ERROR
    }


def delete_topics(connection: Connection, topics: Iterable[str], timeout_s: float) -> None:
    """Delete topics. Raises `Refused` for the first that is refused, `Unreachable` without an answer."""
    request = DeleteTopicsRequest(topic_names=list(topics), timeout_ms=int(timeout_s * 1000), version=_DELETE)
    response = connection.ask(Question(request, DeleteTopicsResponse, _DELETE), timeout_s=timeout_s + 1.0)
    for row in response.responses:
        _check(f"topic {row.name} could not be deleted", row.error_code, row.error_message)


def _members(rows: Iterable[Any]) -> tuple[Voter, ...]:
    return tuple(Voter(row.replica_id, row.log_end_offset) for row in rows)


def _check(asked: str, code: int, message: str | None) -> None:
    if code != _NO_ERROR:
        raise Refused(asked, code, message)
