"""What an experiment may not set: one table, which validation and the renderers of nodes and clients both read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.base.errors import BadInput
from ackproof.clients.config import producer_config, reader_config, verify
from ackproof.cluster.properties import check_settings
from ackproof.experiment.kafka import ELR
from ackproof.experiment.settings import RESERVED, Reserved, Scope
from ackproof.experiment.spec import ClusterSpec, ProducerSpec
from ackproof.plan import InvalidExperiment, Plan
from ackproof.provision.releases import lock

Load = Callable[[str], Plan]
PLACES = {
    Scope.BROKER: "cluster.config",
    Scope.TOPIC: "topics.t.config",
    Scope.PRODUCER: "workload.producers.config",
    Scope.CONSUMER: "workload.consumers.config",
}
EVERY = [(scope, row) for scope in Scope for row in RESERVED if scope in row.scopes]


def at(path: str, value: str, *more: str) -> str:
    """An experiment with these settings at a path."""
    topic = "topics: {t: {config: {%s}}}" if path.startswith("topics") else "topics: {t: {}}\n%s"
    inner = value
    if not path.startswith("topics"):
        for part in reversed(path.split(".")[1:]):
            inner = f"{part}: {{{inner}}}"
        inner = f"{path.partition('.')[0]}: {{{inner}}}"
    return "\n".join(["name: x", topic % inner, *more])


@pytest.mark.parametrize(
    ("scope", "row"), EVERY, ids=lambda it: str(it.name if isinstance(it, Reserved) else it)
)
def test_what_is_reserved_is_refused_where_it_stands_and_once_more_where_it_is_rendered(
    scope: Scope, row: Reserved, load_text: Load
) -> None:
    name = f"{row.name}x" if row.name.endswith(".") else row.name
    with pytest.raises(InvalidExperiment) as caught:
        load_text(at(PLACES[scope], f"{name}: '1'"))
    said = [problem for problem in caught.value.problems if problem.path.endswith((f"[{name}]", f".{name}"))]
    assert said and said[0].line > 1 and row.why in said[0].message
    if scope is not Scope.TOPIC:
        with pytest.raises(BadInput, match=r"ackproof sets|no place"):
            render(scope, {name: "1"})


def render(scope: Scope, config: dict[str, str]) -> None:
    """As a case that runs does."""
    if scope is Scope.BROKER:
        check_settings(ClusterSpec(config=config))
    elif scope is Scope.PRODUCER:
        producer_config(ProducerSpec(config=config), "", "")
    else:
        reader_config(config, "read_committed", "", "")


@pytest.mark.parametrize("scope", [Scope.BROKER, Scope.PRODUCER, Scope.CONSUMER])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client.rack", "x"),
        ("socket.timeout.ms", "9000"),
        ("num.io.threads", "3"),
        ("log.segment.bytes", "ä"),
    ],
)
def test_the_renderers_refuse_nothing_that_validation_let_through(
    scope: Scope, name: str, value: str, load_text: Load
) -> None:
    try:
        load_text(at(PLACES[scope], f"{name}: '{value}'"))
    except InvalidExperiment:
        return
    render(scope, {name: value})


def test_every_experiment_of_the_catalogue_is_rendered(load_text: Load, good_files: dict[str, str]) -> None:
    for text in good_files.values():
        for cell in load_text(text).cells:
            cluster, load = cell.experiment.cluster, cell.experiment.workload
            check_settings(cluster)
            assert lock(cluster.kafka.version)
            verify(
                producer_config(load.producers, "", ""),
                reader_config(load.consumers.config, load.consumers.isolation, "", "r"),
            )


@pytest.mark.parametrize(
    ("path", "value", "where", "said"),
    [
        ("cluster.config", 'x: "a\\u2028b"', "cluster.config.x", "one line"),
        ("cluster.config", "min.insync.replicas: two", "cluster.config[min.insync.replicas]", "a whole number"),
        ("topics", "retention.ms: long", "topics.t.config[retention.ms]", "a whole number from -1 up"),
        ("topics", "min.insync.replicas: 0", "topics.t.config[min.insync.replicas]", "from 1 up"),
        ("topics", "preallocate: maybe", "topics.t.config.preallocate", "true or false"),
        ("topics", "segment.bytes: 1000", "topics.t.config[segment.bytes]", "1048576"),
        ("topics", "no.such.thing: 1", "topics.t.config[no.such.thing]", "no topic setting"),
        ("topics", "message.format.version: 3.0", "topics.t.config[message.format.version]", "3.9 was the last"),
        ("workload.producers.config", "no.such: 1", "workload.producers.config[no.such]", "No such configuration"),
        ("workload.consumers.config", "fetch.wait.max.ms: x", "workload.consumers.config[fetch.wait.max.ms]", "Inval"),
        ("workload.producers", "request_timeout: 1h", "workload.producers.request_timeout", "outside allowed range"),
    ],
)  # fmt: skip
def test_what_kafka_or_librdkafka_would_refuse_is_refused_before(
    path: str, value: str, where: str, said: str, load_text: Load
) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(at(path, value))
    (problem,) = caught.value.problems
    assert problem.path == where and said in problem.message, problem


def test_a_release_has_its_own_settings(load_text: Load) -> None:
    old = 'cluster: {kafka: "3.9.2"}'
    load_text(at("topics", "message.downconversion.enable: false, segment.bytes: 1000", old))
    with pytest.raises(InvalidExperiment, match=r"internal\.segment\.bytes; it came with 4\.1"):
        load_text(at("topics", "internal.segment.bytes: 1000", old))


def test_someone_elses_cluster_may_know_more(load_text: Load) -> None:
    load_text(at("topics", "no.such.thing: 1, segment.bytes: 10", "backend: attach"))
    with pytest.raises(InvalidExperiment, match=r"retention\.ms"):
        load_text(at("topics", "retention.m: 1", "backend: attach"))


def test_feature_levels_that_kafka_does_not_format_a_cluster_with(load_text: Load) -> None:
    levels = "name: x\ntopics: {t: {}}\ncluster: {features: {metadata.version: %d, %s: 1}}\n"
    load_text(levels % (23, ELR))
    load_text(levels % (7, "group.version"))
    with pytest.raises(InvalidExperiment, match=r"it needs metadata\.version 23 or later, not 22"):
        load_text(levels % (22, ELR))


@pytest.mark.parametrize(
    ("dish", "field", "said"),
    [
        ('upgrade: {weight: 1, to: "3.8.0"}', "upgrade.to", "is not newer than"),
        ("set: {weight: 1, config: {node.id: 1}}", "set.config[node.id]", "ackproof sets 'node.id' itself"),
        (
            "set: {weight: 1, topic: t, config: {retention.ms: long}}",
            "set.config[retention.ms]",
            "whole number",
        ),
    ],
)
def test_what_a_storm_may_not_draw_either(dish: str, field: str, said: str, load_text: Load) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(
            f"name: x\ntopics: {{t: {{}}}}\nfaults: [{{storm: {{menu: {{{dish}}}, roles: [broker]}}, at: 1s}}]\n"
        )
    (problem,) = caught.value.problems
    assert problem.path == f"faults[1].storm.menu.{field}" and said in problem.message


def test_names_that_no_cluster_takes(load_text: Load) -> None:
    for topic, more, said in (
        ("__cluster_metadata", "", "metadata"),
        ("x" * 240, "backend: attach", "too long"),
    ):
        with pytest.raises(InvalidExperiment, match=said):
            load_text(f"name: x\ntopics: {{{topic}: {{}}}}\n{more}\n")
