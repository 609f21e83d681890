"""Tests of `BrokerObserver`: records are compared with the high watermark of the same answer, and silent brokers are
listed."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ackproof.cluster.protocol import NodeState
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.wire import KRAFT, ZOOKEEPER, Question, Unreachable, message
from ackproof.observe import brokers
from ackproof.observe.brokers import BrokerObserver, fetch_question, produce_question
from ackproof.rundir.clock import RunClock
from ackproof.rundir.document import read_lines
from ackproof.rundir.observed import ZNODES, BrokerRound
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Timeline

PLACE = TopicPartition("t", 0)


def batch(first: int, count: int, attributes: int = 0) -> bytes:
    """Return the bytes of a batch with `count` offsets from `first` on: its header, and five zeros in place of
    records."""
    return struct.pack(
        ">qiibIhiqqqhii", first, 49 + 5, 0, 2, 0, attributes, count - 1, 0, 0, 7, 0, 0, count
    ) + bytes(5)


class FakeLink:
    """Fake connection to a broker. It returns the batches `given` and the high watermarks below, or raises `fails`.
    `refuses_later`: error code in the answer to the second Fetch. `free`: cleared while the broker does not answer."""

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.mark = self.later = 20
        """High watermark in the answer to the first Fetch (`mark`), and to the second (`later`)."""
        self.refuses_later = 0
        self.given = batch(19, 1) + batch(20, 3) + batch(23, 1, attributes=0x20) + batch(24, 9)[:30]
        self.fails: Exception | None = None
        self.free = threading.Event()
        self.free.set()
        self.asked: list[Question] = []

    def ask_all(self, questions: Sequence[Question]) -> list[Any]:
        self.free.wait(10)
        self.asked += questions
        if self.fails is not None:
            raise self.fails
        if len(questions) == 1:
            row = SimpleNamespace(partition_index=0, error_code=self.refuses_later, high_watermark=self.later)
            return [SimpleNamespace(responses=[SimpleNamespace(name="t", topic="t", partitions=[row])])]
        hosted = bool(questions[2].fields["topics"])
        row = SimpleNamespace(
            partition_index=0, index=0, error_code=0, high_watermark=self.mark, log_start_offset=5, records=self.given,
            leader_id=1, leader_epoch=3, replica_nodes=[1, 2], isr_nodes=[1, 2], offset=24,
        )  # fmt: skip
        refusals = [SimpleNamespace(index=0, error_code=6)]
        topic = SimpleNamespace(name="t", topic="t", error_code=0, partitions=[row])
        some = [topic] if hosted else []
        produced = [SimpleNamespace(name="t", partition_responses=refusals)] if hosted else []
        return [
            SimpleNamespace(topics=[topic], brokers=[SimpleNamespace(node_id=1), SimpleNamespace(node_id=2)]),
            SimpleNamespace(topics=some),
            SimpleNamespace(responses=some),
            SimpleNamespace(responses=produced),
        ]

    def interrupt(self) -> None:
        self.free.set()

    def close(self) -> None:
        pass


class Stand:
    """Two fake brokers, and a `BrokerObserver` whose rounds a test runs one by one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, zookeeper: bool = False) -> None:
        monkeypatch.setattr(brokers, "_ANSWER_WITHIN_S", 0.2)
        self.links = {1: FakeLink(1), 2: FakeLink(2)}
        self.states = {1: NodeState.RUNNING, 2: NodeState.RUNNING}
        self.members: Any = frozenset({1, 2}) if zookeeper else None
        spec = ClusterSpec(kafka="3.9.2", mode="zookeeper") if zookeeper else ClusterSpec()
        cluster: Any = SimpleNamespace(
            client_addresses=dict,
            access=ZOOKEEPER if zookeeper else KRAFT,
            spec=spec,
            nodes={one: SimpleNamespace(state=lambda one=one: self.states[one]) for one in self.links},
            controller=lambda: 101,
            registered=self.registered,
            metadata_state=lambda _: {PLACE: PartitionState("t", 0, 2, 4, (1, 2), (2,))},
        )
        self.timeline = Timeline(folder / "timeline.jsonl", RunClock.start())
        self.path = folder / "observed" / "brokers.jsonl"
        self.asker = BrokerObserver(cluster, ["t"], self.path, self.timeline)
        self.asker._links = self.links  # type: ignore[assignment]
        self.asker._pool._max_workers = 4  # type: ignore[attr-defined]

    def registered(self) -> Any:
        if isinstance(self.members, Exception):
            raise self.members
        return self.members

    def round(self) -> Any:
        return self.asker._round()


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made: list[Stand] = []

    def make(**kind: bool) -> Stand:
        made.append(Stand(tmp_path, monkeypatch, **kind))
        return made[-1]

    yield make
    for one in made:
        one.asker.stop()
        one.timeline.close()


def test_what_lies_beyond_the_mark_that_is_told_next_is_counted(stand: Any) -> None:
    one = stand()
    assert [told.served for told in one.round().told] == [(), ()]  # nobody knows yet who has what
    told = {it.viewer: it for it in one.round().told}
    (served,) = told[1].served
    assert (served.records, served.beyond, served.high_watermark, served.log_end) == (4, 4, 20, 24)
    assert (served.fetch, served.produce) == (0, 6)
    assert told[2].brokers == (1, 2)
    one.round()
    fetches = [question for question in one.links[1].asked if question.name == "Fetch"]
    starts = [dict(it.fields["topics"]).get("t", [(0, 0, None)])[0][2] for it in fetches]
    assert starts == [None, 0, 20, 19, 20]  # each answer had records beyond its mark
    within = one.links[1]
    within.given = batch(19, 1)
    (served,) = {it.viewer: it for it in one.round().told}[1].served
    assert (served.records, served.beyond) == (1, 0)
    assert len([it for it in within.asked if it.name == "Fetch"]) == len(fetches) + 1


def test_a_mark_that_has_risen_since_is_no_breach(stand: Any) -> None:
    """A broker reads the high watermark first. The records that it reads afterwards may reach up to a later high
    watermark."""
    one = stand()
    one.round()
    one.links[1].later = 22
    one.links[2].later = 24
    told = {it.viewer: it.served[0] for it in one.round().told}
    assert [(served.beyond, served.high_watermark) for served in told.values()] == [(2, 20), (0, 20)]
    one.links[1].refuses_later = 6
    assert {it.viewer: len(it.served) for it in one.round().told} == {1: 0, 2: 1}


def test_who_runs_and_does_not_answer_is_silent(stand: Any) -> None:
    one = stand()
    one.round()
    one.links[2].free.clear()
    late = one.round()
    assert (late.silent, [told.viewer for told in late.told]) == ((2,), [1])
    one.states[2] = NodeState.STOPPED
    assert one.round().silent == ()
    one.states[2] = NodeState.RUNNING
    one.links[2].free.set()
    wait(one.asker._asked.values(), timeout=5)
    again = [one.round() for _ in range(3)][-1]
    assert (again.silent, [told.viewer for told in again.told]) == ((), [1, 2])


def test_who_takes_no_connection_tells_nobody_anything(stand: Any) -> None:
    one = stand()
    refused, torn = Unreachable("refused"), Unreachable("no answer in time")
    refused.__cause__, torn.__cause__ = ConnectionRefusedError(), TimeoutError()
    one.links[2].fails = refused
    assert one.round().silent == ()
    one.links[2].fails = torn
    assert one.round().silent == (2,)


def test_znodes_are_a_viewer_of_zookeeper_alone(stand: Any) -> None:
    kraft = stand().round()
    assert (kraft.controller, {told.viewer for told in kraft.told}) == (101, {1, 2})
    one = stand(zookeeper=True)
    told = {it.viewer: it for it in one.round().told}
    assert (told[ZNODES].brokers, told[ZNODES].partitions[0].leader) == ((1, 2), 2)
    one.members = Unreachable("ZooKeeper: not connected")
    gone = one.round()
    assert (gone.controller, gone.silent) == (None, (ZNODES,))


def test_rounds_are_read_back(stand: Any) -> None:
    one = stand()
    written = [one.round(), one.round()]
    one.path.parent.mkdir()
    one.path.write_text("".join(f"{it.model_dump_json()}\n" for it in written) + '{"t_ns":')
    assert list(read_lines(one.path, BrokerRound)) == written


@pytest.mark.parametrize(
    "question", [fetch_question({PLACE: 7, TopicPartition("t", 1): 0}), produce_question([PLACE])]
)
def test_questions_are_of_kafkas_protocol(question: Question) -> None:
    frame = question.encode(1)
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    assert message(f"{question.name}Request").decode(frame[4 + 8 + 2 + 8 :], version=question.version)


def test_what_is_offered_to_be_appended_is_whole_but_for_its_checksum() -> None:
    from crc32c import crc32c

    from ackproof.cluster.disks.log import CRC_FROM, batch_at

    header = brokers._SPOILT
    found = batch_at(header, 0, len(header))
    assert found is not None
    assert (found.size, found.records) == (len(header), 1)
    assert found.crc != crc32c(header[CRC_FROM:])
