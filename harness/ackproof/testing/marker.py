"""Reads and checks the arguments of `@pytest.mark.kafka(…)` and `kafka_cluster.fault(…)` by the rules of experiment
files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.experiment.backends import Need
from ackproof.experiment.case import Case
from ackproof.experiment.problems import Data, InvalidExperiment, root_of, unknown_name
from ackproof.experiment.roles import Role
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.faults.registry import fault_kinds
from ackproof.plan.builds import fill_in_builds
from ackproof.plan.cases import cases, reseeded
from ackproof.plan.matrix import Plan, analyse
from ackproof.plan.reader import spelt_out
from ackproof.run.machine import mark_missed

_NO_TOPIC: Final = "ackproof.none"
_MOST_COPIES: Final = 3
"""Greatest default replication factor; fewer if there are fewer brokers."""
_ON_DEMAND: Final = (
    "it asks the producers of an experiment for each record, and the producers are yours here; write it into an "
    "experiment file, which pytest runs as a test"
)
_SHOWN: Final = re.compile(r"cluster\.|faults\[1\]\.")
"""Prefixes in the paths of error messages that do not appear in the test's code, so they are removed."""


@dataclass(frozen=True)
class ClusterRequest:
    """The cluster that a test's marker `kafka` describes, with its initial topics."""

    cluster: ClusterSpec
    topics: dict[str, TopicSpec]
    needs: frozenset[Need] = frozenset()
    """Preparations (such as link proxies) that its faults need. They are made before the cluster starts."""


def read_marker(arguments: tuple[object, ...], options: Mapping[str, object]) -> ClusterRequest:
    """Return the cluster that the arguments of `@pytest.mark.kafka` describe. Raises `BadInput` with every
    error.
    """
    if arguments:
        raise BadInput(
            f"@pytest.mark.kafka takes named arguments only, such as brokers=3, not {arguments[0]!r}"
        )
    what = "@pytest.mark.kafka"
    cluster = {name: value for name, value in options.items() if name not in ("topics", "faults")}
    plan = _read(what, cluster, options.get("topics", {}))
    topics = {name: topic for name, topic in plan.spec.topics.items() if name != _NO_TOPIC}
    return ClusterRequest(plan.spec.cluster, topics, _needs(what, options.get("faults", ())))


def read_topic(cluster: ClusterSpec, name: str, options: Mapping[str, object]) -> TopicSpec:
    """Return the topic `name` with these options (fields as in an experiment file), which is to be created on a running
    cluster. Raises `BadInput` if an experiment file could not have it."""
    return _read(f"topic {name!r}", {"brokers": cluster.brokers}, {name: options}).spec.topics[name]


def read_fault(
    wanted: ClusterRequest,
    topics: Mapping[str, TopicSpec],
    kind: str,
    whom: tuple[object, ...],
    fields: Mapping[str, object],
    number: int,
    seed: int,
) -> Case:
    """Return a case with a single fault and the topics of a running cluster. `wanted`: the cluster as its marker
    describes it.

    `whom`, `fields`: the target and the fields, as in `KafkaCluster.fault`. `number`: the fault's number. `seed`: seed
    of its random choices. Raises `BadInput` for a fault that no experiment may have, and for one that asks producers
    for records (`SENDS`). Also raises it if the cluster was started without the preparations that the fault requires.
    """
    what = f"fault({kind!r})"
    if (known := fault_kinds().get(kind)) is not None and known.SENDS:
        raise BadInput(f"{what}: {_ON_DEMAND}")
    said: dict[str, object] = {name.removesuffix("_"): value for name, value in fields.items()}
    if len(whom) > 1:
        raise BadInput(f"{what}: whom it hits is one value; all else is said by name")
    if "target" in said:
        said["target"] = _role(said["target"])
    entry = {"at": "0s", kind: _role(whom[0]), **said} if whom else {"at": "0s", kind: said}
    there = {name: topic.model_dump(mode="json", exclude_none=True) for name, topic in topics.items()}
    plan = _read(what, wanted.cluster.model_dump(mode="json", exclude_none=True), there, [entry])
    case = cases(plan)[0]
    fault = case.experiment.faults[0].model_copy(update={"number": number})
    own = case.experiment.model_copy(update={"faults": (fault,), "topics": dict(topics)})
    case = mark_missed(reseeded(replace(case, experiment=own), seed))
    # Nodes have their own file systems wherever these can be mounted.
    laid = wanted.needs | ({Need.DISKS} if Need.DISKS_WHERE_ROOT in wanted.needs else set())
    lacking = {one.kind: one.needs - laid for one in case.faults if one.needs - laid}
    if lacking:
        needs = "; ".join(sorted(set().union(*lacking.values())))
        raise BadInput(
            f"{what}: this is laid before the cluster starts: {needs}; "
            f"write @pytest.mark.kafka(faults={sorted(lacking)})"
        )
    return case


def _role(whom: object) -> object:
    """Return the role that names a node id, as in an experiment file: 1 becomes `broker(1)`. In a list, each id is
    replaced. Any other value is returned unchanged."""
    if isinstance(whom, (list, tuple)):
        return [_role(one) for one in whom]
    if isinstance(whom, int):
        return str(Role.of_node(whom))
    return whom


def _needs(what: str, kinds: object) -> frozenset[Need]:
    """Return the preparations before the cluster's start (such as link proxies) that these kinds of faults can need,
    whatever their fields. `what`: the call, for error messages. Raises `BadInput` if `kinds` is no list, or has a kind
    that is unknown or needs the producers of an experiment."""
    if isinstance(kinds, str) or not isinstance(kinds, (list, tuple)):
        raise BadInput(f"{what}: faults: expected kinds of faults such as ['isolate'], not {kinds!r}")
    for kind in kinds:
        if kind not in fault_kinds():
            fact = f"{what}: faults: unknown kind {kind!r}"
            raise BadInput(unknown_name(fact, str(kind), list(fault_kinds()), "expected one of"))
        if fault_kinds()[kind].SENDS:
            raise BadInput(f"{what}: faults: {kind}: {_ON_DEMAND}")
    return frozenset().union(*(fault_kinds()[kind].NEEDS for kind in kinds))


def _read(what: str, cluster: object, topics: object, faults: list[object] | None = None) -> Plan:
    if isinstance(topics, (list, tuple)):
        topics = {name: {} for name in topics}
    if not isinstance(topics, Mapping):
        raise BadInput(f"{what}: topics: expected names and what they are, such as {{'orders': {{}}}}")
    brokers = cluster.get("brokers", 3) if isinstance(cluster, Mapping) else 3
    copies = min(_MOST_COPIES, brokers) if isinstance(brokers, int) and brokers > 0 else _MOST_COPIES
    with_copies = {
        name: {**said, "replication_factor": copies}
        if isinstance(said, Mapping) and not {"replication_factor", "assignment"} & said.keys()
        else said
        for name, said in topics.items()
    }
    whole: dict[str, object] = {
        "name": "pytest",
        "cluster": cluster,
        "topics": with_copies or {_NO_TOPIC: {"replication_factor": 1}},
        "faults": faults or [],
    }
    try:
        root = spelt_out(root_of({name: _plain(said) for name, said in whole.items()}))
        return analyse(what, fill_in_builds(what, root, Path.cwd()))
    except InvalidExperiment as error:
        lines = [f"{what}: {_SHOWN.sub('', problem.path)}: {problem.message}" for problem in error.problems]
        raise BadInput("\n".join(lines)) from None


def _plain(value: object) -> Data:
    """Return the value as plain data. Raises `BadInput` for anything that a file cannot hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise BadInput(f"expected text, numbers, lists and dictionaries, not {value!r}")
