"""Settings that an experiment must not set: refused by the check of a file, and again when they are rendered."""

from __future__ import annotations

import pytest

from ackproof.base.errors import BadInput
from ackproof.clients.librdkafka.adapter import objection, producer_config, reader_config
from ackproof.cluster.properties import check_settings
from ackproof.experiment.settings import RESERVED, Scope
from ackproof.experiment.spec import ClusterSpec, ProducerSpec
from ackproof.plan import InvalidExperiment
from ackproof.provision.releases import lock

from .conftest import Load

PLACES = {
    Scope.BROKER: "cluster.config",
    Scope.TOPIC: "topics.t.config",
    Scope.PRODUCER: "workload.producers.config",
    Scope.CONSUMER: "workload.consumers.config",
}
EVERY = [(scope, name) for scope in Scope for name in RESERVED[scope]]


def at(path: str, value: str, *more: str) -> str:
    """Return an experiment as text with these settings at `path`. `more`: further lines of the file."""
    topic = "topics: {t: {config: {%s}}}" if path.startswith("topics") else "topics: {t: {}}\n%s"
    inner = value
    if not path.startswith("topics"):
        for part in reversed(path.split(".")[1:]):
            inner = f"{part}: {{{inner}}}"
        inner = f"{path.partition('.')[0]}: {{{inner}}}"
    return "\n".join(["name: x", topic % inner, *more])


@pytest.mark.parametrize(("scope", "reserved"), EVERY)
def test_what_is_reserved_is_refused_where_it_stands_and_once_more_where_it_is_rendered(
    scope: Scope, reserved: str, load_text: Load
) -> None:
    name = f"{reserved}x" if reserved.endswith(".") else reserved
    with pytest.raises(InvalidExperiment) as caught:
        load_text(at(PLACES[scope], f"{name}: '1'"))
    said = [problem for problem in caught.value.problems if problem.path.endswith((f"[{name}]", f".{name}"))]
    assert said and said[0].line > 1 and RESERVED[scope][reserved] in said[0].message
    if scope is not Scope.TOPIC:
        with pytest.raises(BadInput, match=r"ackproof sets|no place"):
            render(scope, {name: "1"})


def render(scope: Scope, config: dict[str, str]) -> None:
    """Render settings as a running case does. Raises `BadInput` for a reserved setting."""
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
            assert objection("producer", producer_config(load.producers, "", "")) is None
            reader = reader_config(load.consumers.config, load.consumers.isolation, "", "r")
            assert objection("consumer", reader) is None
