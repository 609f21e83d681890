"""`cluster.mode: zookeeper`: what goes with it, and what is refused with its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import Plan

Load = Callable[[str], Plan]

FRAME = """\
name: x
cluster: {cluster}
topics: {{t: {{}}}}
faults:
  - kill: {{target: {target}}}
    at: 1s
"""
GOOD = '{kafka: "3.9.2", mode: zookeeper, controllers: 3}'


def text(cluster: str = GOOD, target: str = "controller") -> str:
    return FRAME.format(cluster=cluster, target=target)


@pytest.mark.parametrize("target", ["controller", "zookeeper", "zookeeper(103)", "leader(t/0)", "broker(2)"])
def test_what_there_is(load_text: Load, target: str) -> None:
    spec = load_text(text(target=target)).spec
    assert spec.cluster.controller_ids == (101, 102, 103)
    assert str(spec.faults[0].targets[0]) == target


@pytest.mark.parametrize(
    ("cluster", "target", "where", "said"),
    [
        ("{mode: zookeeper}", "controller", "cluster.mode", 'write kafka: "3.9.2"'),
        ('{kafka: "4.0.0", mode: zookeeper}', "controller", "cluster.mode", "3.9 was the last with it"),
        ('{kafka: "3.9.2", mode: zookeeper, combined: true}', "broker", "cluster.combined", "no broker"),
        (
            '{kafka: "3.9.2", mode: zookeeper, features: {metadata.version: 20}}',
            "broker",
            "cluster.features",
            "there are none",
        ),
        (GOOD, "controllers", "faults[1].kill.target", "one of the brokers is the controller"),
        (GOOD, "controller(101)", "faults[1].kill.target", "aim at controller or zookeeper"),
        (
            GOOD,
            "zookeeper(104)",
            "faults[1].kill.target",
            "the ZooKeeper servers of this cluster are 101 to 103",
        ),
        ('{kafka: "3.9.2"}', "zookeeper", "faults[1].kill.target", "no ZooKeeper in KRaft mode"),
        (
            '{kafka: "3.9.2", mode: zookeeper, config: {zookeeper.connect: x}}',
            "broker",
            "cluster.config[zookeeper.connect]",
            "itself",
        ),
    ],
)
def test_what_there_is_not(load_text: Load, cluster: str, target: str, where: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(text(cluster, target))
    assert [(problem.path, said in problem.message) for problem in caught.value.problems] == [
        (where, True)
    ], caught.value.problems


EXPIRE = """\
name: x
backend: {backend}
cluster: {cluster}
topics: {{t: {{}}}}
faults:
  - expire_session: {{target: {target}}}
    at: 1s{more}
"""


def test_a_session_of_brokers_can_be_expired(load_text: Load) -> None:
    spec = load_text(EXPIRE.format(backend="process", cluster=GOOD, target="leader(t/0)", more="")).spec
    assert str(spec.faults[0]) == "expire_session leader(t/0)"


@pytest.mark.parametrize(
    ("cluster", "target", "more", "where", "said"),
    [
        (
            '{kafka: "3.9.2"}',
            "broker",
            "",
            "faults[1].expire_session",
            "there is no ZooKeeper, nor a session",
        ),
        (GOOD, "zookeeper", "", "faults[1].expire_session.target", "aim at brokers"),
        (GOOD, "leader(t/1)", "", "faults[1].expire_session.target", "0 only"),
        (GOOD, "broker", "\n    for: 2s", "faults[1].for", "ends by itself"),
    ],
)
def test_other_sessions_cannot(
    load_text: Load, cluster: str, target: str, more: str, where: str, said: str
) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(EXPIRE.format(backend="process", cluster=cluster, target=target, more=more))
    assert [(problem.path, said in problem.message) for problem in caught.value.problems] == [
        (where, True)
    ], caught.value.problems
