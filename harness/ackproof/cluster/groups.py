"""Consumer groups as their coordinator describes them, and offset commits by an operator.

A coordinator answers only for its own groups, so brokers are asked in turn until the coordinator is found. Groups of
the protocol `consumer` (KIP-848) are described by ConsumerGroupDescribe, classic groups by DescribeGroups, as Kafka's
own tools do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ackproof.network.wire import Connection, Question, Refused, WireError, check, kafka_python
from ackproof.rundir.partition import TopicPartition

_NOT_HERE: Final = frozenset({14, 15, 16})
"""Error codes COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
_NO_CONSUMER_GROUP: Final = frozenset({35, 69})
"""Error codes UNSUPPORTED_VERSION (the protocol is switched off) and GROUP_ID_NOT_FOUND: the group is classic, or there
is none."""
_MEMBER_TYPES: Final = {0: "classic", 1: "consumer"}


@dataclass(frozen=True)
class GroupMember:
    """A member of a consumer group as the coordinator knows it.

    `client_id`: its setting `client.id`, or the `client.id` of the member from which it took over its
    `group.instance.id` (`instance`; '' if it has none). `protocol`: `classic` or `consumer`, '' unknown. `partitions`:
    its present assignment; a classic coordinator knows them only in state Stable.
    """

    client_id: str
    instance: str
    protocol: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class GroupDescription:
    """A consumer group as its coordinator, `broker`, describes it. `state`: Kafka's name of the state, such as Stable
    or Empty. `protocol`: `classic` or `consumer`."""

    group: str
    broker: int
    state: str
    protocol: str
    members: tuple[GroupMember, ...]

    def __str__(self) -> str:
        clients = ", ".join(sorted(member.client_id for member in self.members)) or "no member"
        return f"broker {self.broker}: {self.group} ({self.protocol}) is {self.state} with {clients}"


def describe_group(
    links: Mapping[int, Connection], group: str, *, consumer: bool = True
) -> GroupDescription | None:
    """Return a group as its coordinator describes it; None if no broker answers for it.

    A group that does not exist is described as Dead, without members. `links`: connection to each broker to ask, by
    broker id. `consumer`: True if brokers know the protocol `consumer` (Kafka 4.0 or later).
    """
    for broker, link in links.items():
        try:
            found = _describe_consumer(link, broker, group) if consumer else None
            found = _describe_classic(link, broker, group) if found is None else found
        except WireError:  # it is no coordinator, loads its partition, or does not answer
            continue
        return found
    return None


def _describe_consumer(link: Connection, broker: int, group: str) -> GroupDescription | None:
    question = Question("ConsumerGroupDescribe", 1, group_ids=[group], include_authorized_operations=False)
    (found,) = link.ask(question).groups
    if found.error_code in _NO_CONSUMER_GROUP:
        return None
    check(f"description of {group}", found.error_code)
    return GroupDescription(
        group, broker, found.group_state, "consumer", tuple(map(_consumer_member, found.members))
    )


def _consumer_member(row: Any) -> GroupMember:  # noqa: ANN401 - kafka-python's messages are untyped
    places = (
        TopicPartition(topic.topic_name, partition)
        for topic in row.assignment.topic_partitions
        for partition in topic.partitions
    )
    return GroupMember(
        row.client_id, row.instance_id or "", _MEMBER_TYPES.get(row.member_type, ""), frozenset(places)
    )


def _describe_classic(link: Connection, broker: int, group: str) -> GroupDescription:
    (found,) = link.ask(Question("DescribeGroups", 4, groups=[group])).groups
    check(f"description of {group}", found.error_code)
    members = tuple(
        GroupMember(
            row.client_id, row.group_instance_id or "", "classic", frozenset(_assigned(row.member_assignment))
        )
        for row in found.members
    )
    return GroupDescription(group, broker, found.group_state, "classic", members)


def _assigned(assignment: bytes) -> Iterable[TopicPartition]:
    """Yield the partitions in ConsumerProtocolAssignment, which is empty while the group rebalances."""
    if assignment:
        decoded = kafka_python("protocol.consumer").ConsumerProtocolAssignment.decode(assignment)
        for topic in decoded.assigned_partitions:
            for partition in topic.partitions:
                yield TopicPartition(topic.topic, partition)


def commit_as_operator(
    links: Mapping[int, Connection], group: str, offsets: Mapping[TopicPartition, int]
) -> int:
    """Commit offsets for a group without being a member, as `kafka-consumer-groups --reset-offsets` does. Return the
    coordinator's id.

    `links`: connection to each broker, by broker id. Raises `Refused` with Kafka's error, such as UNKNOWN_MEMBER_ID
    while the group has members. Raises `WireError` if no broker accepts the commit.
    """
    rows = [(place.topic, [(place.partition, offset, -1, "")]) for place, offset in offsets.items()]
    question = Question(
        "OffsetCommit",
        7,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=rows,
    )
    refused: WireError = WireError(f"no broker coordinates {group}")
    for broker, link in links.items():
        try:
            for topic in link.ask(question).topics:
                for row in topic.partitions:
                    check(f"offset of {topic.name}/{row.partition_index} for {group}", row.error_code)
        except Refused as error:
            if error.code not in _NOT_HERE:
                raise
            refused = error
        except WireError as error:
            refused = error
        else:
            return broker
    raise refused
