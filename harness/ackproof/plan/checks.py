"""What no single field can say: roles that name topics, factors above the number of brokers, and the like."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.kafka import (
    ELR,
    ELR_NEEDS,
    IMAGE_ALONE,
    KNOWN_FEATURES,
    LAST_WITH_ZOOKEEPER,
    LINES,
    METADATA,
    features_of,
    first_with,
    line_of,
    numbers,
    too_old,
)
from ackproof.experiment.links import roles_in
from ackproof.experiment.problems import ListNode, Path
from ackproof.experiment.roles import Role, RoleKind, minority_of
from ackproof.experiment.settings import Scope, wrong_topic_setting
from ackproof.experiment.spec import AUTO_CREATED, LONGEST_TOPIC, TopicSpec, attached_topic
from ackproof.experiment.triggers import After, Condition, When
from ackproof.faults.storm import Storm
from ackproof.plan.checks_backend import check_observed, check_on_model, check_possible, check_storm
from ackproof.plan.checks_racks import check_rack, check_racks
from ackproof.plan.checks_workload import check_settings, check_workload
from ackproof.plan.diagnostics import Problems
from ackproof.plan.doubts import look_for_doubts
from ackproof.plan.expectations import not_seen
from ackproof.plan.meetings import check_meetings
from ackproof.plan.soaking import check_soak
from ackproof.rundir.partition import TopicPartition

_ORDER: Final[Path] = ("cluster", "start_order")
_LONGEST_ATTACHED: Final = LONGEST_TOPIC - len(attached_topic("", "x" * 99))


def check(spec: ExperimentSpec, found: Problems) -> None:
    """Report what does not fit together. Fields that already have a problem are passed over."""
    _check_cluster(spec, found)
    for name, topic in spec.topics.items():
        _check_topic(spec, name, topic, found)
        _check_auto_created(spec, topic, ("topics", name), found)
    _check_names_of_topics(spec, found)
    check_workload(spec, found)
    for fault in spec.faults:
        _check_fault(spec, fault, found)
    check_meetings(spec, found)
    _check_evidence(spec, found)
    check_observed(spec, found)
    check_on_model(spec, found)
    check_soak(spec, found)
    if not found.problems:
        look_for_doubts(spec, found)


def _check_cluster(spec: ExperimentSpec, found: Problems) -> None:
    _check_mode(spec, found)
    _check_release(spec, found)
    check_racks(spec, found)
    check_settings(found, ("cluster", "config"), Scope.BROKER)
    order = spec.cluster.start_order
    if (odd := [one for one in order if one not in spec.cluster.broker_ids]) and found.sound(_ORDER):
        found.report(_ORDER, f"broker {odd[0]} does not exist; {_brokers(spec)}")
    elif len(set(order)) < len(order) and found.sound(_ORDER):
        found.report(_ORDER, "a broker starts once")
    elif order and spec.cluster.combined and found.sound(_ORDER):
        found.report(_ORDER, "a broker that is a controller, too, takes part only once others do")
    elif order and (spec.ground.foreign or spec.ground.simulated) and found.sound(_ORDER):
        found.report(_ORDER, f"nothing starts on the backend {spec.backend}", key=True)
    given: Path = ("cluster", "settings_from")
    if spec.cluster.settings_from is not None and spec.ground.foreign and found.sound(given):
        found.report(given, "brokers that someone else runs have settings of their own; leave it out")
    for broker in spec.cluster.broker_config:
        path: Path = ("cluster", "broker_config", str(broker))
        if broker not in spec.cluster.broker_ids and found.sound(path, ("cluster", "brokers")):
            found.report(path, f"broker {broker} does not exist; {_brokers(spec)}", key=True)
        check_settings(found, path, Scope.BROKER)


def _check_mode(spec: ExperimentSpec, found: Problems) -> None:
    """What there is not with ZooKeeper."""
    cluster, mode = spec.cluster, ("cluster", "mode")
    if not cluster.metadata.broker_controls or not found.sound(mode):
        return
    if not line_of(cluster.kafka.version).zookeeper and found.sound(("cluster", "kafka")):
        last = LAST_WITH_ZOOKEEPER
        was = f"{last.rpartition('.')[0]} was the last with it"
        found.report(mode, f'Kafka {cluster.kafka} has no ZooKeeper mode: {was}; write kafka: "{last}"')
    if cluster.combined and found.sound(("cluster", "combined")):
        found.report(("cluster", "combined"), "with ZooKeeper no broker is a server of its own metadata")
    if cluster.features and found.sound(("cluster", "features")):
        found.report(("cluster", "features"), "feature levels are KRaft's: with ZooKeeper there are none")


def _check_release(spec: ExperimentSpec, found: Problems) -> None:
    """Whether the release may be, and whether it has the features and levels that are asked for.

    Of a release that is not known its own tool says so, before anything is started.
    """
    kafka: Path = ("cluster", "kafka")
    if not found.sound(kafka):
        return
    version = (build := spec.cluster.kafka).version
    if why := too_old(version):
        found.report(kafka, why)
        return
    if build.image and spec.backend != "docker" and found.sound(("backend",)):
        found.report(kafka, IMAGE_ALONE)
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
            found.report(path, f"Kafka {version} has no {name}; it came with {first_with(name)}", key=True)
        elif not levels[name][0] <= level <= levels[name][1]:
            lowest, highest = levels[name]
            found.report(path, f"Kafka {version} has levels {lowest} to {highest} of {name}, not {level}")
    metadata = spec.cluster.features.get(METADATA, ELR_NEEDS)
    if spec.cluster.features.get(ELR) and metadata < ELR_NEEDS and found.sound_below(("cluster", "features")):
        message = f"it needs {METADATA} {ELR_NEEDS} or later, not {metadata}"
        found.report(("cluster", "features", ELR), message)


def _check_topic(spec: ExperimentSpec, name: str, topic: TopicSpec, found: Problems) -> None:
    path: Path = ("topics", name)
    factor: Path = (*path, "replication_factor")
    if not found.sound(path):
        return
    if found.sound(("cluster", "kafka"), ("backend",)):
        for setting, value in topic.config.items():
            wrong = wrong_topic_setting(setting, value, spec)
            if wrong is not None and found.sound((*path, "config", setting)):
                where: Path = (*path, "config", setting)
                found.report(where, wrong.message, wrong.nearest, key=wrong.name)
    known = found.sound(factor, (*path, "partitions"), ("cluster", "brokers"))
    if known and topic.replication_factor > spec.cluster.brokers:
        default = "" if found.node(factor) is not None or topic.assignment is not None else " (the default)"
        message = f"{topic.replication_factor} replicas{default} need as many brokers; {_brokers(spec)}"
        found.report(factor, message)
    if topic.assignment is None or not found.sound((*path, "assignment")):
        return
    if known and len(topic.assignment) != topic.partitions:
        message = f"{len(topic.assignment)} partitions are assigned, but there are {topic.partitions}"
        found.report((*path, "assignment"), message)
    for index, replicas in enumerate(topic.assignment):
        row: Path = (*path, "assignment", index)
        strangers = [node for node in replicas if node not in spec.cluster.broker_ids]
        if len(set(replicas)) != len(replicas):
            found.report(row, "a broker holds one replica of a partition, not two")
        elif strangers and found.sound(("cluster", "brokers")):
            found.report(row, f"broker {strangers[0]} does not exist; {_brokers(spec)}")
        elif known and len(replicas) != topic.replication_factor:
            found.report(
                row, f"{len(replicas)} replicas, but the replication factor is {topic.replication_factor}"
            )


def _brokers(spec: ExperimentSpec) -> str:
    count = spec.cluster.brokers
    return "the cluster has 1 broker" if count == 1 else f"the cluster has {count} brokers (1 to {count})"


def _check_auto_created(spec: ExperimentSpec, topic: TopicSpec, path: Path, found: Problems) -> None:
    """What is said of a topic when it is made is not said of one that the brokers make by themselves."""
    if not topic.auto_created:
        return
    where: Path = (*path, "auto_created")
    if spec.ground.foreign:
        found.report(where, "what brokers that someone else runs create by themselves is not known")
    elif spec.cluster.config.get("auto.create.topics.enable", "").lower() != "true":
        found.report(where, "brokers do that with cluster: {config: {auto.create.topics.enable: true}} alone")
    for name in ("assignment", "config"):
        if getattr(topic, name):
            found.report((*path, name), "of a topic that brokers create by themselves nobody says that")
    for name, setting in AUTO_CREATED.items():
        theirs = spec.cluster.config.get(setting, "1")
        if theirs != str(getattr(topic, name)) and found.sound((*path, name)):
            found.report((*path, name), f"the brokers create it with {setting}, which is {theirs}")


def _check_names_of_topics(spec: ExperimentSpec, found: Problems) -> None:
    if not spec.topics and found.sound_below(("topics",)):
        found.report(("topics",), "at least one topic is needed")
    seen: dict[str, str] = {}
    for name in spec.topics:
        if name == "__cluster_metadata":
            found.report(("topics", name), f"Kafka keeps its metadata in '{name}'", key=True)
        if spec.ground.foreign and len(name) > _LONGEST_ATTACHED and found.sound(("backend",)):
            most = f"at most {_LONGEST_ATTACHED} characters"
            found.report(("topics", name), f"with the run's own prefix it gets too long; {most}", key=True)
        # Kafka's metrics write '.' as '_', so it refuses to have both names.
        other = seen.setdefault(name.replace(".", "_"), name)
        if other != name:
            found.report(
                ("topics", name), f"Kafka cannot tell '{name}' from '{other}' (. and _ collide)", key=True
            )


def _check_fault(spec: ExperimentSpec, fault: FaultSpec, found: Problems) -> None:
    entry: Path = ("faults", fault.number - 1)
    body: Path = (*entry, fault.kind)
    check_possible(spec, type(fault), body, found)
    _check_fields(spec, fault, body, found)
    if isinstance(fault, Storm):
        check_storm(spec, fault, body, found, _check_given)
    fault.check(spec, _Complaints(found, body))
    trigger = fault.trigger
    if isinstance(trigger, After):
        _check_after(spec, fault.number, trigger, (*entry, "after", "fault"), found)
    elif isinstance(trigger, When) and found.sound((*entry, "when")):
        _check_condition(spec, trigger.condition, (*entry, "when"), found)


def _check_given(spec: ExperimentSpec, fault: FaultSpec, body: Path, found: Problems) -> None:
    """A fault as a storm's menu gives it."""
    _check_fields(spec, fault, body, found)
    fault.check(spec, _Complaints(found, body))


def _check_fields(spec: ExperimentSpec, fault: FaultSpec, body: Path, found: Problems) -> None:
    """The roles and partitions among the own fields of a fault; `body` is where these fields stand."""
    for name in type(fault).model_fields:
        value = getattr(fault, name)
        for index, target in enumerate(roles_in(value)):
            path: Path = (*body, name, index) if isinstance(fault, Storm) else (*body, name)
            for role in target.walk():
                if found.sound(path):
                    _check_role(spec, role, path, found)
        if isinstance(value, TopicPartition) and found.sound((*body, name)):
            _check_place(spec, value.topic, value.partition, (*body, name), found)


def _wrong_in_mode(spec: ExperimentSpec, role: Role) -> str | None:
    """Why nobody can hold this role in the cluster's mode."""
    if not spec.cluster.metadata.broker_controls:
        of_zookeeper = role.kind is RoleKind.ZOOKEEPER
        return f"{role} is nobody: no ZooKeeper in KRaft mode; aim at controllers" if of_zookeeper else None
    if role.kind is RoleKind.CONTROLLERS or (role.kind is RoleKind.CONTROLLER and role.node is not None):
        return f"{role} is nobody: with ZooKeeper one of the brokers is the controller; aim at controller or zookeeper"
    return None


class _Complaints:
    """What a fault says against its own fields, put where the file has them."""

    def __init__(self, found: Problems, body: Path) -> None:
        self._found = found
        self._body = body

    def sound(self, *paths: Path, cluster: bool = False) -> bool:
        around: tuple[Path, ...] = (("cluster", "brokers"), ("cluster", "kafka")) if cluster else ()
        return self._found.sound(*(self._body + path for path in paths), *around)

    def report(self, path: Path, message: str, suggestion: str | None = None, *, key: bool = False) -> None:
        if self._found.sound(self._body + path):
            self._found.report(self._body + path, message, suggestion, key=key)

    def unknown_value(self, path: Path, what: str, name: str, valid: Iterable[str]) -> None:
        if self._found.sound(self._body + path, ("topics",)):
            self._found.unknown_value(self._body + path, what, name, valid)


def _check_role(spec: ExperimentSpec, role: Role, path: Path, found: Problems) -> None:
    why = _wrong_in_mode(spec, role)
    if why is not None and found.sound(("cluster", "mode")):
        found.report(path, why)
        return
    if not _check_place(spec, role.topic, role.partition, path, found):
        return
    cluster = spec.cluster
    if role.kind is RoleKind.RACK:
        check_rack(spec, role, path, found)
    elif role.topic in spec.topics:
        factor = spec.topics[role.topic].replication_factor
        lonely = role.kind in (RoleKind.FOLLOWER, RoleKind.FOLLOWERS) and factor < 2
        if lonely and found.sound(("topics", role.topic, "replication_factor")):
            found.report(
                path,
                f"{role} is nobody: the topic has one replica; aim at leader({role.topic}/{role.partition})",
            )
    elif (
        role.kind is RoleKind.MINORITY
        and not minority_of(cluster.brokers)
        and found.sound(("cluster", "brokers"))
    ):
        found.report(path, f"the minority of {cluster.brokers} brokers is nobody; it takes 3 brokers")
    elif role.node is not None and found.sound(("cluster", "brokers"), ("cluster", "controllers")):
        valid = cluster.broker_ids if role.kind is RoleKind.BROKER else cluster.controller_ids
        if role.node not in valid:
            names = f"{valid[0]}" if len(valid) == 1 else f"{valid[0]} to {valid[-1]}"
            which = "ZooKeeper servers" if role.kind is RoleKind.ZOOKEEPER else f"{role.kind}s"
            found.report(path, f"{role} does not exist; the {which} of this cluster are {names}")


_COORDINATORS: Final = {
    "__transaction_state": "transaction.state.log.num.partitions",
    "__consumer_offsets": "offsets.topic.num.partitions",
}
"""Topics of Kafka's coordinators, whose leaders are the coordinators; each with the setting of how many partitions."""


def _has_coordinator(spec: ExperimentSpec, topic: str, partition: int) -> bool:
    """Whether the workload makes the brokers create this partition of a coordinator's topic."""
    readers = spec.workload.consumers
    uses = {
        "__transaction_state": spec.workload.producers.transaction_size is not None,
        "__consumer_offsets": bool(readers.live and readers.commit_every) and not spec.ground.simulated,
    }
    # Clusters of ours have one partition (`node_settings`), Kafka's default is 50.
    default = "50" if spec.ground.foreign else "1"
    count = spec.cluster.config.get(_COORDINATORS.get(topic, ""), default)
    return uses.get(topic, False) and count.isdecimal() and partition < int(count)


def _check_place(
    spec: ExperimentSpec, topic: str | None, partition: int | None, path: Path, found: Problems
) -> bool:
    """Whether a partition exists, if one is named."""
    if topic is None or partition is None:
        return True
    if _has_coordinator(spec, topic, partition):
        return True
    if topic not in spec.topics:
        if found.sound(("topics",)):
            found.unknown_value(path, "the topic", topic, spec.topics)
        return False
    partitions = spec.topics[topic].partitions
    if partition < partitions:
        return True
    if found.sound(("topics", topic, "partitions"), ("topics", topic, "assignment")):
        last = f"0 to {partitions - 1}" if partitions > 1 else "0 only"
        found.report(path, f"{topic}/{partition} does not exist; the partitions of {topic} are {last}")
    return False


def _check_condition(spec: ExperimentSpec, condition: Condition, path: Path, found: Problems) -> None:
    if condition.metric:
        for why in islice(not_seen(condition.asked, spec), 1):
            if found.sound(("observe",), ("cluster",)):
                found.report(path, why)
        return
    if condition.topic in _COORDINATORS:
        message = f"{condition.topic} is not watched; name a topic of the experiment"
        found.report(path, message)
        return
    if not _check_place(spec, condition.topic, condition.partition, path, found):
        return
    if condition.gauge == "read" and not spec.workload.consumers.live:
        if found.sound(("workload", "consumers", "live")):
            found.report(
                path, "nothing is read while the load goes on; set workload.consumers.live to 1 or more"
            )
    elif condition.gauge == "isr" and condition.topic is not None:
        factor = spec.topics[condition.topic].replication_factor
        known = found.sound(("topics", condition.topic, "replication_factor"))
        if known and not any(condition.holds(size) for size in range(factor + 1)):
            found.report(path, f"'{condition}' never holds: the ISR has at most {factor} members")


def _check_after(spec: ExperimentSpec, number: int, after: After, path: Path, found: Problems) -> None:
    faults = found.node(("faults",))
    count = len(faults.items) if isinstance(faults, ListNode) else len(spec.faults)
    if not found.sound(path):
        return
    if not 1 <= after.fault <= count:
        there = "there is 1 fault" if count == 1 else f"there are {count} faults"
        found.report(path, f"fault {after.fault} does not exist; {there}, counted from 1")
    elif after.fault == number:
        found.report(path, f"fault {number} cannot wait for itself")
    elif after.fault > number:
        found.report(path, f"fault {number} can only wait for one before it, not for fault {after.fault}")


def _check_evidence(spec: ExperimentSpec, found: Problems) -> None:
    size = spec.evidence.isr_size
    path: Path = ("evidence", "isr_size")
    if size is None or not found.sound(path):
        return
    for name, topic in spec.topics.items():
        if size > topic.replication_factor and found.sound(("topics", name, "replication_factor")):
            found.report(
                path, f"an ISR of {size} is impossible: '{name}' has {topic.replication_factor} replicas"
            )
            return
