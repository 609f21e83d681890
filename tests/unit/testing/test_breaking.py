"""Methods of `KafkaCluster` that break and repair nodes, on fake nodes: each healing is recorded for its own fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException

from ackproof.base.errors import AckproofError, BadInput
from ackproof.cluster.install import Installation
from ackproof.cluster.protocol import NodeState
from ackproof.experiment.spec import ClusterSpec
from ackproof.rundir.timeline import EventKind, read_timeline
from ackproof.testing.cluster import KafkaCluster
from ackproof.testing.fixtures import note_end
from ackproof.testing.marker import read_marker
from ackproof.testing.plugin import CLUSTERS, PASSED
from fake_nodes import FakeCluster, FakeNode

LIFE = ["asked", "confirmed", "healed", "recovered"]


class Made(FakeCluster):
    """Fake of a cluster with three brokers."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__({number: FakeNode(number) for number in (1, 2, 3)})

    spec = ClusterSpec(brokers=3)

    def brokers(self) -> list[FakeNode]:
        return [*self.nodes.values()]

    def controllers(self) -> list[FakeNode]:
        return []

    def start(self) -> None:
        pass

    def create_topics(self, topics: object) -> None:
        pass

    def stop(self) -> None:
        pass

    def remove_data(self) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaCluster]:
    monkeypatch.setattr("ackproof.testing.cluster.ProcessCluster", Made)
    monkeypatch.setattr("ackproof.faults.processes.GONE_WITHIN_S", 0.1)
    with KafkaCluster(read_marker((), {}), tmp_path, cast(Installation, None)) as made:
        yield made


def fates(cluster: KafkaCluster) -> dict[int, list[str]]:
    """Return the kinds of events of each fault, in order, without the prefix `fault-`."""
    told: dict[int, list[str]] = {}
    for event in read_timeline(cluster.run.timeline)[0]:
        assert event.fault is not None
        told.setdefault(event.fault, []).append(event.kind.value.removeprefix("fault-"))
    return told


def node(cluster: KafkaCluster, number: int) -> FakeNode:
    return cast(FakeNode, cluster.cluster.node(number))


def test_a_start_heals_every_fault_that_holds_a_node(cluster: KafkaCluster) -> None:
    cluster.kill(1)
    cluster.kill(2)
    assert cluster.start() == (1, 2)
    assert fates(cluster) == {1: LIFE, 2: LIFE}


def test_a_start_of_one_node_heals_its_own_fault(cluster: KafkaCluster) -> None:
    cluster.kill(1)
    cluster.kill(2)
    cluster.start(1)
    assert fates(cluster) == {1: LIFE, 2: LIFE[:2]}
    assert node(cluster, 2).now is NodeState.GONE


def test_a_fault_has_healed_with_its_last_node(cluster: KafkaCluster) -> None:
    cluster.kill([1, 2])
    cluster.start(1)
    assert fates(cluster) == {1: LIFE[:2]}
    cluster.start(2)
    assert fates(cluster) == {1: LIFE}


def test_a_start_heals_the_pause_of_a_process_that_was_killed(cluster: KafkaCluster) -> None:
    cluster.pause(1)
    cluster.kill(1)
    cluster.heal()
    assert fates(cluster) == {1: LIFE, 2: LIFE}
    assert node(cluster, 1).told == ["pause", "kill", "start"]


def test_a_bounce_and_a_pause_have_their_own_numbers(cluster: KafkaCluster) -> None:
    cluster.restart(3)
    cluster.pause(1)
    cluster.resume()
    assert fates(cluster) == {1: LIFE, 2: LIFE}


def test_what_did_not_bite_is_not_healed(cluster: KafkaCluster) -> None:
    cluster.kill(1)
    with pytest.raises(AckproofError, match="nothing to break"):
        cluster.kill(1)
    cluster.start(1)
    assert fates(cluster) == {1: LIFE, 2: ["asked", "failed"]}


def test_a_node_that_ended_by_itself_is_nobodys_healing(cluster: KafkaCluster) -> None:
    node(cluster, 1).now = NodeState.GONE
    assert cluster.start() == (1,)
    assert node(cluster, 1).now is NodeState.RUNNING
    assert fates(cluster) == {}


def test_a_block_holds_its_fault_and_no_longer(cluster: KafkaCluster) -> None:
    with cluster.fault("pause", 1) as nodes:
        assert nodes == (1,)
        assert node(cluster, 1).now is NodeState.STOPPED
        assert fates(cluster) == {1: LIFE[:2]}
        cluster.kill(2)
        with pytest.raises(BadInput, match="at the end of its block"):
            cluster.resume(1)
    assert node(cluster, 1).now is NodeState.RUNNING
    assert fates(cluster) == {1: LIFE, 2: LIFE[:2]}
    assert [did.split(" s ")[1] for did in cluster.faults] == [
        "pause broker(1) → node 1",
        "kill node 2 → node 2",
        "end of pause broker(1)",
    ]


def test_heal_ends_blocks(cluster: KafkaCluster) -> None:
    with cluster.fault("kill", target="broker(3)"):
        cluster.heal()
        assert node(cluster, 3).now is NodeState.RUNNING
    assert node(cluster, 3).told == ["kill", "start"]


def test_a_block_whose_fault_does_not_bite_is_not_entered(cluster: KafkaCluster) -> None:
    node(cluster, 1).deaf = True
    with pytest.raises(AckproofError, match="fault 1"), cluster.fault("kill", 1):
        pytest.fail("entered")
    assert fates(cluster)[1][:2] == ["asked", "failed"]
    cluster.heal()


def test_what_did_not_bite_is_not_entered_while_it_is_undone(cluster: KafkaCluster) -> None:
    node(cluster, 1).deaf = True
    node(cluster, 1).ready_after_s = 0.5
    with pytest.raises(AckproofError, match="fault 1"), cluster.fault("kill", 1):
        pytest.fail("entered")


def test_a_healing_that_nobody_sees_does_not_hide_why_the_test_failed(cluster: KafkaCluster) -> None:
    with pytest.raises(ZeroDivisionError) as caught, cluster.fault("kill", 1):
        node(cluster, 1).ready = False
        raise ZeroDivisionError
    assert "unfenced" in caught.value.__notes__[0]
    with pytest.raises(AckproofError, match="unfenced"), cluster.fault("kill", 2):
        node(cluster, 2).ready = False


def test_what_a_test_leaves_without_an_end_is_ended_with_its_cluster(cluster: KafkaCluster) -> None:
    block = cluster.fault("pause", 1)
    block.__enter__()
    assert node(cluster, 1).now is NodeState.STOPPED
    cluster.__exit__(None, None, None)
    assert node(cluster, 1).now is NodeState.RUNNING


@pytest.mark.parametrize("undo", [KafkaCluster.start, KafkaCluster.heal])
def test_a_healing_that_nobody_sees_fails_its_fault(
    cluster: KafkaCluster, undo: Callable[[KafkaCluster], object]
) -> None:
    cluster.kill(1)
    node(cluster, 1).ready = False
    with pytest.raises(AckproofError, match="unfenced"):
        undo(cluster)
    assert fates(cluster) == {1: [*LIFE[:3], EventKind.FAULT_FAILED.value.removeprefix("fault-")]}


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (AssertionError("3 records were not delivered"), True),
        (AckproofError("it did not bite"), True),
        (KafkaException("timed out"), True),
        (TypeError("send() takes 1 argument"), False),
        (BadInput("did you mean 'leader'"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nodes_have_nothing_to_say_of_a_mistake_of_the_test(
    cluster: KafkaCluster, error: Exception, shown: bool
) -> None:
    cluster.kill(2)
    item: Any = SimpleNamespace(stash={CLUSTERS: [cluster]})
    report: Any = SimpleNamespace(failed=True, sections=[])
    note_end(item, report, error)
    assert item.stash[PASSED] is False
    told = "".join(text for _, text in report.sections)
    assert ("kill node 2" in told) is shown
    assert (str(cluster.run.nodes) in told) is shown
