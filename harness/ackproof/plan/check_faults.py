"""Checks of faults against their experiment: roles, partitions, triggers, storms, and abilities of the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pydantic import ValidationError

from ackproof.base.advice import Advice
from ackproof.experiment.backends import Ability
from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.links import roles_in
from ackproof.experiment.problems import ListNode, Path
from ackproof.experiment.roles import SEVERAL, Role, RoleKind, minority_of
from ackproof.experiment.triggers import ChainTrigger, Condition, StateTrigger
from ackproof.faults.registry import fault_kinds
from ackproof.faults.storm import Storm, make_sample, roles_for_kind
from ackproof.plan.diagnostics import Problems, ordered, path_of
from ackproof.plan.expectations import not_seen
from ackproof.plan.reader import own_fields
from ackproof.rundir.partition import TopicPartition

_COORDINATORS: Final = {
    "__transaction_state": "transaction.state.log.num.partitions",
    "__consumer_offsets": "offsets.topic.num.partitions",
}
"""Topics whose leaders are Kafka's coordinators, each with the setting for its number of partitions."""
_RACKS: Path = ("cluster", "racks")
_OWN: Path = ("cluster", "controller_racks")


def check_fault(spec: ExperimentSpec, fault: FaultSpec, found: Problems) -> None:
    """Report to `found` conflicts between a fault and its experiment: abilities of the backend, roles, partitions, what
    its kind objects to (`FaultSpec.check`), trigger."""
    entry: Path = ("faults", fault.number - 1)
    body: Path = (*entry, fault.kind)
    _check_possible(spec, type(fault), body, found)
    _check_fields(spec, fault, body, found)
    if isinstance(fault, Storm):
        _check_storm(spec, fault, body, found)
    fault.check(spec, _Complaints(found, body))
    trigger = fault.trigger
    if isinstance(trigger, ChainTrigger):
        _check_after(spec, fault.number, trigger, (*entry, "after", "fault"), found)
    elif isinstance(trigger, StateTrigger) and found.sound((*entry, "when")):
        _check_condition(spec, trigger.condition, (*entry, "when"), found)


def _check_fields(spec: ExperimentSpec, fault: FaultSpec, body: Path, found: Problems) -> None:
    """Report to `found` roles and partitions in a fault's own fields that the experiment does not have. `body`: path of
    these fields."""
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
    if not spec.cluster.metadata.broker_controls:
        is_zookeeper = role.kind is RoleKind.ZOOKEEPER
        why = Advice(f"{role} matches no node: KRaft mode has no ZooKeeper", "aim at controllers")
        return why if is_zookeeper else None
    if role.kind is RoleKind.CONTROLLERS or (role.kind is RoleKind.CONTROLLER and role.node is not None):
        return Advice(
            f"{role} matches no node: with ZooKeeper a broker is the controller",
            "aim at controller or zookeeper",
        )
    return None


class _Complaints:
    """Receiver of the conflicts that `FaultSpec.check` finds (implements `Complaints`). It turns each path relative to
    the fault into a path in the file, and reports a problem there. A field that has a problem already gets no second
    one."""

    def __init__(self, found: Problems, body: Path) -> None:
        self._found = found
        self._body = body

    def sound(self, *paths: Path, cluster: bool = False) -> bool:
        around: tuple[Path, ...] = (("cluster", "brokers"), ("cluster", "kafka")) if cluster else ()
        return self._found.sound(*(self._body + path for path in paths), *around)

    def report(
        self, path: Path, fact: str, hint: str = "", *, suggestion: str | None = None, key: bool = False
    ) -> None:
        self._found.complain(self._body + path, fact, hint, suggestion=suggestion, key=key)

    def unknown_value(self, path: Path, what: str, name: str, valid: Iterable[str]) -> None:
        if self._found.sound(self._body + path, ("topics",)):
            self._found.unknown_value(self._body + path, what, name, valid)


def _check_role(spec: ExperimentSpec, role: Role, path: Path, found: Problems) -> None:
    if (why := _wrong_in_mode(spec, role)) and found.sound(("cluster", "mode")):
        found.report(path, why)
        return
    if not _check_place(spec, role.topic, role.partition, path, found):
        return
    cluster = spec.cluster
    if role.group is not None:
        _check_coordinator(spec, role.group, path, found)
    elif role.kind is RoleKind.RACK:
        _check_rack(spec, role, path, found)
    elif role.topic in spec.topics:
        factor = spec.topics[role.topic].replication_factor
        lonely = role.kind in (RoleKind.FOLLOWER, RoleKind.FOLLOWERS) and factor < 2
        if lonely and found.sound(("topics", role.topic, "replication_factor")):
            found.report(
                path,
                f"{role} matches no node: the topic has one replica",
                f"aim at leader({role.topic}/{role.partition})",
            )
    elif (
        role.kind is RoleKind.MINORITY
        and not minority_of(cluster.brokers)
        and found.sound(("cluster", "brokers"))
    ):
        found.report(
            path, f"a minority of {cluster.brokers} brokers is empty", "give the cluster 3 brokers or more"
        )
    elif role.node is not None and found.sound(("cluster", "brokers"), ("cluster", "controllers")):
        valid = cluster.broker_ids if role.kind is RoleKind.BROKER else cluster.controller_ids
        if role.node not in valid:
            names = f"{valid[0]}" if len(valid) == 1 else f"{valid[0]} to {valid[-1]}"
            which = "ZooKeeper servers" if role.kind is RoleKind.ZOOKEEPER else f"{role.kind}s"
            found.report(path, f"{role} does not exist", f"the {which} of this cluster are {names}")


def _check_coordinator(spec: ExperimentSpec, group: str, path: Path, found: Problems) -> None:
    readers = spec.workload.consumers
    own = range(readers.live if readers.commit_every else 0)
    groups = [*spec.workload.groups, *(f"ackproof-r{reader}" for reader in own)]
    groups += [spec.workload.service.group] if spec.workload.service is not None else []
    if spec.ground.simulated and found.sound(("backend",)):
        found.report(path, f"not possible on the backend {spec.backend}, because it has no groups")
    elif group not in groups and found.sound_below(("workload",)):
        found.unknown_value(path, "the consumer group", group, groups)


def _has_coordinator(spec: ExperimentSpec, topic: str, partition: int) -> bool:
    """Return True if the topic is `__consumer_offsets` or `__transaction_state`, and the workload makes brokers create
    this partition of it."""
    readers = spec.workload.consumers
    uses = {
        "__transaction_state": spec.workload.producers.transaction_size is not None,
        "__consumer_offsets": bool((readers.live and readers.commit_every) or spec.workload.groups)
        and not spec.ground.simulated,
    }
    # Clusters that ackproof starts have one partition (`experiment.timing.configured`); Kafka's default is 50.
    default = "50" if spec.ground.foreign else "1"
    count = spec.cluster.config.get(_COORDINATORS.get(topic, ""), default)
    return uses.get(topic, False) and count.isdecimal() and partition < int(count)


def _check_place(
    spec: ExperimentSpec, topic: str | None, partition: int | None, path: Path, found: Problems
) -> bool:
    """Report to `found`, at `path`, a partition that does not exist. Return True if it exists, or if `topic` or
    `partition` is None."""
    if topic is None or partition is None or _has_coordinator(spec, topic, partition):
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
        found.report(path, f"{topic}/{partition} does not exist", f"the partitions of {topic} are {last}")
    return False


def _check_condition(spec: ExperimentSpec, condition: Condition, path: Path, found: Problems) -> None:
    if condition.metric:
        if (why := not_seen(condition.quantity_text, spec)) and found.sound(("observe",), ("cluster",)):
            found.report(path, why)
        return
    if condition.topic in _COORDINATORS:
        why = Advice(
            f"{condition.topic} is an internal topic, which is not sampled", "name a topic of the experiment"
        )
        found.report(path, why)
        return
    if not _check_place(spec, condition.topic, condition.partition, path, found):
        return
    if condition.gauge == "read" and not spec.workload.consumers.live:
        if found.sound(("workload", "consumers", "live")):
            found.report(
                path, "nothing is read while the load goes on", "set workload.consumers.live to 1 or more"
            )
    elif condition.gauge == "isr" and condition.topic is not None:
        factor = spec.topics[condition.topic].replication_factor
        known = found.sound(("topics", condition.topic, "replication_factor"))
        if known and not any(condition.holds(size) for size in range(factor + 1)):
            found.report(path, f"'{condition}' never holds: the ISR has at most {factor} members")


def _check_after(spec: ExperimentSpec, number: int, after: ChainTrigger, path: Path, found: Problems) -> None:
    faults = found.node(("faults",))
    count = len(faults.items) if isinstance(faults, ListNode) else len(spec.faults)
    if not found.sound(path):
        return
    if not 1 <= after.fault <= count:
        there = "there is 1 fault" if count == 1 else f"there are {count} faults"
        found.report(path, f"fault {after.fault} does not exist", f"{there}, counted from 1")
    elif after.fault == number:
        found.report(path, f"fault {number} cannot wait for itself")
    elif after.fault > number:
        found.report(path, f"fault {number} can only wait for one before it, not for fault {after.fault}")


def check_on_model(spec: ExperimentSpec, found: Problems) -> None:
    """Report to `found` each part of an experiment that the simulated cluster (`backend: model`) cannot simulate:
    faults, record keys, readers that start at committed offsets. Does nothing for other backends."""
    if not spec.ground.simulated or not found.sound(("backend",)):
        return
    for path, what, why in _lacking(spec):
        if found.sound(path):
            drawn = "" if what in path else f"{what} is "
            because = f"{drawn}not possible on the backend {spec.backend}, because "
            found.report(path, Advice(why).after(because), key=True)


def check_observed(spec: ExperimentSpec, found: Problems) -> None:
    """Report to `found` the fields `observe.metrics` and `observe.brokers` if the experiment sets them and its backend
    does not support them."""
    asked = {"metrics": Ability.METRICS, "brokers": Ability.ASKED}
    for name, ability in asked.items():
        where: Path = ("observe", name)
        why = spec.ground.lacks.get(ability)
        if getattr(spec.observe, name) and why is not None and found.sound(("backend",)):
            because = f"not possible on the backend {spec.backend}, because "
            found.complain(where, Advice(why).after(because), key=True)


def lacks(spec: ExperimentSpec) -> str | None:
    """Return the first fault or setting of an experiment that the model cannot simulate, with the reason; None
    if there is none. Looks only at faults, record keys and `consumers.start: committed`."""
    return next((f"{what}: {why}" for _, what, why in _lacking(spec)), None)


def _lacking(spec: ExperimentSpec) -> Iterator[tuple[Path, str, str]]:
    """Yield what the experiment uses and the model does not have: path in the file, name, reason."""
    for fault in spec.faults:
        body: Path = ("faults", fault.number - 1, fault.kind)
        if why := fault.not_on("model"):
            yield body, fault.kind, why
        elif lack := fault.not_simulated(spec):
            field, why = lack
            yield (*body, field) if field else body, fault.kind, why
        if isinstance(fault, Storm):
            for kind in fault.menu or {}:
                if why := _lack_of_dish(spec, fault, kind):
                    yield (*body, "menu", kind), kind, why
    if spec.workload.producers.keys is not None:
        why = "its records have none, and its logs are not compacted"
        yield ("workload", "producers", "keys"), "keys", why
    if spec.workload.consumers.start == "committed":
        yield ("workload", "consumers", "start"), "start: committed", "it has no groups"


def _lack_of_dish(spec: ExperimentSpec, storm: Storm, kind: str) -> str | None:
    """Return why the model cannot simulate a kind of faults that a storm draws at random; None if it can. The fields
    that the storm's `menu` sets for the kind are applied; if they are invalid, return None."""
    if why := fault_kinds()[kind].not_on("model"):
        return why
    try:
        lack = make_sample(storm, kind, roles_for_kind(storm, kind, spec), spec).not_simulated(spec)
    except ValidationError:
        return None  # reported where the menu is checked
    return None if lack is None else lack[1]


def _check_possible(spec: ExperimentSpec, kind: type[FaultSpec], path: Path, found: Problems) -> None:
    why, mode = kind.not_on(spec.backend), spec.cluster.mode
    if why is not None and found.sound(("backend",)):
        found.report(
            path, Advice(why).after(f"not possible on the backend {spec.backend}, because "), key=True
        )
    elif mode in kind.NOT_IN and found.sound(("cluster", "mode")):
        because = f"not possible with cluster.mode: {mode}, because "
        found.report(path, Advice(kind.NOT_IN[mode]).after(because), key=True)


def _check_storm(spec: ExperimentSpec, storm: Storm, body: Path, found: Problems) -> None:
    if storm.at_least is not None and storm.at_least > storm.count:
        found.complain(
            (*body, "at_least"), f"only {storm.count} faults are drawn", f"{storm.at_least} cannot bite"
        )
    if storm.pairs is not None:
        _check_pairs(spec, storm, body, found)
    for name, dish in (storm.menu or {}).items():
        path: Path = (*body, "menu", name)
        kind = fault_kinds()[name]
        _check_possible(spec, kind, path, found)
        own = own_fields(kind)
        strangers = [field for field in dish.fields if field not in own]
        for field in strangers:
            found.unknown((*path, field), "field", [*own, "weight", "lasting"])
        if strangers or not spec.topics:
            continue
        try:
            one = make_sample(storm, name, roles_for_kind(storm, name, spec), spec)
        except ValidationError as error:
            for detail in ordered(error):
                below = path_of(detail)
                if detail["type"] == "missing":
                    say = f"a storm cannot draw '{below[-1]}' of a {name}: give it here"
                    found.report(path, f"{say}, {name}: {{weight: {dish.weight}, {below[-1]}: …}}", key=True)
                else:
                    found.refuse(detail, path + below)
            continue
        if dish.fields:
            _check_fields(spec, one, path, found)
            one.check(spec, _Complaints(found, path))


def _check_pairs(spec: ExperimentSpec, storm: Storm, body: Path, found: Problems) -> None:
    others = [one.number for one in spec.faults if isinstance(one, Storm) and one.pairs is not None]
    if others[0] != storm.number:
        found.report((*body, "pairs"), f"storm {others[0]} has all pairs already", key=True)
    elif spec.repeat > 1 and found.sound(("repeat",)):
        found.report(
            ("repeat",), "a storm of pairs has as many cases as it takes to have all pairs", "leave it out"
        )
    elif spec.soak is not None:
        why = Advice("a soak cannot deal pairs to its windows", "leave pairs out, or the soak")
        found.report((*body, "pairs"), why, key=True)
    elif storm.count % 2 and found.sound((*body, "count")):
        found.report((*body, "count"), f"{storm.count} faults are not whole pairs", "write an even number")


def able_on(spec: ExperimentSpec) -> Callable[[FaultSpec], bool]:
    """Return a function that returns False for a fault that the backend `model` cannot simulate.

    On other backends it returns True for every fault: those that they cannot inject were refused when the file
    was checked.
    """

    def able(fault: FaultSpec) -> bool:
        alone = fault.model_copy(update={"number": 1})
        return not spec.ground.simulated or lacks(spec.model_copy(update={"faults": (alone,)})) is None

    return able


def _check_rack(spec: ExperimentSpec, role: Role, path: Path, found: Problems) -> None:
    racks = spec.cluster.members.nodes_by_rack
    if not found.sound(_OWN, _RACKS, ("cluster", "brokers"), ("cluster", "controllers")):
        return
    if spec.ground.foreign:
        found.report(
            path, "racks of a cluster that someone else runs are not known", f"list nodes: {SEVERAL}"
        )
    elif not racks:
        found.report(path, f"{role} matches no node: no node has a rack", "write cluster: {racks: [a, b, c]}")
    elif role.rack is not None and role.rack not in racks:
        found.report(path, f"{role} does not exist", f"the racks are {spec.cluster.members.rack_text}")
