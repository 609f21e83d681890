"""Tests of the sampler with fake brokers: what it writes, and that no broker delays it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.wire import KRAFT
from ackproof.observe.sampler import Sampler
from ackproof.rundir.clock import RunClock
from ackproof.rundir.observed import Sample, read_samples
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind, Timeline, read_timeline
from looks import told_now

from .fake_broker import FakeBroker

PLACES = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("pay", 0)]


def view(
    leader: int = 1, epoch: int = 3, isr: tuple[int, ...] = (1, 2, 3)
) -> dict[TopicPartition, PartitionState]:
    return {
        place: PartitionState(place.topic, place.partition, leader, epoch, (1, 2, 3), isr) for place in PLACES
    }


@dataclass
class FakeNode:
    now: NodeState = NodeState.RUNNING

    def state(self) -> NodeState:
        return self.now


@dataclass
class Stand:
    """Three fake brokers, and a sampler that watches them and writes its files into `folder`."""

    folder: Path
    brokers: dict[int, FakeBroker] = field(
        default_factory=lambda: {i: FakeBroker(i, view()) for i in (1, 2, 3)}
    )
    nodes: dict[int, FakeNode] = field(default_factory=lambda: {i: FakeNode() for i in (1, 2, 3)})

    def start(self, hz: float = 50.0) -> None:
        self.timeline = Timeline(self.folder / "timeline.jsonl", RunClock.start())
        cluster: Any = SimpleNamespace(
            nodes=self.nodes,
            access=KRAFT,
            spec=ClusterSpec(),
            client_addresses=lambda: {i: b.address for i, b in self.brokers.items()},
        )
        self.sampler = Sampler(cluster, ["orders", "pay"], self.path, self.timeline, hz=hz)
        self.sampler.start()

    @property
    def path(self) -> Path:
        return self.folder / "observed" / "partitions.jsonl"

    def sample(self, place: TopicPartition = PLACES[0]) -> Sample:
        newest = self.sampler.latest(*place)
        assert newest is not None
        return newest

    def set_view(self, new: dict[TopicPartition, PartitionState]) -> None:
        for broker in self.brokers.values():
            broker.view = new

    def until(self, look: Callable[[], object], what: str = "the sample") -> None:
        wait_until(look, what=what, timeout_s=5, interval_s=0.005)

    def until_whole(self) -> None:
        self.until(
            lambda: (
                (newest := self.sampler.latest(*PLACES[-1]))
                and set(newest.log_ends) == {1, 2, 3}
                and newest.high_watermark >= 0
            )
        )

    def events(self, kind: EventKind) -> list[Event]:
        return [event for event in read_timeline(self.folder / "timeline.jsonl")[0] if event.kind is kind]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path)
    stand.start()
    yield stand
    stand.sampler.stop()
    stand.timeline.close()
    for broker in stand.brokers.values():
        broker.close()


def test_a_sample_holds_what_each_broker_says_of_itself_and_the_leader_of_the_partition(stand: Stand) -> None:
    stand.until_whole()
    stand.brokers[1].log_end, stand.brokers[2].log_end = 150, 120
    stand.brokers[1].last_stable = 90
    stand.until(
        lambda: stand.sample().log_ends == {1: 150, 2: 120, 3: 100} and stand.sample().last_stable == 90
    )
    sample = stand.sample()
    assert (sample.leader, sample.leader_epoch, sample.isr) == (1, 3, (1, 2, 3))
    assert (sample.high_watermark, sample.last_stable) == (100, 90)
    assert told_now(stand.sampler, "lag", 0) == 50
    assert told_now(stand.sampler, "isr", 1) == 3
    assert stand.sampler.isr_text() == "3 of 3"


def test_every_partition_is_in_the_file_and_the_file_is_flushed(stand: Stand) -> None:
    stand.until_whole()
    written = read_samples(stand.path)
    assert {(sample.topic, sample.partition) for sample in written} == set(PLACES)
    assert [sample.t_ns for sample in written] == sorted(sample.t_ns for sample in written)


def test_changes_are_events_and_what_stays_is_not(stand: Stand) -> None:
    stand.until_whole()
    assert [(e.detail["leader"], e.detail["epoch"]) for e in stand.events(EventKind.LEADER)] == [(1, 3)] * 3
    stand.set_view(view(isr=(1, 3)))
    stand.until(lambda: stand.sample(PLACES[2]).isr == (1, 3))
    stand.set_view(view(isr=(3, 1)))
    stand.set_view(
        {**view(isr=(3, 1)), PLACES[1]: replace(view(isr=(3,))[PLACES[1]], leader=3, leader_epoch=4)}
    )
    stand.until(lambda: stand.sample(PLACES[1]).leader == 3)
    assert [event.detail["isr"] for event in stand.events(EventKind.ISR)][3:] == [[1, 3]] * 3 + [[3]]
    (moved,) = stand.events(EventKind.LEADER)[3:]
    assert (moved.topic, moved.partition, moved.detail) == ("orders", 1, {"leader": 3, "epoch": 4})
    assert stand.sampler.isr_text() == "1 of 3 ×1, 2 of 3 ×2"


def test_a_broker_that_is_paused_without_our_knowing_does_not_slow_the_others(stand: Stand) -> None:
    stand.until_whole()
    stand.brokers[3].going_on.clear()
    stand.until(lambda: set(stand.sample().log_ends) == {1, 2})
    before, began = len(read_samples(stand.path)), time.monotonic()
    stand.until(lambda: time.monotonic() - began > 0.6, "0.6 s to pass")
    looks = (len(read_samples(stand.path)) - before) / len(PLACES)
    assert looks / (time.monotonic() - began) >= 25, "half of what was asked for"
    assert stand.brokers[3].connections == 1, "it is not flooded while it stands still"
    stand.brokers[3].going_on.set()
    stand.until_whole()
    assert stand.brokers[3].connections == 1


def test_a_paused_leader_leaves_its_offsets_unknown_and_lag_is_not_guessed(stand: Stand) -> None:
    stand.until_whole()
    stand.brokers[1].going_on.clear()
    stand.until(lambda: stand.sample().high_watermark == -1)
    assert stand.sample().leader == 1
    assert told_now(stand.sampler, "lag", 0) is None
    assert told_now(stand.sampler, "isr", 0) == 3


def test_a_node_that_the_kernel_says_is_stopped_or_gone_is_not_asked(stand: Stand) -> None:
    stand.until_whole()
    stand.nodes[2].now = NodeState.STOPPED
    stand.brokers[3].close()
    stand.nodes[3].now = NodeState.GONE
    stand.until(lambda: set(stand.sample().log_ends) == {1})
    stand.nodes[2].now = NodeState.RUNNING
    stand.until(lambda: set(stand.sample().log_ends) == {1, 2})


def test_a_broker_that_comes_back_at_its_address_is_asked_again(stand: Stand) -> None:
    stand.until_whole()
    old = stand.brokers[2]
    old.close()
    stand.until(lambda: set(stand.sample().log_ends) == {1, 3})
    new = FakeBroker(2, view())
    stand.brokers[2] = new
    # The address is the broker's for good; here the new one has another port.
    stand.sampler._links[2].address = new.address
    stand.until_whole()


def test_when_nobody_answers_nothing_is_written_and_nothing_is_known_for_long(stand: Stand) -> None:
    stand.until_whole()
    for broker in stand.brokers.values():
        broker.going_on.clear()
    began = time.monotonic()
    stand.until(lambda: told_now(stand.sampler, "isr", 0) is None)
    assert time.monotonic() - began > 0.5
    count = len(read_samples(stand.path))
    assert stand.sampler.latest("orders", 0) is not None
    assert count == len(read_samples(stand.path))


def test_a_log_end_older_than_the_high_watermark_is_no_negative_lag(stand: Stand) -> None:
    stand.until_whole()
    stand.brokers[1].high_watermark = 200
    stand.until(lambda: stand.sample().high_watermark == 200)
    assert told_now(stand.sampler, "lag", 0) == 0


def test_stopping_twice_is_stopping_once(stand: Stand) -> None:
    stand.until_whole()
    stand.sampler.stop()
    count = len(read_samples(stand.path))
    stand.sampler.stop()
    assert len(read_samples(stand.path)) == count
    assert stand.events(EventKind.NOTE) == []


def test_the_rate_is_kept(stand: Stand) -> None:
    stand.until_whole()
    times = sorted({sample.t_ns for sample in read_samples(stand.path)})
    began = len(times)
    stand.until(lambda: len({sample.t_ns for sample in read_samples(stand.path)}) >= began + 25)
    times = sorted({sample.t_ns for sample in read_samples(stand.path)})[began:]
    gaps = sorted(later - sooner for sooner, later in itertools.pairwise(times))
    assert gaps[len(gaps) // 2] < 0.05e9, "asked for 50 Hz"
