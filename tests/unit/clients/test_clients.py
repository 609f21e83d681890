"""Tests of producer processes: counters while they run, stop, kill at any moment, loss of the harness, a full queue."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import libversion

from ackproof.base.errors import BadInput, ClientDied
from ackproof.base.processes import end_children, find_children
from ackproof.base.wait import wait_until
from ackproof.clients.conversion import salvage
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.parts import ClientLibrary
from ackproof.rundir.payload import decode
from ackproof.rundir.schema import PRODUCED
from mock_kafka import RUN_ID

PRODUCE = 0
BOUND_NS = 50_000_000


def test_rate_round_robin_counts_and_a_ledger_that_agrees_with_the_log(kafka, load, log_of) -> None:
    load = load(kafka, topics={"a": 3, "b": 1}, count=2, rate="2000/s", chunk_rows=256, seed=5)
    load.workload.start()
    began = time.monotonic()
    load.until(lambda: load.workload.acked() >= 3000, "acks")
    took = time.monotonic() - began
    load.workload.stop()
    assert 1.0 < took < 4.0, "2000 records a second of both together"
    rows = load.produced().to_pylist()
    for producer in (0, 1):
        own = [row for row in rows if row["producer"] == producer]
        assert [row["seq"] for row in own] == list(range(len(own)))
        assert abs(len(own) - len(rows) / 2) < 300
        places = [(row["topic"], row["partition"]) for row in own]
        assert sorted(places[:4]) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
        assert places == (places[:4] * len(own))[: len(own)]
        assert len(list((load.run.produced / f"client=p{producer}").glob("part-*"))) > 2
    footers = [
        pq.read_metadata(path) for ledger in (load.run.produced, load.run.consumed) for path in parts(ledger)
    ]
    assert {ClientLibrary.read(footer) for footer in footers} == {
        ClientLibrary("librdkafka", libversion()[0])
    }
    assert all(row["outcome"] == Outcome.ACKED and row["error"] == 0 for row in rows)
    assert all(0 < row["sent_ns"] < row["done_ns"] for row in rows)
    log = {
        place: (identity.producer, identity.seq)
        for place, value in log_of(kafka, load.topics).items()
        if (identity := decode(RUN_ID, value)).intact
    }
    acked = {(row["topic"], row["partition"], row["offset"]): (row["producer"], row["seq"]) for row in rows}
    assert acked == log
    assert load.workload.acked() == load.sent() == len(rows)
    for topic, count in (("a", 3), ("b", 1)):
        of_topic = [row for row in rows if row["topic"] == topic]
        assert load.workload.acked(topic) == len(of_topic)
        for partition in range(count):
            assert load.workload.acked(topic, partition) == sum(
                row["partition"] == partition for row in of_topic
            )
    assert load.workload.acked("nothing") == 0
    assert not list(load.run.journal.iterdir())


def seen_acks(load, count: int) -> list[tuple[int, int]]:
    """Wait until `count` records are acknowledged. Return a pair for each growth that was seen: (records acknowledged
    so far, run time in ns when it was seen)."""
    seen: list[tuple[int, int]] = []

    def look() -> bool:
        acked = load.workload.acked()
        if acked and (not seen or acked > seen[-1][0]):
            seen.append((acked, load.clock.now()))
        return acked >= count

    load.until(look, "acks")
    return seen


@pytest.mark.parametrize(
    "producer",
    [
        pytest.param({"rate": "20/s"}, id="idle"),
        pytest.param({"rate": "3000/s"}, id="rate"),
        pytest.param({"config": {"queue.buffering.max.messages": "50"}}, id="pressed back"),
        pytest.param({}, id="full speed"),
    ],
)
def test_an_ack_reaches_the_parent_within_50_ms(kafka, load, producer) -> None:
    load = load(kafka, topics={"orders": 2}, **producer)
    kafka.rtt(5)
    load.workload.start()
    seen = seen_acks(load, 30 if producer.get("rate") == "20/s" else 3000)
    load.workload.stop()
    done = sorted(row["done_ns"] for row in load.produced().to_pylist() if row["outcome"] == Outcome.ACKED)
    late = [at - done[acked - 1] for acked, at in seen]
    late.sort()
    assert late[len(late) * 9 // 10] < BOUND_NS, late[-5:]


def test_reports_are_served_though_the_producer_is_pressed_back(kafka, load) -> None:
    """A delivery report is served as soon as the broker answers: it waits neither for room in the queue nor for the
    next record."""
    load = load(kafka, topics={"orders": 1}, config={"queue.buffering.max.messages": "20"})
    kafka.rtt(20)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 500, "acks")
    load.workload.stop()
    rows = load.produced().to_pylist()
    assert [row["seq"] for row in rows] == list(range(len(rows))), "a full queue leaves no gap and no row"
    taken = sorted(row["done_ns"] - row["sent_ns"] for row in rows)
    # at most two round trips and a linger
    assert taken[len(taken) * 9 // 10] < 50_000_000 + BOUND_NS


def test_killed_at_any_moment_the_ledger_has_every_record_and_every_ack(kafka, load, log_of) -> None:
    load = load(kafka, topics={"orders": 3}, count=5, rate="20000/s", chunk_rows=512)
    load.workload.start()
    dice = random.Random(11)
    acked_before: dict[int, int] = {}
    for number in range(5):
        moment = load.workload.acked() + dice.randrange(1, 1500)
        load.until(lambda moment=moment: load.workload.acked() >= moment, "acks")
        load.workload.kill(f"p{number}")
        acked_before[number] = load.workload.counters(f"p{number}").total()
    load.workload.stop()
    load.workload.check()
    assert not list(load.run.journal.iterdir())
    rows = load.produced().to_pylist()
    log = log_of(kafka, load.topics)
    stored = {}
    for place, value in log.items():
        identity = decode(RUN_ID, value)
        stored.setdefault((identity.producer, identity.seq), set()).add(place)
    ledger = {(row["producer"], row["seq"]): row for row in rows}
    assert len(ledger) == len(rows), "no identity twice"
    assert not stored.keys() - ledger.keys(), "no record without a row"
    for identity, row in ledger.items():
        if row["outcome"] == Outcome.ACKED:
            assert (row["topic"], row["partition"], row["offset"]) in stored[identity]
        else:
            assert (row["outcome"], row["error"], row["offset"], row["done_ns"]) == (2, 0, -1, -1)
    for number in range(5):
        own = [row for row in rows if row["producer"] == number]
        assert [row["seq"] for row in own] == list(range(len(own)))
        # the count may lack the very ack over which the process was killed
        assert 0 <= sum(row["outcome"] == 0 for row in own) - acked_before[number] <= 1
        assert not (load.run.produced / f"client=p{number}" / "_END").exists()


ORPHAN = """
import os, pathlib, sys
from ackproof.experiment.spec import ConsumerSpec, ProducerSpec, TopicSpec, WorkloadSpec
from ackproof.base.processes import RunTag
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import Timeline
from ackproof.clients.workload import Workload
bootstrap, folder, run_id = sys.argv[1:]
run = CaseDir(pathlib.Path(folder))
spec = WorkloadSpec(producers=ProducerSpec(rate=500, linger=0.001), consumers=ConsumerSpec(live=1))
tag = RunTag(run_id, run.path, run.path)
timeline = Timeline(run.timeline, RunClock.start())
workload = Workload(spec, {"orders": TopicSpec(partitions=2)}, bootstrap, timeline, tag)
workload.start()
while workload.acked() < 100 or workload.read() < 50:
    pass
os.kill(os.getpid(), 9)
"""


def test_when_the_harness_is_killed_its_clients_end_and_leave_their_journals(kafka, tmp_path: Path) -> None:
    kafka.create_topic("orders", 2)
    run = CaseDir(tmp_path / "case")
    run.path.mkdir()
    mine = lambda child: child.directory == run.path  # noqa: E731
    try:
        harness = subprocess.run(
            [sys.executable, "-c", ORPHAN, kafka.bootstrap, str(run.path), RUN_ID], timeout=60
        )
        assert harness.returncode == -signal.SIGKILL
        died = time.monotonic()
        wait_until(lambda: not [c for c in find_children() if mine(c)], what="clients to end", timeout_s=5)
        assert time.monotonic() - died < 2.0
    finally:
        end_children(mine)
    assert (run.journal / "p0").is_dir()
    assert len(salvage(run)[0]) == 1
    rows = read_parts(run.produced, PRODUCED).sort_by("seq").to_pylist()
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert sum(row["outcome"] == Outcome.ACKED for row in rows) >= 100
    assert not list(run.path.rglob("*END"))


def test_a_client_that_dies_is_noticed_at_once(kafka, load) -> None:
    load = load(kafka, rate="100/s", live=1)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 5, "acks")
    (victim,) = (handle for handle in load.workload._handles() if handle.client.id == "p0")
    os.kill(victim.child.pid, signal.SIGKILL)
    killed = time.monotonic()
    with pytest.raises(ClientDied, match="producer p0 ended by itself with status -9"):
        load.until(lambda: False, "nothing", timeout_s=5)
    assert time.monotonic() - killed < 0.5
    load.workload.abort()
    assert [event.client for event in load.events() if event.kind == "client-died"] == ["p0"]
    rows = load.produced().to_pylist()
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert len(rows) >= 5


@pytest.mark.parametrize("client", ["p0", "r0"])
def test_a_client_that_was_asked_to_stop_can_still_die(kafka, load, client: str) -> None:
    """After a client was asked to stop, only an exit with status 0 counts as its expected end."""
    load = load(kafka, rate="100/s", live=1)
    load.workload.start()
    load.until(lambda: load.workload.read() >= 5, "reads")
    victim = load.workload.running()[client].pid
    load.workload.signal(client, signal.SIGSTOP)  # so that it hears nothing of being asked

    def die_once_asked() -> None:
        if client == "r0":  # readers are asked when every producer is gone
            wait_until(lambda: "p0" not in load.workload.running(), what="the end of p0", timeout_s=20)
        time.sleep(0.3)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=die_once_asked)
    killer.start()
    with pytest.raises(ClientDied, match=f"{client} ended by itself with status -9"):
        load.workload.stop()
    killer.join()
    assert [event.client for event in load.events() if event.kind == "client-died"] == [client]


@pytest.mark.parametrize(
    ("producer", "text"),
    [
        ({"config": {"no.such.setting": "1"}}, "no\\.such\\.setting"),
        ({"config": {"queue.buffering.max.messages": "many"}}, "queue\\.buffering\\.max\\.messages"),
        ({"config": {"delivery.report.only.error": "true"}}, "delivery\\.report\\.only\\.error"),
        ({"idempotence": True, "acks": 1}, "acks"),
        ({"idempotence": True, "in_flight": 50}, "max\\.in\\.flight"),
    ],
)
def test_settings_that_librdkafka_or_the_ledger_refuses_are_bad_input(
    kafka, load, producer, text: str
) -> None:
    load = load(kafka, **producer)
    with pytest.raises(BadInput, match=text):
        load.workload.start()
    assert load.workload.clients == ()


def test_a_client_that_cannot_start_says_why(kafka, load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackproof.clients.workload.verify_config", lambda *_: None)
    load = load(kafka, config={"no.such.setting": "1"})
    with pytest.raises(ClientDied, match="no\\.such\\.setting"):
        load.workload.start()


def test_stop_of_a_stuck_cluster_is_bounded_and_leaves_nothing_open(kafka, load) -> None:
    load = load(kafka, rate="500/s", delivery_timeout="1s")
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 50, "acks")
    kafka.fail(PRODUCE, [7] * 5000)
    before = load.sent()
    load.until(lambda: load.sent() >= before + 100, "sends")
    began = time.monotonic()
    load.workload.stop()
    assert time.monotonic() - began < 8
    rows = load.produced().to_pylist()
    assert load.sent() == len(rows)
    assert {row["outcome"] for row in rows} == {Outcome.ACKED, Outcome.INDETERMINATE}
    assert (load.run.produced / "client=p0" / "_END").exists()


def test_a_producer_without_records_leaves_a_folder_with_an_end(kafka, load) -> None:
    load = load(kafka, rate="0.001/s")
    load.workload.start()
    load.workload.stop()
    folder = load.run.produced / "client=p0"
    assert (folder / "_END").exists()
    assert load.produced().num_rows <= 1


def test_values_have_their_size_and_settings_reach_the_client(kafka, load, log_of) -> None:
    load = load(
        kafka, value_size=777, rate="200/s", compression="zstd", acks=1, in_flight=3, batch_size="50KB",
        request_timeout="2s", config={"socket.nagle.disable": "true"},
    )  # fmt: skip
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 20, "acks")
    load.workload.stop()
    assert {len(value) for value in log_of(kafka, load.topics).values()} == {777}
    settings = (load.run.clients / "p0" / "settings.json").read_text()
    for text in ('"compression.type": "zstd"', '"acks": "1"', 'connection": 3', '"request.timeout.ms": 2000'):
        assert text in settings
