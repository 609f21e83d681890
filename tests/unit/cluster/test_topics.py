"""Tests of the creation of topics when brokers answer late, with errors, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from ackproof.base.errors import BadInput, NodeDied, WaitTimeout
from ackproof.cluster import queries, readiness
from ackproof.cluster.queries import PartitionEnds, PartitionState
from ackproof.experiment.spec import TopicSpec
from ackproof.network.wire import Refused, Unreachable
from ackproof.rundir.partition import TopicPartition

PLACE = TopicPartition("t", 0)
FULL = {PLACE: PartitionState("t", 0, 1, 0, (1, 2), (2, 1))}
ENDS = {PLACE: PartitionEnds(1, 0, 0, 0, 0, 0)}
SPEC = {"t": TopicSpec(replication_factor=2)}

Answer = dict[str, Refused] | Exception


@dataclass
class FakeCluster:
    """Fake cluster with the methods that `create_topics` calls. Names of brokers stand for connections. `views`: by
    broker, its successive views of the partitions (the last one repeats); default: `FULL`. `death`: raised by
    `check`."""

    views: dict[str, list[dict[TopicPartition, PartitionState]]] = field(default_factory=dict)
    ends: dict[TopicPartition, PartitionEnds] = field(default_factory=lambda: dict(ENDS))
    death: NodeDied | None = None

    def check(self) -> None:
        if self.death:
            raise self.death

    def running_links(self) -> dict[int, str]:
        return {1: "one", 2: "two"}

    def admin_link(self) -> str:
        return "one"

    def partition_ends(self, _: object) -> dict[TopicPartition, PartitionEnds]:
        return self.ends


Create = Callable[..., list[str]]


@pytest.fixture
def create(monkeypatch: pytest.MonkeyPatch) -> Iterator[Create]:
    def run(cluster: FakeCluster, *answers: Answer, timeout_s: float = 2.0) -> list[str]:
        left, asked = list(answers), []

        def create_topics(link: str, wanted: dict[str, TopicSpec], _: float) -> dict[str, Refused]:
            asked.append(",".join(wanted))
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        def partitions(link: str, _: object) -> dict[TopicPartition, PartitionState]:
            views = cluster.views.get(link, [FULL])
            return views.pop(0) if len(views) > 1 else views[0]

        monkeypatch.setattr(queries, "create_topics", create_topics)
        monkeypatch.setattr(queries, "partitions", partitions)
        readiness.create_topics(cluster, SPEC, timeout_s)
        return asked

    return run


def refused(code: int) -> dict[str, Refused]:
    return {"t": Refused("topic t cannot be created", code, "because")}


def test_what_may_pass_is_asked_again(create: Create) -> None:
    assert create(FakeCluster(), refused(7), Unreachable("gone"), {}) == ["t"] * 3


def test_a_topic_that_exists_after_an_unknown_outcome_is_ours(create: Create) -> None:
    assert create(FakeCluster(), Unreachable("no answer in time"), refused(36)) == ["t"] * 2


def test_a_topic_whose_deletion_goes_on_is_not_ours_and_is_waited_for(create: Create) -> None:
    going = {"t": Refused("topic t cannot be created", 36, "Topic 't' is marked for deletion.")}
    assert create(FakeCluster(), going, Unreachable("no answer in time"), going, {}) == ["t"] * 4
    with pytest.raises(WaitTimeout, match="marked for deletion"):
        create(FakeCluster(), *[going] * 1000, timeout_s=0.2)


def test_a_topic_that_brokers_create_is_asked_for_and_not_made(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [{"a": Refused("topic a is not there yet", 3)}, {}]
    monkeypatch.setattr(queries, "auto_create_topics", lambda *_: said.pop(0))
    monkeypatch.setitem(SPEC, "a", TopicSpec(auto_created=True))
    with pytest.raises(WaitTimeout, match="broker 1 does not know a/0"):
        create(FakeCluster(), {}, timeout_s=0.1)
    assert not said


def test_what_brokers_cannot_create_is_bad_input(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"a": Refused("topic a is not there yet", 38, "there are 3 brokers")}
    monkeypatch.setattr(queries, "auto_create_topics", lambda *_: said)
    monkeypatch.setitem(SPEC, "a", TopicSpec(auto_created=True))
    with pytest.raises(BadInput, match="INVALID_REPLICATION_FACTOR"):
        create(FakeCluster(), {})


@pytest.mark.parametrize("code", [17, 36, 37, 38, 39, 40, 42, 44])
def test_what_asking_again_cannot_mend_is_bad_input(create: Create, code: int) -> None:
    with pytest.raises(BadInput, match=r"topic t cannot be created.*because"):
        create(FakeCluster(), refused(code))


def test_it_waits_for_every_broker_to_see_a_leader_and_a_full_isr(create: Create) -> None:
    unled = {PLACE: PartitionState("t", 0, -1, 0, (1, 2), (1, 2))}
    thin = {PLACE: PartitionState("t", 0, 1, 0, (1, 2), (1,))}
    cluster = FakeCluster(views={"two": [{}, unled, thin, FULL]})
    create(cluster, {})
    assert cluster.views["two"] == [FULL]


def test_it_waits_for_the_leader_to_answer_and_says_what_lacks(create: Create) -> None:
    with pytest.raises(WaitTimeout, match="the leader of t/0 does not answer for it"):
        create(FakeCluster(ends={}), {}, timeout_s=0.05)
    thin = {PLACE: PartitionState("t", 0, 1, 0, (1, 2), (1,))}
    with pytest.raises(WaitTimeout, match=r"broker 2 sees t/0 led by 1 with ISR \[1\]"):
        create(FakeCluster(views={"two": [thin]}), {}, timeout_s=0.05)


def test_a_death_ends_it_at_once(create: Create) -> None:
    with pytest.raises(NodeDied):
        create(FakeCluster(death=NodeDied("node 1 died by itself")), {})
