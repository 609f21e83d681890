"""Tests of live readers: each record read is a ledger row, resets are reported, a killed reader keeps its closed
parts."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.base.errors import WaitTimeout
from ackproof.clients.librdkafka.messages import resume_offset, truncation_offset
from ackproof.clients.librdkafka.reader import ReaderProcess
from ackproof.rundir.document import read_lines
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.observed import CommittedStart, read_commits
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.payload import encoder
from ackproof.rundir.schema import CONSUMED
from mock_kafka import RUN_ID

OFFSET_COMMIT = 8
OFFSET_FETCH = 9


def reads(load) -> dict[tuple[int, int, str, int], list[dict]]:
    """Return the rows of the consumed ledger by (reader, assignment, topic, partition), each list in order of
    read_seq."""
    grouped: dict[tuple[int, int, str, int], list[dict]] = {}
    for row in load.consumed().to_pylist():
        key = (row["reader"], row["assignment"], row["topic"], row["partition"])
        grouped.setdefault(key, []).append(row)
    return grouped


def test_readers_read_everything_once_and_in_order(kafka, load) -> None:
    load = load(kafka, topics={"a": 2, "b": 1}, rate="20000/s", live=2)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 3000 and load.workload.read() >= 2000, "reads")
    load.workload.stop()
    produced = {(row["producer"], row["seq"]): row for row in load.produced().to_pylist()}
    by_reader = load.consumed().to_pylist()
    assert load.workload.read() == len(by_reader) == 2 * len(produced)
    for reader in (0, 1):
        rows = [row for row in by_reader if row["reader"] == reader]
        assert [row["read_seq"] for row in rows] == list(range(len(rows)))
        assert {(row["producer"], row["seq"]) for row in rows} == produced.keys()
        assert len(list((load.run.consumed / f"client=r{reader}").glob("part-*"))) >= 1
        assert (load.run.consumed / f"client=r{reader}" / "_END").exists()
    for row in by_reader:
        source = produced[row["producer"], row["seq"]]
        for name in ("topic", "partition", "offset"):
            assert row[name] == source[name]
        assert (row["origin_topic"], row["origin_partition"]) == (source["topic"], source["partition"])
        assert row["intact"] is True
        assert (row["phase"], row["assignment"]) == (0, 0)
        assert row["read_ns"] > source["sent_ns"]
        assert row["timestamp_ms"] > 1_700_000_000_000
        assert row["leader_epoch"] >= -1
    for rows in reads(load).values():
        assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert load.workload.read("b", 0) == 2 * sum(row["topic"] == "b" for row in produced.values())


def test_a_reader_commits_and_writes_down_what_was_answered(kafka, load) -> None:
    load = load(kafka, topics={"orders": 1}, rate="1000/s", live=1, commit_every="100ms")
    load.workload.start()
    commits = load.run.commits("r0")
    load.until(lambda: sum(commit.good for commit in read_commits(commits)) >= 3, "commits")
    kafka.fail(OFFSET_COMMIT, [KafkaError.GROUP_AUTHORIZATION_FAILED])
    load.until(lambda: any(commit.error for commit in read_commits(commits)), "a refusal")
    load.workload.stop()
    found = read_commits(commits)
    assert {commit.error for commit in found} == {"", "GROUP_AUTHORIZATION_FAILED"}
    offsets = [commit.offsets[0][2] for commit in found]
    assert offsets == sorted(offsets) and offsets[-1] <= load.workload.read()


def test_the_successor_of_a_killed_reader_starts_at_its_committed_offsets(kafka, load) -> None:
    load = load(kafka, topics={"orders": 2}, rate="1000/s", live=2, commit_every="100ms", start="committed")
    load.workload.start()
    commits = load.run.commits("r0")
    load.until(lambda: sum(commit.good for commit in read_commits(commits)) >= 3, "commits")
    load.workload.kill("r0")
    kafka.fail(OFFSET_FETCH, [KafkaError.COORDINATOR_LOAD_IN_PROGRESS] * 2)
    successor = load.workload.replace("r0")
    load.until(lambda: load.workload.counters(successor).total() >= 100, "reads of the successor")
    probe = load.workload.start_another("reader")
    load.until(lambda: load.workload.counters(probe).total() >= 100, "reads of another reader")
    load.workload.stop()
    (first,) = read_lines(load.run.starts("r0"), CommittedStart)
    assert (first.group, {offset for *_, offset in first.offsets}) == ("ackproof-r0", {-1})
    (start,) = read_lines(load.run.starts(successor), CommittedStart)
    asked = read_commits(commits)
    assert start.group == "ackproof-r0" == read_commits(load.run.commits(successor))[0].group
    assert set(start.offsets) <= {offset for commit in asked for offset in commit.offsets}
    rows = reads(load)
    number = int(successor[1:])
    for topic, partition, offset in start.offsets:
        assert rows[number, 0, topic, partition][0]["offset"] == offset > 0
        assert rows[int(probe[1:]), 0, topic, partition][0]["offset"] == 0
    assert next(read_lines(load.run.starts(probe), CommittedStart)).group == f"ackproof-{probe}"


def test_a_reader_that_finds_no_coordinator_ends_when_asked(kafka, load) -> None:
    load = load(kafka, topics={"orders": 1}, rate="1000/s", live=1, commit_every="100ms", start="committed")
    kafka.fail(OFFSET_FETCH, [KafkaError.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
    with pytest.raises(WaitTimeout):
        load.workload.start(timeout_s=2)
    load.workload.stop()
    assert list(read_lines(load.run.starts("r0"), CommittedStart)) == [] == load.consumed().to_pylist()


@pytest.mark.nightly
def test_a_reader_whose_commit_is_never_answered_ends_all_the_same(kafka, load) -> None:
    load = load(kafka, topics={"orders": 1}, rate="1000/s", live=1, commit_every="100ms")
    load.workload.start()
    commits = load.run.commits("r0")
    load.until(lambda: any(commit.good for commit in read_commits(commits)), "a commit")
    kafka.down()
    load.until(lambda: read_commits(commits)[-1].done_ns < 0, "a commit without an answer")
    load.workload.stop()
    assert (load.run.consumed / "client=r0" / "_END").exists()


def test_what_is_not_ours_is_nobody(kafka, load) -> None:
    load = load(kafka, topics={"orders": 1}, rate="100/s", live=1)
    values = [
        encoder("ffffffffffffffff", 1, "orders", 0, 100)(7),  # another run's
        b"hello",
        None,
        encoder(RUN_ID, 4, "elsewhere", 9, 90)(8),
        bytes([encoder(RUN_ID, 4, "orders", 0, 90)(9)[0]]) + bytes(89),
    ]
    client = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
    for value in values:
        client.produce("orders", value, partition=0)
    client.flush(5)
    client.close()
    load.workload.start()
    load.until(lambda: load.workload.read() >= 5 + 5, "reads")
    load.workload.stop()
    rows = load.consumed().to_pylist()[:5]
    said = [
        (row["producer"], row["seq"], row["origin_topic"], row["origin_partition"], row["intact"])
        for row in rows
    ]
    nobody = (-1, -1, "", -1, False)
    assert said == [(-1, -1, "", -1, True), nobody, nobody, (4, 8, "elsewhere", 9, True), nobody]


def test_a_reader_that_the_log_start_has_passed_says_so_and_resumes(kafka, load) -> None:
    load = load(kafka, topics={"orders": 2}, rate="2000/s", live=1)
    kafka.rtt(20)  # so that records are deleted before the reader has fetched them
    load.workload.start()
    load.until(lambda: load.workload.read() >= 500, "reads")
    resets: list[object] = []

    def reset_seen() -> bool:
        kafka.delete_records("orders", 0, load.workload.acked("orders", 0))
        resets[:] = [event for event in load.events() if event.kind == "client-reset"]
        return bool(resets)

    load.until(reset_seen, "a reset")
    before = load.workload.read("orders", 0)
    load.until(lambda: load.workload.read("orders", 0) >= before + 100, "reads after the reset")
    load.workload.stop()
    event = resets[0]
    assert (event.client, event.topic, event.partition) == ("r0", "orders", 0)
    assert event.detail["goes_on"] == event.detail["start"] > event.detail["position"]
    rows = load.consumed().to_pylist()
    assert max(row["assignment"] for row in rows) >= 1
    for rows in reads(load).values():
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(set(offsets)), "never back within an assignment"
    first = next(
        row["offset"] for row in load.consumed().to_pylist() if row["partition"] == 0 and row["assignment"]
    )
    assert first >= event.detail["goes_on"]
    # the other partition was read on without a gap, though under a new number
    other = [row["offset"] for row in load.consumed().to_pylist() if row["partition"] == 1]
    assert other == list(range(len(other)))


def test_a_killed_reader_keeps_its_closed_parts(kafka, load) -> None:
    load = load(kafka, topics={"orders": 1}, rate="1000/s", live=1)
    load.workload.start()
    folder = load.run.consumed / "client=r0"
    load.until(lambda: len(parts(folder)) >= 2, "closed parts")
    (folder / ".part-000099.parquet.1.tmp").write_bytes(b"PAR1")
    load.workload.kill("r0")
    read = load.workload.read()
    load.workload.stop()
    rows = read_parts(folder, CONSUMED).sort_by("read_seq")
    assert rows["read_seq"].to_pylist() == list(range(rows.num_rows))
    assert 0 < rows.num_rows <= read
    assert not list(folder.glob(".part*"))
    assert not (folder / "_END").exists()


def test_a_reader_outlives_its_brokers(kafka, load) -> None:
    load = load(kafka, topics={"orders": 1}, rate="500/s", live=1, delivery_timeout="20s")
    load.workload.start()
    load.until(lambda: load.workload.read() >= 100, "reads")
    kafka.down()
    sent = load.sent()
    load.until(lambda: load.sent() >= sent + 200, "sends")
    kafka.up()
    before = load.workload.read()
    load.until(lambda: load.workload.read() >= before + 100, "reads after the brokers came back")
    load.workload.stop()
    for rows in reads(load).values():
        assert [row["offset"] for row in rows] == list(range(len(rows)))


@pytest.mark.parametrize("bad", ["auto.offset.reset", "enable.partition.eof"])
def test_settings_of_readers_on_which_the_ledger_rests_are_refused(bad: str, tmp_path: Path) -> None:
    from ackproof.base.errors import BadInput
    from ackproof.clients.librdkafka.adapter import reader_config

    with pytest.raises(BadInput, match=bad):
        reader_config({bad: "x"}, "read_uncommitted", "", "r0")


class Stalled:
    """Fake log of `end` records that returns no record for `stall_s` seconds, then all at once. `answers`: True if its
    leader answers."""

    def __init__(self, end: int, stall_s: float, answers: bool) -> None:
        self.end, self.stall_s, self.answers = end, stall_s, answers
        self.began = time.monotonic()

    def offsets_for_times(self, asked: list[ClientPartition], timeout: float) -> list[ClientPartition]:
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [
            ClientPartition(one.topic, one.partition, 0 if one.offset == OFFSET_BEGINNING else self.end)
            for one in asked
        ]

    def give(self, reader: ReaderProcess) -> int:
        time.sleep(0.02)
        if reader.positions[0] == self.end or time.monotonic() < self.began + self.stall_s:
            return 0
        reader.positions[0] = self.end
        return self.end


@pytest.mark.parametrize(
    ("end", "stall_s", "answers", "read", "bound_s"),
    [
        (50, 0.8, True, 50, 1.4),  # a standstill is not the end, where one knows the end
        (50, 0.8, False, -1, 0.75),  # nobody says where the end is: it leaves in the quiet
        (50, 60, True, -1, 2.5),  # what never comes is not awaited for long
        (0, 60, True, -1, 0.1),  # an empty log holds nobody up
        (50, 0, True, 50, 0.3),
    ],
)
def test_a_reader_that_is_asked_to_stop_reads_on_to_where_the_logs_end(
    end: int, stall_s: float, answers: bool, read: int, bound_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = object.__new__(ReaderProcess)
    client = Stalled(end, stall_s, answers)
    reader.settings = SimpleNamespace(places=(TopicPartition("orders", 0),))  # type: ignore[assignment]
    reader.positions = np.array([-1])
    reader.client = client  # type: ignore[assignment]
    reader.stop = Event()
    reader.stop.set()
    monkeypatch.setattr(ReaderProcess, "_step", lambda one: client.give(one))
    reader._read_live()
    assert reader.positions.tolist() == [read]
    assert time.monotonic() - client.began < bound_s


def test_a_reader_of_a_thousand_partitions_closes_in_the_time_that_it_is_given(kafka, load) -> None:
    """A request for each partition would wait for 50 to 100 ms behind a Fetch: a minute for all of them."""
    load = load(kafka, topics={"orders": 1000}, rate="5000/s", live=1)
    load.workload.start()
    load.until(lambda: load.workload.read() >= 5000, "reads")
    load.workload.stop()
    produced, consumed = load.produced(), load.consumed()
    assert (load.run.consumed / "client=r0" / "_END").exists()
    assert consumed.num_rows == produced.num_rows


def test_what_is_on_its_way_to_the_ledger_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a reader that is killed before the rows are written has committed records that its ledger lacks."""
    reader = object.__new__(ReaderProcess)
    asked: list[list[ClientPartition]] = []
    writer = SimpleNamespace(queued=0, written=0)
    reader.settings = SimpleNamespace(places=(TopicPartition("orders", 0),), commit_s=0.0)  # type: ignore[assignment]
    reader.positions = np.array([7])
    reader.parts = writer  # type: ignore[assignment]
    reader.client = SimpleNamespace(commit=lambda offsets, asynchronous: asked.append(offsets))  # type: ignore[assignment]
    reader.commit = reader.due = None
    monkeypatch.setattr(ReaderProcess, "_flush", lambda _: setattr(writer, "queued", writer.queued + 1))
    monkeypatch.setattr(ReaderProcess, "_now_ns", lambda _: 1)
    monkeypatch.setattr(ReaderProcess, "_write_commit", lambda *_, **__: None)
    reader._commit()
    reader.positions[0] = 9
    reader._commit()
    assert asked == []
    assert writer.queued == 1
    writer.written = 1
    reader._commit()
    assert [[offset.offset for offset in offsets] for offsets in asked] == [[7]]


@pytest.mark.parametrize(
    ("position", "low", "high", "cut", "resumes"),
    [
        (7610, 0, 1199, 1199, 1199),
        (7610, 0, 1300, 1199, 1199),
        (7610, 0, 9000, 1199, 1199),
        (7610, 0, 7610, 1199, 1199),
        (7610, 2000, 9000, 1199, 2000),
        (7610, 0, 1100, 1199, 1100),
        (7610, 0, 9000, None, 0),
        (7610, 300, 1199, None, 300),
        (100, 300, 1199, None, 300),
        (100, 300, 1199, 1000, 300),
    ],
)
def test_where_a_reader_resumes(position: int, low: int, high: int, cut: int | None, resumes: int) -> None:
    assert resume_offset(position, low, high, cut) == resumes


def test_where_a_log_was_cut_is_told_by_the_library_in_its_text() -> None:
    text = (
        "Partition log truncation detected at offset 7610 (leader epoch 0): broker end offset is 1199 (offset leader "
        "epoch 0). Reset to INVALID.: Local: Partition log truncation detected (broker 1)"
    )
    assert truncation_offset(text) == 1199
    assert truncation_offset("Broker: Offset out of range (broker 1)") is None
