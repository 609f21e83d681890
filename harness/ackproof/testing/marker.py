"""What `@pytest.mark.kafka(…)` asks for, read and checked as an experiment file is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.experiment.nodes import Data, root_of
from ackproof.experiment.problems import InvalidExperiment
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.plan.matrix import analyse

_NO_TOPIC: Final = "ackproof.none"
_MOST_COPIES: Final = 3


@dataclass(frozen=True)
class Wanted:
    """A cluster and the topics that it has from the start."""

    cluster: ClusterSpec
    topics: dict[str, TopicSpec]


def read_marker(arguments: tuple[object, ...], options: Mapping[str, object]) -> Wanted:
    """The cluster that a marker's arguments mean. Raises `BadInput` with all that is wrong."""
    if arguments:
        raise BadInput(
            f"@pytest.mark.kafka takes named arguments only, such as brokers=3, not {arguments[0]!r}"
        )
    cluster = {name: value for name, value in options.items() if name != "topics"}
    return _read("@pytest.mark.kafka", cluster, options.get("topics", {}))


def read_topic(cluster: ClusterSpec, name: str, options: Mapping[str, object]) -> TopicSpec:
    """One topic of a cluster that runs. Raises `BadInput`."""
    said = {"brokers": cluster.brokers}
    return _read(f"topic {name!r}", said, {name: options}).topics[name]


def _read(what: str, cluster: object, topics: object) -> Wanted:
    if isinstance(topics, (list, tuple)):
        topics = {name: {} for name in topics}
    if not isinstance(topics, Mapping):
        raise BadInput(f"{what}: topics: expected names and what they are, such as {{'orders': {{}}}}")
    brokers = cluster.get("brokers", 3) if isinstance(cluster, Mapping) else 3
    copies = min(_MOST_COPIES, brokers) if isinstance(brokers, int) and brokers > 0 else _MOST_COPIES
    whole: dict[str, object] = {
        "name": "pytest",
        "cluster": cluster,
        "topics": {name: _with_copies(said, copies) for name, said in topics.items()}
        or {_NO_TOPIC: {"replication_factor": 1}},
    }
    try:
        spec = analyse(what, root_of({name: _plain(said) for name, said in whole.items()})).spec
    except InvalidExperiment as error:
        lines = [
            f"{what}: {problem.path.removeprefix('cluster.')}: {problem.message}"
            + (f" (did you mean '{problem.suggestion}'?)" if problem.suggestion else "")
            for problem in error.problems
        ]
        raise BadInput("\n".join(lines)) from None
    return Wanted(spec.cluster, {name: topic for name, topic in spec.topics.items() if name != _NO_TOPIC})


def _with_copies(said: object, copies: int) -> object:
    """A topic that says nothing of its replicas has as many as there are brokers, three at most."""
    if isinstance(said, Mapping) and not {"replication_factor", "assignment"} & said.keys():
        return {**said, "replication_factor": copies}
    return said


def _plain(value: object) -> Data:
    """What a file could hold. Raises `BadInput` for what it could not."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise BadInput(f"expected text, numbers, lists and dictionaries, not {value!r}")
