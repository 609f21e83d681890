"""Checks of a whole experiment beyond single fields: cluster, topics, workload, evidence. Faults: `check_faults`."""

from __future__ import annotations

import re
from typing import Final

from ackproof.base.advice import Advice
from ackproof.clients.contract import client_adapter
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.kafka import (
    ELR,
    ELR_NEEDS,
    IMAGE_ALONE,
    KNOWN_FEATURES,
    LAST_WITH_ZOOKEEPER,
    LINES,
    METADATA,
    RULES_ALONE,
    features_of,
    first_with,
    line_of,
    numbers,
    too_old,
)
from ackproof.experiment.problems import MapNode, Path, ScalarNode
from ackproof.experiment.promises import may_compact
from ackproof.experiment.settings import Scope, refusal, wrong_topic_setting
from ackproof.experiment.spec import AUTO_CREATED, LONGEST_TOPIC, ProducerSpec, TopicSpec, attached_topic
from ackproof.plan.check_clients import ask_library, check_clients, check_groups, check_service
from ackproof.plan.check_faults import check_fault, check_observed, check_on_model
from ackproof.plan.diagnostics import Problems, describe
from ackproof.plan.doubts import check_meetings, look_for_doubts
from ackproof.plan.soaking import objections_to_soak
from ackproof.rundir.payload import smallest_size

_ORDER: Final[Path] = ("cluster", "start_order")
_LONGEST_ATTACHED: Final = LONGEST_TOPIC - len(attached_topic("", "x" * 99))
_RACKS: Path = ("cluster", "racks")
_OWN: Path = ("cluster", "controller_racks")
_PRODUCERS: Final[Path] = ("workload", "producers")
_CONSUMERS: Final[Path] = ("workload", "consumers")
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}\Z")
_NUMBERS: Final = (
    *("min.insync.replicas", "num.io.threads", "timeout.ms", "max.ms", "backoff.ms", "expiration.ms"),
    *("heartbeat.interval.ms", "election.interval.ms", "cleanup.interval.ms"),
)
"""Endings of the names of node settings whose values must be whole numbers, because ackproof uses them."""


def check(spec: ExperimentSpec, found: Problems) -> None:
    """Report conflicts between an experiment's parts to `found`. Fields that have a problem already are skipped.

    If there is no problem at all, warnings are added for settings that the author probably did not mean
    (`look_for_doubts`).
    """
    _check_cluster(spec, found)
    for name, topic in spec.topics.items():
        _check_topic(spec, name, topic, found)
        _check_auto_created(spec, topic, ("topics", name), found)
    _check_names_of_topics(spec, found)
    _check_workload(spec, found)
    for fault in spec.faults:
        check_fault(spec, fault, found)
    check_meetings(spec, found)
    if (size := spec.evidence.isr_size) is not None:
        for name, topic in spec.topics.items():
            if size > topic.replication_factor and found.sound(("topics", name, "replication_factor")):
                why = f"an ISR of {size} is impossible: '{name}' has {topic.replication_factor} replicas"
                found.complain(("evidence", "isr_size"), why)
    check_observed(spec, found)
    check_on_model(spec, found)
    for text in objections_to_soak(spec) if spec.soak is not None else ():
        found.report(("soak",), text, key=True)
    if not found.problems:
        look_for_doubts(spec, found)


def _check_cluster(spec: ExperimentSpec, found: Problems) -> None:
    cluster = spec.cluster
    _check_mode(spec, found)
    _check_release(spec, found)
    if cluster.controller_racks and found.sound(_RACKS, ("cluster", "combined")):
        if cluster.combined:
            why = Advice("combined controllers have the racks of their brokers", "leave controller_racks out")
            found.complain(_OWN, why, key=True)
        elif not cluster.racks:
            found.complain(_OWN, "racks of controllers need racks of brokers", "add racks: [a, b]", key=True)
    check_settings(found, ("cluster", "config"), Scope.BROKER)
    order = cluster.start_order
    if odd := [broker for broker in order if broker not in cluster.broker_ids]:
        found.complain(_ORDER, f"broker {odd[0]} does not exist", _brokers(spec))
    elif len(set(order)) < len(order):
        found.complain(_ORDER, "a broker is listed twice", "list each once")
    elif order and cluster.combined:
        why = Advice(
            "combined nodes wait for each other to form a quorum", "leave start_order out, or combined"
        )
        found.complain(_ORDER, why)
    elif order and (spec.ground.foreign or spec.ground.simulated):
        found.complain(
            _ORDER, f"ackproof starts no brokers on the backend {spec.backend}", "leave it out", key=True
        )
    if cluster.settings_from is not None and spec.ground.foreign:
        why = Advice("brokers that someone else runs have settings of their own", "leave it out")
        found.complain(("cluster", "settings_from"), why)
    for broker in cluster.broker_config:
        path: Path = ("cluster", "broker_config", str(broker))
        if broker not in cluster.broker_ids and found.sound(("cluster", "brokers")):
            found.complain(path, f"broker {broker} does not exist", _brokers(spec), key=True)
        check_settings(found, path, Scope.BROKER)


def _check_mode(spec: ExperimentSpec, found: Problems) -> None:
    cluster, mode = spec.cluster, ("cluster", "mode")
    if not cluster.metadata.broker_controls or not found.sound(mode):
        return
    if not line_of(cluster.kafka.version).zookeeper and found.sound(("cluster", "kafka")):
        last = LAST_WITH_ZOOKEEPER
        was = f"{last.rpartition('.')[0]} was the last with it"
        found.report(mode, f"Kafka {cluster.kafka} has no ZooKeeper mode: {was}", f'write kafka: "{last}"')
    if cluster.combined:
        found.complain(
            ("cluster", "combined"), "with ZooKeeper brokers keep no metadata", "leave combined out"
        )
    if cluster.features:
        why = Advice("feature levels exist with KRaft only", "leave features out, or mode: zookeeper")
        found.complain(("cluster", "features"), why)


def _check_release(spec: ExperimentSpec, found: Problems) -> None:
    """Report to `found` an unsupported release, a build that the backend cannot run, and feature levels that are
    unknown or do not go together. Levels of a release line newer than ackproof knows are left to Kafka's own tool,
    which refuses wrong ones before the start."""
    kafka: Path = ("cluster", "kafka")
    if not found.sound(kafka):
        return
    version = (build := spec.cluster.kafka).version
    if why := too_old(version):
        found.report(kafka, why)
        return
    if build.image and spec.backend != "docker" and found.sound(("backend",)):
        found.report(kafka, IMAGE_ALONE)
    if build.has_rules and spec.backend != "process" and found.sound(("backend",)):
        found.report(kafka, RULES_ALONE)
    if not build.is_known and numbers(version)[:2] > LINES[-1].number:
        return
    levels = features_of(version)
    for name, level in spec.cluster.features.items():
        path: Path = ("cluster", "features", name)
        if not found.sound(path):
            continue
        if name not in KNOWN_FEATURES:
            found.unknown(path, "feature", KNOWN_FEATURES)
        elif name not in levels:
            found.report(path, f"Kafka {version} has no {name}", f"it came with {first_with(name)}", key=True)
        elif not levels[name][0] <= level <= levels[name][1]:
            lowest, highest = levels[name]
            found.report(path, f"Kafka {version} has levels {lowest} to {highest} of {name}, not {level}")
    metadata = spec.cluster.features.get(METADATA, ELR_NEEDS)
    if spec.cluster.features.get(ELR) and metadata < ELR_NEEDS and found.sound_below(("cluster", "features")):
        why = f"it needs {METADATA} {ELR_NEEDS} or later, not {metadata}"
        found.report(("cluster", "features", ELR), why)


def _check_topic(spec: ExperimentSpec, name: str, topic: TopicSpec, found: Problems) -> None:
    path: Path = ("topics", name)
    factor: Path = (*path, "replication_factor")
    if not found.sound(path):
        return
    if found.sound(("cluster", "kafka"), ("backend",)):
        for setting, value in topic.config.items():
            wrong = wrong_topic_setting(setting, value, spec)
            where: Path = (*path, "config", setting)
            if wrong is not None and found.sound(where):
                found.report(where, wrong[0], key=wrong[1])
    known = found.sound(factor, (*path, "partitions"), ("cluster", "brokers"))
    if known and topic.replication_factor > spec.cluster.brokers:
        default = "" if found.node(factor) is not None or topic.assignment is not None else " (the default)"
        found.report(
            factor, f"{topic.replication_factor} replicas{default} need as many brokers", _brokers(spec)
        )
    if topic.assignment is None or not found.sound((*path, "assignment")):
        return
    if known and len(topic.assignment) != topic.partitions:
        message = f"{len(topic.assignment)} partitions are assigned, but there are {topic.partitions}"
        found.report((*path, "assignment"), message)
    for index, replicas in enumerate(topic.assignment):
        row: Path = (*path, "assignment", index)
        strangers = [node for node in replicas if node not in spec.cluster.broker_ids]
        if len(set(replicas)) != len(replicas):
            found.report(row, "a broker is listed twice, but holds one replica of a partition")
        elif strangers and found.sound(("cluster", "brokers")):
            found.report(row, f"broker {strangers[0]} does not exist", _brokers(spec))
        elif known and len(replicas) != topic.replication_factor:
            found.report(
                row, f"{len(replicas)} replicas, but the replication factor is {topic.replication_factor}"
            )


def _brokers(spec: ExperimentSpec) -> str:
    count = spec.cluster.brokers
    return "the cluster has 1 broker" if count == 1 else f"the cluster has {count} brokers (1 to {count})"


def _check_auto_created(spec: ExperimentSpec, topic: TopicSpec, path: Path, found: Problems) -> None:
    if not topic.auto_created:
        return
    where: Path = (*path, "auto_created")
    if spec.ground.foreign:
        found.report(
            where,
            "settings of brokers that someone else runs are not known, nor the topics that they create",
            "leave it out",
        )
    elif spec.cluster.config.get("auto.create.topics.enable", "").lower() != "true":
        found.report(
            where,
            "brokers create topics only with cluster: {config: {auto.create.topics.enable: true}}",
            "write that",
        )
    for name in ("assignment", "config"):
        if getattr(topic, name):
            found.report(
                (*path, name), "brokers create this topic with settings of their own", f"leave '{name}' out"
            )
    for name, setting in AUTO_CREATED.items():
        theirs = spec.cluster.config.get(setting, "1")
        if theirs != str(getattr(topic, name)):
            found.complain((*path, name), f"the brokers create it with {setting}, which is {theirs}")


def _check_names_of_topics(spec: ExperimentSpec, found: Problems) -> None:
    if not spec.topics and found.sound_below(("topics",)):
        found.report(("topics",), "at least one topic is needed")
    seen: dict[str, str] = {}
    for name in spec.topics:
        path: Path = ("topics", name)
        if name == "__cluster_metadata":
            found.report(
                path, f"'{name}' is Kafka's own metadata log", "give the topic another name", key=True
            )
        if spec.ground.foreign and len(name) > _LONGEST_ATTACHED and found.sound(("backend",)):
            most = f"at most {_LONGEST_ATTACHED} characters"
            found.report(path, "with the run's own prefix it gets too long", most, key=True)
        # Kafka's metrics replace '.' by '_', so Kafka refuses two topics that differ only in that.
        other = seen.setdefault(name.replace(".", "_"), name)
        if other != name:
            found.report(path, f"Kafka cannot tell '{name}' from '{other}' (. and _ collide)", key=True)


def check_settings(found: Problems, path: Path, scope: Scope) -> None:
    """Report to `found` each setting at `path` that an experiment must not set. Also report node settings that ackproof
    reads as numbers and that are no whole numbers. `scope`: what these settings configure: a node, topic, producer or
    consumer."""
    node = found.node(path)
    for name, value in node.entries.items() if isinstance(node, MapNode) else ():
        if (why := refusal(scope, name)) is not None:
            found.report((*path, name), why, key=True)
        elif scope is Scope.BROKER and name.endswith(_NUMBERS) and found.sound((*path, name)):
            text = value.text if isinstance(value, ScalarNode) else ""
            if not _WHOLE.match(text):
                found.report((*path, name), f"expected a whole number, not {describe(value)}")


def _check_workload(spec: ExperimentSpec, found: Problems) -> None:
    """Report to `found` wrong settings of producers, readers, groups and a service, and wrong combinations."""
    check_settings(found, (*_PRODUCERS, "config"), Scope.PRODUCER)
    check_settings(found, (*_CONSUMERS, "config"), Scope.CONSUMER)
    _check_producers(spec, found)
    _check_keys(spec, found)
    check_clients(spec, found)
    check_service(spec, found)
    check_groups(spec, found)
    # Settings that were refused above are not passed to the library.
    producers, readers = spec.workload.producers, spec.workload.consumers
    if found.sound_below(_PRODUCERS):
        adapter = client_adapter(producers.client.library)
        config = adapter.producer_config(producers, "", "", "p" if producers.transaction_size else "")
        # No library refuses acks and idempotence alone, and loading a library takes long.
        plain = ProducerSpec(acks=producers.acks, idempotence=producers.idempotence)
        if config != adapter.producer_config(plain, "", ""):
            ask_library(found, _PRODUCERS, producers.client.library, "producer", config)
    if readers.start == "committed" and not (readers.live and readers.commit_every):
        why = Advice("no reader commits", "write workload: {consumers: {live: 1, commit_every: 1s}}")
        found.report((*_CONSUMERS, "start"), why)
    for name, group in spec.workload.groups.items():
        path: Path = ("workload", "groups", name)
        check_settings(found, (*path, "config"), Scope.CONSUMER)
        if group.config and found.sound_below(path):
            config = client_adapter(group.client.library).member_config(group, "", "", name)
            ask_library(found, path, group.client.library, "consumer", config)
    if found.sound_below(_CONSUMERS) and readers.config:
        adapter = client_adapter(readers.client.library)
        config = adapter.reader_config(readers.config, readers.isolation, "", "")
        ask_library(found, _CONSUMERS, readers.client.library, "consumer", config)


def _check_producers(spec: ExperimentSpec, found: Problems) -> None:
    producers = spec.workload.producers
    known = found.sound(("topics",))
    topics: Path = (*_PRODUCERS, "topics")
    for index, topic in enumerate(producers.topics or ()):
        if topic not in spec.topics and known and found.sound(topics):
            found.unknown_value(topics, "the topic", topic, spec.topics, part=(index,))
    longest = max((name for name in spec.topic_names() if name in spec.topics), key=len, default="")
    needed = smallest_size(longest)
    idempotent, transactional = producers.idempotence, producers.transaction_size is not None
    rules = (
        (
            known and bool(spec.topics) and producers.value_size < needed,
            ("value_size",),
            f"{producers.value_size} B are too few: identity and checksum of a record for topic '{longest}' take "
            f"{needed} B",
        ),
        (
            idempotent and producers.acks != "all",
            ("idempotence", "acks"),
            f"idempotence needs acks: all, not {producers.acks}",
        ),
        (
            idempotent and (producers.in_flight or 0) > 5,
            ("in_flight", "idempotence"),
            f"idempotence allows at most 5 in flight, not {producers.in_flight}",
        ),
        (
            idempotent and producers.retries == 0,
            ("retries", "idempotence"),
            "idempotence needs at least 1 retry",
        ),
        (
            producers.abort_share > 0 and not transactional,
            ("abort_share", "transaction_size"),
            Advice("without transaction_size there are no transactions to abort", "give transaction_size"),
        ),
        (
            transactional and not idempotent,
            ("transaction_size", "idempotence"),
            "transactions need idempotence: true",
        ),
        (
            producers.linger >= producers.delivery_timeout,
            ("linger", "delivery_timeout"),
            "the linger must be shorter than the delivery_timeout",
        ),
    )
    for is_wrong, names, why in rules:
        if is_wrong and found.sound(*((*_PRODUCERS, name) for name in names)):
            found.report((*_PRODUCERS, names[0]), why)


def _check_keys(spec: ExperimentSpec, found: Problems) -> None:
    producers = spec.workload.producers
    keys, tombstones = (*_PRODUCERS, "keys"), (*_PRODUCERS, "tombstone_every")
    compacted = {name for name in spec.topics if may_compact(spec, name)}
    if producers.keys is None:
        if producers.tombstone_every is not None and found.sound(keys):
            found.complain(
                tombstones, "tombstones delete keys, and records have none", "give workload.producers.keys"
            )
        for name in sorted(compacted & set(spec.topic_names())) if found.sound(keys, ("topics",)) else ():
            where: Path = ("topics", name, "config", "cleanup.policy")
            changes = [
                fault
                for fault in spec.faults
                if "compact" in fault.may_set(spec, name).get("cleanup.policy", "")
            ]
            if found.node(where) is None and changes:
                where = ("faults", changes[0].number - 1)
            why = Advice(
                "brokers reject records without a key in a compacted topic", "give workload.producers.keys"
            )
            found.report(where, why)
        return
    if producers.transaction_size is not None and found.sound((*_PRODUCERS, "transaction_size")):
        found.complain(
            keys,
            "compaction may remove records of a transaction, so torn ones stay unseen",
            "drop keys or transaction_size",
        )
    if producers.tombstone_every is not None and found.sound(tombstones, ("topics",)):
        for name in sorted(set(spec.topic_names()) & spec.topics.keys() - compacted):
            fact = f"topic '{name}' is not compacted, so a tombstone deletes nothing"
            found.report(tombstones, fact, "give it cleanup.policy: compact")
