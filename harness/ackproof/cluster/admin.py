"""Changes that an operator asks for through the admin protocol: elections, reassignments, settings.

Asked at one broker, which passes them on to the active controller. An answer says that a request was taken, not that
its effect was seen: witnesses look at another broker's metadata (`queries`). All raise `Refused` in Kafka's words,
`Unreachable` without an answer. Versions are fixed to what every release from 3.9 to 4.3 understands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ackproof.cluster.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ackproof.cluster.wire import Connection, Question, Refused
from ackproof.rundir.partition import TopicPartition

_ELECT, _ALTER_REASSIGNMENTS, _LIST_REASSIGNMENTS, _ALTER_CONFIGS, _DESCRIBE_CONFIGS = 2, 0, 0, 1, 4
_MOVE_LOG_DIR, _LOG_DIRS = 2, 2
_TRANSACTIONS = 0
_NOT_HERE: Final = frozenset({14, 15, 16, 105})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND."""
ASK_S: Final = 5.0
"""How long a request may take; its effect is awaited elsewhere."""


class Election(IntEnum):
    """Who may be elected."""

    PREFERRED = 0
    UNCLEAN = 1


class Whose(IntEnum):
    """What has the settings (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True)
class Owner:
    """A topic or broker with settings of its own; the broker '' is all of them together."""

    whose: Whose
    name: str

    def __str__(self) -> str:
        if self.whose is Whose.TOPIC:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


@dataclass(frozen=True)
class Reassignment:
    """One that goes on: all replicas there are now, and which of them come and go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def elect(connection: Connection, place: TopicPartition, election: Election) -> None:
    """Elect a leader. Refused with ELECTION_NOT_NEEDED where the election would change nothing."""
    row = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=int(election),
        topic_partitions=[row(topic=place.topic, partitions=[place.partition], version=_ELECT)],
        timeout_ms=int(ASK_S * 1000),
        version=_ELECT,
    )
    answer = connection.ask(Question(request, ElectLeadersResponse, _ELECT), timeout_s=ASK_S + 1.0)
    _check(f"election of {place}", answer.error_code, None)
    for topic in answer.replica_election_results:
        for result in topic.partition_result:
            _check(f"election of {place}", result.error_code, result.error_message)


def reassign(connection: Connection, moves: Mapping[TopicPartition, Sequence[int] | None]) -> None:
    """Begin to give partitions other replicas; None cancels what goes on (NO_REASSIGNMENT_IN_PROGRESS if nothing)."""
    version = _ALTER_REASSIGNMENTS
    topic_row = AlterPartitionReassignmentsRequest.ReassignableTopic
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(ASK_S * 1000),
        topics=[
            topic_row(
                name=place.topic,
                partitions=[
                    topic_row.ReassignablePartition(
                        partition_index=place.partition,
                        replicas=None if replicas is None else list(replicas),
                        version=version,
                    )
                ],
                version=version,
            )
            for place, replicas in moves.items()
        ],
        version=version,
    )
    question = Question(request, AlterPartitionReassignmentsResponse, version)
    answer = connection.ask(question, timeout_s=ASK_S + 1.0)
    _check("reassignment", answer.error_code, answer.error_message)
    for topic in answer.responses:
        for row in topic.partitions:
            _check(f"reassignment of {topic.name}/{row.partition_index}", row.error_code, row.error_message)


@dataclass(frozen=True)
class TransactionState:
    """What the transaction coordinator says of a transactional id. `state` as Kafka spells it (Ongoing, Empty, …)."""

    producer_id: int
    producer_epoch: int
    state: str


def transaction(connection: Connection, transactional_id: str) -> TransactionState | None:
    """The state of an id, None where this broker is not its coordinator or knows nothing of it."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id], version=_TRANSACTIONS)
    answer = connection.ask(Question(request, DescribeTransactionsResponse, _TRANSACTIONS), timeout_s=ASK_S)
    (found,) = answer.transaction_states
    if found.error_code in _NOT_HERE:
        return None
    _check(f"state of {transactional_id}", found.error_code, None)
    return TransactionState(found.producer_id, found.producer_epoch, found.transaction_state)


def reassignments(connection: Connection) -> dict[TopicPartition, Reassignment]:
    """All that go on now, as the active controller says."""
    version = _LIST_REASSIGNMENTS
    request = ListPartitionReassignmentsRequest(timeout_ms=int(ASK_S * 1000), topics=None, version=version)
    question = Question(request, ListPartitionReassignmentsResponse, version)
    answer = connection.ask(question, timeout_s=ASK_S + 1.0)
    _check("list of reassignments", answer.error_code, answer.error_message)
    return {
        TopicPartition(topic.name, row.partition_index): Reassignment(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def move_log_dir(connection: Connection, place: TopicPartition, path: str) -> None:
    """Begin to move this broker's replica to another of its log dirs, by absolute path."""
    version = _MOVE_LOG_DIR
    kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    row = kind.AlterReplicaLogDirTopic(name=place.topic, partitions=[place.partition], version=version)
    request = AlterReplicaLogDirsRequest(
        dirs=[kind(path=path, topics=[row], version=version)], version=version
    )
    answer = connection.ask(Question(request, AlterReplicaLogDirsResponse, version), timeout_s=ASK_S)
    for topic in answer.results:
        for result in topic.partitions:
            _check(f"move of {place} to {path}", result.error_code, None)


def log_dirs(connection: Connection) -> dict[str, frozenset[TopicPartition]]:
    """This broker's log dirs by absolute path, each with the replicas that it holds (none that is on its way)."""
    version = _LOG_DIRS
    question = Question(
        DescribeLogDirsRequest(topics=None, version=version), DescribeLogDirsResponse, version
    )
    return {
        row.log_dir: frozenset(
            TopicPartition(topic.name, one.partition_index)
            for topic in row.topics
            for one in topic.partitions
            if not one.is_future_key
        )
        for row in connection.ask(question, timeout_s=ASK_S).results
    }


def alter_config(connection: Connection, changes: Mapping[Owner, Mapping[str, str | None]]) -> None:
    """Change settings while nodes run; None deletes one, so that it falls back to what is below it."""
    version = _ALTER_CONFIGS
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    request = IncrementalAlterConfigsRequest(
        resources=[
            kind(
                resource_type=int(owner.whose),
                resource_name=owner.name,
                configs=[
                    kind.AlterableConfig(
                        name=name,
                        config_operation=0 if value is not None else 1,
                        value=value,
                        version=version,
                    )
                    for name, value in values.items()
                ],
                version=version,
            )
            for owner, values in changes.items()
        ],
        validate_only=False,
        version=version,
    )
    question = Question(request, IncrementalAlterConfigsResponse, version)
    answer = connection.ask(question, timeout_s=ASK_S + 1.0)
    for row in answer.responses:
        owner = Owner(Whose(row.resource_type), row.resource_name)
        _check(f"settings of {owner}", row.error_code, row.error_message)


@dataclass(frozen=True)
class Setting:
    """`value` in force; `own`: it was set on this very owner, and is not inherited."""

    value: str
    own: bool


_OWN: Final = {Whose.TOPIC: frozenset({1}), Whose.BROKER: frozenset({2})}
_OWN_OF_ALL: Final = frozenset({3})
"""ConfigSource: DYNAMIC_TOPIC_CONFIG; DYNAMIC_BROKER_CONFIG; DYNAMIC_DEFAULT_BROKER_CONFIG."""


def describe_config(connection: Connection, owner: Owner, names: Sequence[str]) -> dict[str, Setting]:
    """Settings as the asked broker knows them from its own copy of the metadata; unknown names are missing.

    Settings of a broker must be asked of that broker; of all brokers only what was set dynamically is told.
    """
    version = _DESCRIBE_CONFIGS
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=int(owner.whose),
                resource_name=owner.name,
                configuration_keys=list(names),
                version=version,
            )
        ],
        include_synonyms=False,
        include_documentation=False,
        version=version,
    )
    answer = connection.ask(Question(request, DescribeConfigsResponse, version), timeout_s=ASK_S)
    own = _OWN[owner.whose] if owner.name else _OWN_OF_ALL
    found: dict[str, Setting] = {}
    for result in answer.results:
        _check(f"settings of {owner}", result.error_code, result.error_message)
        for row in result.configs:
            found[row.name] = Setting(row.value or "", row.config_source in own)
    return found


def _check(asked: str, code: int, message: str | None) -> None:
    if code:
        raise Refused(asked, code, message)
