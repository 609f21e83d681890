"""Protocol requests to nodes, and functions that read the responses (`network.wire`).

Versions are those that every release from 3.9 to 4.4 understands. Brokers without DescribeTopicPartitions get Metadata
requests. ListOffsets asks the leader as a consumer does, for high watermark, last stable offset and log start. A
*debugging replica* (id -2) that sends it gets from any replica its own log end offset (ReplicaManager.fetchOffset).
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

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
ANSWERS_WITHIN_S: Final = 1.0
"""Time-out in seconds of a metadata request. A live broker answers within milliseconds."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition in the metadata of a broker or ZooKeeper. `leader` -1: no leader. `eligible`: the partition's ELR
    (KIP-966), empty if ELRs are off or the server does not report them."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """Offsets of a partition from its leader; -1: unknown. `leader_epoch`: read just after the offsets. `start`: log
    start offset. `log_end`: the leader's own log end offset (requested as a debugging replica)."""

    leader: int
    leader_epoch: int
    start: int
    high_watermark: int
    last_stable: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of the metadata quorum.

    `directory` and `endpoints` (name, host and port of each listener) are None and empty unless `quorum` was called
    with `directories`.
    """

    node: int
    directory: uuid.UUID | None = None
    endpoints: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Quorum:
    """The metadata quorum, as its leader with node id `leader` sees it."""

    leader: int
    epoch: int
    voters: tuple[Voter, ...]

    def voter(self, node: int) -> Voter | None:
        """Return the voter with this node id; None if that node is no voter."""
        return next((voter for voter in self.voters if voter.node == node), None)


def ask_brokers() -> Question:
    """Return a Metadata request for no topics, whose response lists the brokers."""
    return Question("Metadata", _METADATA, topics=[])


def ask_partitions(
    topics: Iterable[str],
    access: Access = KRAFT,
    cursor: Any = None,  # noqa: ANN401 — kafka-python's messages are untyped
) -> Question:
    """Return a request for leaders, epochs, ISRs, ELRs: DescribeTopicPartitions, or Metadata for older brokers.

    `topics` empty: all. `access`: says which request the brokers support. `cursor`: `next_cursor` of the page before.
    """
    wanted = sorted(set(topics))
    if not access.describes_partitions:
        return Question("Metadata", _METADATA, topics=wanted or None, allow_auto_topic_creation=False)
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
    """Return a ListOffsets request for the LATEST or EARLIEST offset (`what`) of each partition.

    `replica`: CONSUMER, or DEBUGGING_REPLICA, to which every replica answers with its own log end. With `isolation`
    READ_COMMITTED the LATEST offset is the last stable one, else the high watermark.
    """
    by_topic: dict[str, list[tuple[int, int, int]]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append((partition, _ANY_EPOCH, what))
    return Question(
        "ListOffsets", 5, replica_id=replica, isolation_level=isolation, topics=list(by_topic.items())
    )


def ask_log_ends(partitions: Iterable[TopicPartition]) -> Question:
    """Return a request to any replica, leader or follower, for its own log end offsets."""
    return ask_offsets(partitions, what=LATEST, replica=DEBUGGING_REPLICA)


def ask_high_watermark(place: TopicPartition) -> Question:
    """Return a request to any replica for its own high watermark, as a consumer sends it: followers answer it too
    (KIP-392). It is a Fetch at offset 0, so a replica whose log begins later gives none."""
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


def read_brokers(response: Any) -> frozenset[int]:  # noqa: ANN401 — kafka-python's messages are untyped
    """Return the brokers in a Metadata response: those registered and unfenced in the responding broker's view."""
    return frozenset(broker.node_id for broker in response.brokers)


def read_partitions(response: Any) -> dict[TopicPartition, PartitionState]:  # noqa: ANN401
    """Return the partitions in the response to `ask_partitions`; topics that the broker does not know are missing."""
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
    """Return the offsets in a ListOffsets response, without partitions that have an error
    (NOT_LEADER_OR_FOLLOWER, …)."""
    return {
        TopicPartition(topic.name, row.partition_index): row.offset
        for topic in response.topics
        for row in topic.partitions
        if not row.error_code
    }


def read_high_watermark(response: Any) -> int | None:  # noqa: ANN401
    """Return the high watermark in the response to `ask_high_watermark`; None if the broker gives none."""
    (row,) = [row for topic in response.responses for row in topic.partitions] or [None]
    return None if row is None or row.error_code else int(row.high_watermark)


def brokers(connection: Connection, timeout_s: float | None = None) -> frozenset[int]:
    """Return the registered, unfenced brokers according to the connected broker. `timeout_s` None: the connection's
    time limit. Raises `WireError` without a usable answer."""
    return read_brokers(connection.ask(ask_brokers(), timeout_s=timeout_s))


def partitions(
    connection: Connection, topics: Iterable[str], timeout_s: float | None = None
) -> dict[TopicPartition, PartitionState]:
    """Return all partitions of these topics (empty: of all topics), page by page; unknown topics are missing.
    `timeout_s`: limit of the first request; None: the connection's. Raises `WireError` without a usable answer."""
    wanted = tuple(topics)
    return read_pages(
        connection, wanted, connection.ask(ask_partitions(wanted, connection.access), timeout_s=timeout_s)
    )


def read_pages(
    connection: Connection,
    topics: Iterable[str],
    response: Any,  # noqa: ANN401 — kafka-python's messages are untyped
) -> dict[TopicPartition, PartitionState]:
    """Return the partitions in `response`, the first answer to `ask_partitions` for these topics, and in all further
    pages. Raises `WireError` if the broker gives no usable answer.

    A page has at most 2,000 partitions (max.request.partition.size.limit).
    """
    found = read_partitions(response)
    while (cursor := getattr(response, "next_cursor", None)) is not None:
        response = connection.ask(ask_partitions(topics, connection.access, cursor))
        found |= read_partitions(response)
    return found


def first_answering_link(links: Mapping[int, Connection]) -> Connection | None:
    """Return the first link whose broker answers within `ANSWERS_WITHIN_S`, else the first link; None without links."""
    for link in links.values():
        with contextlib.suppress(WireError):
            brokers(link, ANSWERS_WITHIN_S)
            return link
    return next(iter(links.values()), None)


def merge_views(
    views: Iterable[Mapping[TopicPartition, PartitionState]],
) -> dict[TopicPartition, PartitionState]:
    """Return the state of each partition from the views of several brokers: the newest leader epoch wins, then the most
    frequent state, then the first."""
    counts: dict[TopicPartition, Counter[PartitionState]] = {}
    for view in views:
        for place, state in view.items():
            counts.setdefault(place, Counter())[state] += 1
    merged: dict[TopicPartition, PartitionState] = {}
    for place, states in counts.items():
        newest = max(state.leader_epoch for state in states)
        # max() keeps the first of equals, and a Counter the order of arrival.
        merged[place] = max(
            (state for state in states if state.leader_epoch == newest), key=lambda state: states[state]
        )
    return merged


def partition_ends_at(
    leader: int, connection: Connection, places: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionEnds]:
    """Ask broker `leader`, to which `connection` leads, for the offsets of these partitions, in one exchange.

    Partitions that it does not lead are missing. The leader epoch is read last: if it changes meanwhile, `leader_epoch`
    is the new epoch, and the offsets may be those of the old one. Raises `WireError` without a usable answer.
    """
    wanted = sorted(places)
    starts, highs, stables, log_ends, view = connection.ask_all(
        [
            ask_offsets(wanted, what=EARLIEST),
            ask_offsets(wanted, what=LATEST),
            ask_offsets(wanted, what=LATEST, isolation=READ_COMMITTED),
            ask_log_ends(wanted),
            ask_partitions({place.topic for place in wanted}, connection.access),
        ]
    )
    start, high, stable, end = (read_offsets(answer) for answer in (starts, highs, stables, log_ends))
    states = read_pages(connection, {place.topic for place in wanted}, view)
    return {
        place: PartitionEnds(
            leader=leader,
            leader_epoch=states[place].leader_epoch,
            start=start.get(place, -1),
            high_watermark=high.get(place, -1),
            last_stable=stable.get(place, -1),
            log_end=end.get(place, -1),
        )
        for place in wanted
        if place in states and states[place].leader == leader
    }


def topic_id(connection: Connection, topic: str) -> str:
    """Return a topic's id as 32 hex digits; KRaft only. Raises `WireError` without an answer, or without the topic."""
    response = connection.ask(ask_partitions((topic,), connection.access))
    found = next((row for row in response.topics if row.name == topic and not row.error_code), None)
    if found is None:
        raise WireError(f"there is no topic {topic}")
    return f"{found.topic_id.int:032x}"


def quorum(connection: Connection, timeout_s: float | None = None, *, directories: bool = False) -> Quorum:
    """Return the metadata quorum as its leader sees it; any broker forwards the request. `timeout_s` None: that of the
    connection. `directories`: also request directory ids and endpoints. Raises `WireError` without a usable answer."""
    version = 2 if directories else 1
    question = Question("DescribeQuorum", version, topics=[("__cluster_metadata", [0])])
    response = connection.ask(question, timeout_s=timeout_s)
    check("DescribeQuorum", response.error_code, response.error_message)
    if not response.topics or not response.topics[0].partitions:
        raise WireError("DescribeQuorum: the node says nothing of the metadata log")
    row = response.topics[0].partitions[0]
    check("DescribeQuorum", row.error_code, row.error_message)
    endpoints = {
        node.node_id: tuple((point.name, point.host, point.port) for point in node.listeners)
        for node in response.nodes or ()
    }
    voters = tuple(
        Voter(one.replica_id, one.replica_directory_id, endpoints.get(one.replica_id, ()))
        for one in row.current_voters
    )
    return Quorum(row.leader_id, row.leader_epoch, voters)


def quorum_leader(controller: Connection, timeout_s: float | None = None) -> int:
    """Return the quorum's leader as this controller knows it; -1: none. Raises `WireError` without a usable answer."""
    response = controller.ask(Question("DescribeCluster", 1, endpoint_type=2), timeout_s=timeout_s)
    check("DescribeCluster", response.error_code, response.error_message)
    return int(response.controller_id)


def create_topics(
    connection: Connection, topics: Mapping[str, TopicSpec], timeout_s: float
) -> dict[str, Refused]:
    """Create topics; return the refused ones by name, with Kafka's error. Raises `Unreachable` without an answer."""
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
    """Request metadata of topics, so that the broker creates missing topics (auto.create.topics.enable). Return the
    topics that the broker does not know yet, with its error. Raises `Unreachable` without an answer."""
    wanted = sorted(topics)
    question = Question("Metadata", _METADATA, topics=wanted, allow_auto_topic_creation=True)
    return {
        topic.name: Refused(f"topic {topic.name} is not there yet", topic.error_code)
        for topic in connection.ask(question).topics
        if topic.error_code
    }


def delete_topics(connection: Connection, topics: Iterable[str], timeout_s: float) -> None:
    """Delete topics. Raises `Refused` with Kafka's error for the first refused topic (others may be deleted then),
    `Unreachable` without an answer."""
    question = Question("DeleteTopics", 5, topic_names=list(topics), timeout_ms=int(timeout_s * 1000))
    for row in connection.ask(question, timeout_s=timeout_s + 1.0).responses:
        check(f"topic {row.name} could not be deleted", row.error_code, row.error_message)


def delete_records(
    connection: Connection, offsets: Mapping[TopicPartition, int], timeout_s: float = 5.0
) -> None:
    """Delete the records before these offsets. `connection` leads to the leader of all these partitions.

    Raises `Refused` for the first refused partition (others may be done then), `Unreachable` without an answer.
    """
    rows = [(place.topic, [(place.partition, offset)]) for place, offset in offsets.items()]
    question = Question("DeleteRecords", 2, topics=rows, timeout_ms=int(timeout_s * 1000))
    for topic in connection.ask(question, timeout_s=timeout_s + 1.0).topics:
        for row in topic.partitions:
            check(f"deletion of records of {topic.name}/{row.partition_index}", row.error_code)
