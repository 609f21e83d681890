"""Admin requests: elections, reassignments, settings, feature levels, voters, transactions.

A request goes to a single broker, which passes changes of the metadata on to the active controller. A response means
that the request was accepted, not that it has an effect yet: callers see that in another broker's metadata (`queries`).
All functions raise `Unreachable` without a response; all but `log_dirs` raise `Refused` with Kafka's error. Request
versions are those that every release from 3.9 to 4.4 understands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ackproof.cluster.queries import Voter
from ackproof.network.wire import CLIENT_ID, Connection, Question, check
from ackproof.rundir.partition import TopicPartition

_NOT_HERE: Final = frozenset({14, 15, 16, 105})
"""Error codes of a broker that cannot answer for a transactional id: COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND."""
ASK_S: Final = 5.0
"""Time-out of a request in seconds. It does not include the wait for the effect."""
_ASK_MS: Final = int(ASK_S * 1000)
_CHANGE_S: Final = 10.0
"""Time-out in seconds of a change of the quorum's voters or of feature levels."""
_CHANGE_MS: Final = int(_CHANGE_S * 1000)
_UPGRADE: Final = 1
_UNSUPPORTED_VERSION: Final = 35


class Election(IntEnum):
    """Kind of a leader election (Kafka's ElectionType). PREFERRED: elect the first of the partition's replicas.
    UNCLEAN: elect a replica outside the ISR if the ISR has none that lives."""

    PREFERRED = 0
    UNCLEAN = 1


class ResourceType(IntEnum):
    """Kind of owner of dynamic settings (Kafka's ConfigResource.Type): a topic or a broker."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True)
class Owner:
    """A topic or broker whose dynamic settings are read or changed. A broker named '' stands for the cluster-wide
    default of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.TOPIC:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


@dataclass(frozen=True)
class Reassignment:
    """A reassignment in progress, as broker ids: all replicas now (`replicas`), and the replicas being added and
    removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def elect(connection: Connection, place: TopicPartition, election: Election) -> None:
    """Elect a leader of this partition. Raises `Refused` with Kafka's error: ELECTION_NOT_NEEDED if the leader would
    stay. Raises `Unreachable` without a response."""
    rows = [(place.topic, [place.partition])]
    question = Question(
        "ElectLeaders", 2, election_type=int(election), topic_partitions=rows, timeout_ms=_ASK_MS
    )
    answer = connection.ask(question, timeout_s=ASK_S + 1.0)
    check(f"election of {place}", answer.error_code)
    for topic in answer.replica_election_results:
        for result in topic.partition_result:
            check(f"election of {place}", result.error_code, result.error_message)


def reassign(connection: Connection, moves: Mapping[TopicPartition, Sequence[int] | None]) -> None:
    """Start to move each partition to its replicas in `moves` (broker ids); None cancels the partition's reassignment.

    Raises `Refused` for the first refused partition, such as NO_REASSIGNMENT_IN_PROGRESS if there is nothing to cancel.
    Other partitions may be moving then. Raises `Unreachable` without a response.
    """
    rows = [
        (place.topic, [(place.partition, None if replicas is None else list(replicas))])
        for place, replicas in moves.items()
    ]
    question = Question("AlterPartitionReassignments", 0, timeout_ms=_ASK_MS, topics=rows)
    answer = connection.ask(question, timeout_s=ASK_S + 1.0)
    check("reassignment", answer.error_code, answer.error_message)
    for topic in answer.responses:
        for row in topic.partitions:
            check(f"reassignment of {topic.name}/{row.partition_index}", row.error_code, row.error_message)


@dataclass(frozen=True)
class TransactionState:
    """State of a transactional id at its coordinator. `state`: Kafka's name of the state, such as Ongoing or Empty."""

    producer_id: int
    producer_epoch: int
    state: str


def transaction(connection: Connection, transactional_id: str) -> TransactionState | None:
    """Return the state of a transactional id; None if this broker is not its coordinator, does not know it, or is not
    ready to answer. Raises `Refused` for another of Kafka's errors, `Unreachable` without a response."""
    question = Question("DescribeTransactions", 0, transactional_ids=[transactional_id])
    (found,) = connection.ask(question, timeout_s=ASK_S).transaction_states
    if found.error_code in _NOT_HERE:
        return None
    check(f"state of {transactional_id}", found.error_code)
    return TransactionState(found.producer_id, found.producer_epoch, found.transaction_state)


def reassignments(connection: Connection) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in progress, as the active controller knows them; empty if there are none. Raises
    `Refused` with Kafka's error, `Unreachable` without a response."""
    question = Question("ListPartitionReassignments", 0, timeout_ms=_ASK_MS, topics=None)
    answer = connection.ask(question, timeout_s=ASK_S + 1.0)
    check("list of reassignments", answer.error_code, answer.error_message)
    return {
        TopicPartition(topic.name, row.partition_index): Reassignment(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def move_log_dir(connection: Connection, place: TopicPartition, path: str) -> None:
    """Start to move this broker's replica of a partition to another of its log dirs. `path`: absolute path of that dir.
    Raises `Refused` with Kafka's error, `Unreachable` without a response."""
    question = Question("AlterReplicaLogDirs", 2, dirs=[(path, [(place.topic, [place.partition])])])
    for topic in connection.ask(question, timeout_s=ASK_S).results:
        for result in topic.partitions:
            check(f"move of {place} to {path}", result.error_code)


def log_dirs(connection: Connection) -> dict[str, frozenset[TopicPartition]]:
    """Return this broker's log dirs by absolute path, each with the partitions whose replicas it has. Replicas that are
    being moved into a log dir are left out. A failed log dir has none. Raises `Unreachable` without a response."""
    return {
        row.log_dir: frozenset(
            TopicPartition(topic.name, replica.partition_index)
            for topic in row.topics
            for replica in topic.partitions
            if not replica.is_future_key
        )
        for row in connection.ask(Question("DescribeLogDirs", 2, topics=None), timeout_s=ASK_S).results
    }


def alter_config(connection: Connection, changes: Mapping[Owner, Mapping[str, str | None]]) -> None:
    """Change dynamic settings. `changes`: name and new value, by topic or broker. The value None deletes the setting,
    and the inherited value applies again. Raises `Refused` for the first topic or broker whose changes are refused;
    others may be in force then. Raises `Unreachable` without a response."""
    rows = [
        (int(owner.type), owner.name, [(name, int(value is None), value) for name, value in values.items()])
        for owner, values in changes.items()
    ]
    question = Question("IncrementalAlterConfigs", 1, resources=rows, validate_only=False)
    for row in connection.ask(question, timeout_s=ASK_S + 1.0).responses:
        owner = Owner(ResourceType(row.resource_type), row.resource_name)
        check(f"settings of {owner}", row.error_code, row.error_message)


@dataclass(frozen=True)
class Setting:
    """A setting in force. `value`: '' also if the broker keeps it secret (a password). `own`: True if it is a dynamic
    setting of the requested owner, False if it is inherited."""

    value: str
    own: bool


_OWN: Final = {ResourceType.TOPIC: frozenset({1}), ResourceType.BROKER: frozenset({2})}
_OWN_OF_ALL: Final = frozenset({3})
"""Codes of ConfigSource for an owner's own settings: DYNAMIC_TOPIC_CONFIG (1) of a topic, DYNAMIC_BROKER_CONFIG (2)
of a broker, DYNAMIC_DEFAULT_BROKER_CONFIG (3) of the cluster-wide default."""


def describe_config(connection: Connection, owner: Owner, names: Sequence[str]) -> dict[str, Setting]:
    """Return the settings of `owner` with these names, from this broker's copy of the metadata. Unknown names are
    missing.

    A broker's settings must be requested from that broker. The cluster-wide default (name '') has only dynamic
    settings. Raises `Refused` with Kafka's error, `Unreachable` without a response.
    """
    rows = [(int(owner.type), owner.name, list(names))]
    question = Question(
        "DescribeConfigs", 4, resources=rows, include_synonyms=False, include_documentation=False
    )
    own = _OWN[owner.type] if owner.name else _OWN_OF_ALL
    found: dict[str, Setting] = {}
    for result in connection.ask(question, timeout_s=ASK_S).results:
        check(f"settings of {owner}", result.error_code, result.error_message)
        for row in result.configs:
            found[row.name] = Setting(row.value or "", row.config_source in own)
    return found


@dataclass(frozen=True)
class Features:
    """Feature levels by feature name.

    `supported`: the lowest and highest level that the node supports. `finalised`: the level in force; a feature at
    level 0 is missing.
    """

    supported: Mapping[str, tuple[int, int]]
    finalised: Mapping[str, int]


def features(connection: Connection) -> Features:
    """Return feature levels from this node's own copy of the metadata. Raises `Refused` with Kafka's error,
    `Unreachable` without a response."""
    for version in (4, 3):  # 4 came with 3.9
        question = Question(
            "ApiVersions", version, client_software_name=CLIENT_ID, client_software_version="1"
        )
        answer = connection.ask(question)
        if answer.error_code != _UNSUPPORTED_VERSION:
            break
    check("ApiVersions", answer.error_code)
    return Features(
        supported={row.name: (row.min_version, row.max_version) for row in answer.supported_features or ()},
        finalised={row.name: row.max_version_level for row in answer.finalized_features or ()},
    )


def raise_features(connection: Connection, levels: Mapping[str, int]) -> None:
    """Raise the feature levels in force (UpdateFeatures). `levels`: feature name → level. Raises `Refused` for a level
    below the present level, or another of Kafka's errors. Raises `Unreachable` without a response."""
    rows = [(name, level, _UPGRADE) for name, level in levels.items()]
    question = Question("UpdateFeatures", 1, timeout_ms=_CHANGE_MS, feature_updates=rows, validate_only=False)
    answer = connection.ask(question, timeout_s=_CHANGE_S + 1.0)
    asked = "levels " + ", ".join(f"{name}={level}" for name, level in levels.items())
    check(asked, answer.error_code, answer.error_message)
    for result in answer.results or ():
        check(f"{result.feature} of {asked}", result.error_code, result.error_message)


def remove_voter(connection: Connection, voter: Voter) -> None:
    """Remove a controller from the quorum (RemoveRaftVoter, KIP-853). `voter`: the controller, with its directory id.
    Raises `Refused` with Kafka's error, `Unreachable` without a response."""
    question = Question(
        "RemoveRaftVoter", 0, cluster_id=None, voter_id=voter.node, voter_directory_id=voter.directory
    )
    answer = connection.ask(question, timeout_s=_CHANGE_S + 1.0)
    check(f"removal of controller {voter.node}", answer.error_code, answer.error_message)


def add_voter(connection: Connection, voter: Voter) -> None:
    """Add a controller to the quorum (AddRaftVoter, KIP-853). `voter`: the controller, with its directory id and
    endpoints.

    Raises `Refused`, for example if the controller has not caught up with the leader; `Unreachable` without a response.
    """
    question = Question(
        "AddRaftVoter",
        0,
        cluster_id=None,
        timeout_ms=_CHANGE_MS,
        voter_id=voter.node,
        voter_directory_id=voter.directory,
        listeners=list(voter.endpoints),
    )
    answer = connection.ask(question, timeout_s=_CHANGE_S + 1.0)
    check(f"addition of controller {voter.node}", answer.error_code, answer.error_message)


def open_transactions(connection: Connection, place: TopicPartition) -> list[tuple[int, int, int]]:
    """Return (first offset, producer id, epoch) of each open transaction that this broker knows as the partition's
    leader, sorted; empty if there is none. Raises `Refused` with Kafka's error, `Unreachable` without a response."""
    question = Question("DescribeProducers", 0, topics=[(place.topic, [place.partition])])
    transactions = []
    for topic in connection.ask(question, timeout_s=ASK_S).topics:
        for row in topic.partitions:
            check(f"producers of {place}", row.error_code, row.error_message)
            transactions += [
                (producer.current_txn_start_offset, producer.producer_id, producer.producer_epoch)
                for producer in row.active_producers
                if producer.current_txn_start_offset >= 0
            ]
    return sorted(transactions)


def transactions_of(connection: Connection, producer_id: int) -> list[str]:
    """Return the state, such as Ongoing, of each transactional id that has this producer id and this broker as
    coordinator. Empty if there is none. Raises `Refused` with Kafka's error, `Unreachable` without a response."""
    question = Question("ListTransactions", 0, state_filters=[], producer_id_filters=[producer_id])
    answer = connection.ask(question, timeout_s=ASK_S)
    check("list of transactions", answer.error_code)
    return [str(row.transaction_state) for row in answer.transaction_states]
