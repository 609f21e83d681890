"""Topics that the brokers create: what a file may say of them, and what follows from the brokers' settings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import Plan, cases
from ackproof.plan.cases import case_from_json, case_to_json

Load = Callable[[str], Plan]


def text(topic: str = "", config: str = "auto.create.topics.enable: true", backend: str = "process") -> str:
    return (
        f"name: x\nbackend: {backend}\ncluster: {{brokers: 3, config: {{{config}}}}}\n"
        f"topics: {{t: {{auto_created: true{topic}}}}}\n"
    )


@pytest.mark.parametrize(
    ("config", "partitions", "replicas"),
    [("", 1, 1), (", num.partitions: 4", 4, 1), (", default.replication.factor: 2", 1, 2)],
)
def test_the_brokers_settings_say_what_it_is(
    load_text: Load, config: str, partitions: int, replicas: int
) -> None:
    (case,) = cases(load_text(text(config=f"auto.create.topics.enable: true{config}")))
    topic = case.experiment.topics["t"]
    assert (topic.partitions, topic.replication_factor) == (partitions, replicas)
    assert case_from_json(case_to_json(case)) == case


def test_each_cell_has_its_own(load_text: Load) -> None:
    varied = text() + "matrix: {'cluster.config[default.replication.factor]': [1, 2, 3]}\n"
    assert [case.experiment.topics["t"].replication_factor for case in cases(load_text(varied))] == [1, 2, 3]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (text(config=""), "auto.create.topics.enable: true"),
        (text(config="auto.create.topics.enable: false"), "auto.create.topics.enable: true"),
        (text(backend="attach"), "someone else runs"),
        (text(", assignment: [[1]]"), "nobody says that"),
        (text(", config: {min.insync.replicas: 1}"), "nobody says that"),
        (text(", partitions: 2"), "the brokers create it with num.partitions, which is 1"),
        (text(", replication_factor: 3"), "with default.replication.factor, which is 1"),
    ],
)
def test_what_does_not_fit_is_refused(load_text: Load, written: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as raised:
        load_text(written)
    assert any(said in problem.message for problem in raised.value.problems)
