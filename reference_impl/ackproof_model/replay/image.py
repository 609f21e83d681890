"""State of the cluster from the metadata log, record by record: registrations, settings, features, partitions.

The reference's `Metadata` is one partition with all brokers; this image has all partitions with all brokers, and
`partition_view` gives the reference's view of one.

Settings come from the log if it has them (KIP-866 and ELR store them there), else from the brokers' own settings in
the case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from ackproof.experiment.case import Case
from ackproof.experiment.kafka import ELR, numbers
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    EligibleCleared,
    FeatureChanged,
    MetadataRecord,
    PartitionChanged,
    TopicCreated,
    TopicRemoved,
)
from ackproof.rundir.partition import TopicPartition
from ackproof_reference.controller import clear_eligible
from ackproof_reference.metadata import Metadata, Partition, Registration
from ackproof_reference.rules import Rules, rules_of

_TOPIC, _BROKER = 2, 4
_METADATA: Final = "metadata.version"
_NO_BUMP_SINCE: Final = 12
"""Feature level of 3.6-IV0: since then a smaller ISR raises no leader epoch (MetadataVersion, KAFKA-15021)."""
_RESERVED: Final = frozenset({str(UUID(int=0)), str(UUID(int=1))})
"""MIGRATING and UNASSIGNED: a replica that is in no log dir yet counts as online (DirectoryId.isOnline)."""
MIN_INSYNC: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"


def partition_of(decided: PartitionChanged) -> Partition:
    """Return an observed partition state as the reference implementation's type."""
    return Partition(
        replicas=decided.replicas,
        leader=decided.leader,
        leader_epoch=decided.leader_epoch,
        epoch=decided.partition_epoch,
        isr=decided.isr,
        elr=decided.elr,
        last_known_leader=decided.last_known_elr[0] if decided.last_known_elr else -1,
        recovering=decided.recovering,
        adding=decided.adding,
        removing=decided.removing,
    )


class Image:
    """Cluster state after the metadata records taken so far, as a broker's MetadataImage."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.zookeeper = case.experiment.cluster.metadata.broker_controls
        self.brokers: dict[int, Registration] = {}
        self.incarnations: dict[int, str] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self.topic_ids: dict[str, str] = {}
        self.log_dirs: dict[int, frozenset[str]] = {}
        """By broker: ids of the log dirs that it last reported as online; empty if it registered none."""
        self._directories: dict[TopicPartition, tuple[tuple[int, str], ...]] = {}
        self._features: dict[str, int] = {}
        self._settings: dict[tuple[int, str, str], str] = {}

    def take(self, record: MetadataRecord) -> None:
        if isinstance(record, PartitionChanged):
            self._decide(record)
        elif isinstance(record, BrokerRegistered):
            self.brokers[record.node] = Registration(
                record.node, record.broker_epoch, record.fenced, record.controlled_shutdown
            )
            self.incarnations[record.node] = record.incarnation
            self.log_dirs[record.node] = frozenset(record.log_dirs)
        elif isinstance(record, BrokerChanged):
            self._change(record)
        elif isinstance(record, BrokerUnregistered):
            self.brokers.pop(record.node, None)
        elif isinstance(record, FeatureChanged):
            self._features[record.feature] = record.level
        elif isinstance(record, ConfigChanged):
            self._configure(record)
        elif isinstance(record, EligibleCleared):
            self._clear_eligible(record.topic)
        elif isinstance(record, TopicCreated):
            self.topic_ids[record.topic] = record.topic_id
        elif isinstance(record, TopicRemoved):
            self._remove(record.topic)

    def _decide(self, record: PartitionChanged) -> None:
        place = TopicPartition(record.topic, record.partition)
        self.partitions[place] = partition_of(record)
        if len(record.directories) == len(record.replicas):
            self._directories[place] = tuple(zip(record.replicas, record.directories, strict=True))

    def _clear_eligible(self, topic: str) -> None:
        """Clear the ELR and the last known leader of all partitions of a topic; '': of all topics."""
        for place, known in self.partitions.items():
            if topic in ("", place.topic):
                self.partitions[place] = clear_eligible(Metadata(known, ())).partition

    def _remove(self, topic: str) -> None:
        """Remove a topic's partitions, their directories, and its settings.

        Kafka writes no record that removes the settings: RemoveTopicRecord does (ReplicationControlManager.replay).
        """
        for place in [place for place in self.partitions if place[0] == topic]:
            del self.partitions[place]
            self._directories.pop(place, None)
        for key in [key for key in self._settings if key[:2] == (_TOPIC, topic)]:
            del self._settings[key]

    def _change(self, record: BrokerChanged) -> None:
        if record.log_dirs is not None:
            self.log_dirs[record.node] = frozenset(record.log_dirs)
        known = self.brokers.get(record.node, Registration(record.node, record.broker_epoch, fenced=True))
        self.brokers[record.node] = known._replace(
            epoch=record.broker_epoch,
            fenced=known.fenced if record.fenced is None else record.fenced,
            stopping=known.stopping if record.controlled_shutdown is None else record.controlled_shutdown,
        )

    def _configure(self, record: ConfigChanged) -> None:
        key = record.resource, record.name, record.key
        if record.value is None:
            self._settings.pop(key, None)
        else:
            self._settings[key] = record.value

    def partition_view(self, place: TopicPartition, extra: Iterable[int] = ()) -> Metadata:
        """Return a partition with the registrations of all known brokers, of its replicas, and of the broker
        ids `extra`.

        A broker that is not registered counts as fenced. Raises KeyError for a partition that is not in the image.
        """
        partition = self.partitions[place]
        known = dict(self.brokers)
        for node in (*partition.replicas, *extra):
            known.setdefault(node, Registration(node, -1, fenced=True))
        return Metadata(partition, tuple(known[node] for node in sorted(known)))

    def lies_in(self, place: TopicPartition, node: int, directories: frozenset[str]) -> bool:
        """Return True if the metadata log says that broker `node` has its replica of a partition in one of
        these log dirs (their ids).
        """
        known = dict(self._directories.get(place, ()))
        return node in known and known[node] in directories

    def lacks_dir(self, node: int, directory: str) -> bool:
        """Return True if the broker's online log dirs are known and the log dir with the id `directory` is not among
        them (BrokerRegistration.hasOnlineDir). Reserved ids are never lacking."""
        online = self.log_dirs.get(node, frozenset())
        return bool(online) and directory not in online and directory not in _RESERVED

    def offline(self, place: TopicPartition) -> frozenset[int]:
        """Return the brokers whose replica of a partition is in a log dir that is not online (`lacks_dir`)."""
        return frozenset(
            node for node, name in self._directories.get(place, ()) if self.lacks_dir(node, name)
        )

    def active(self, node: int) -> bool:
        """Return True if a broker may lead: it is registered, unfenced and not shutting down
        (ClusterControlManager.isActive)."""
        known = self.brokers.get(node)
        return known is not None and not known.fenced and not known.stopping

    def rules(self, topic: str) -> Rules:
        cluster = self._case.experiment.cluster
        rules = rules_of(cluster.kafka.version + cluster.metadata.rules, elr=self._features.get(ELR, 0) > 0)
        if not self.zookeeper:
            level = self._features.get(_METADATA, _NO_BUMP_SINCE)
            rules = replace(rules, bump_on_shrink=level < _NO_BUMP_SINCE)
        return replace(
            rules,
            min_insync=int(self._setting(topic, MIN_INSYNC, "1")),
            unclean_election=self._setting(topic, _UNCLEAN, "false").lower() == "true",
        )

    @property
    def directories_clear_eligible(self) -> bool:
        """True if the release is older than 4.3. There, the controller empties the eligible leader replicas (ELR) of a
        partition when a replica reports its log dir. handleAssignReplicasToDirs builds the change as if ELR were off
        (PartitionChangeBuilder.maybeUpdateRecordElr)."""
        return numbers(self._case.experiment.cluster.kafka.version) < (4, 3)

    def _setting(self, topic: str, key: str, default: str) -> str:
        cluster = self._case.experiment.cluster
        told = self._settings.get((_TOPIC, topic, key), self._settings.get((_BROKER, "", key)))
        return str(told if told is not None else cluster.config.get(key, default))
