"""Tests of small parts of clients: pace, counters, librdkafka's settings, events file, buffers, modules loaded at the
start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackproof.base.errors import BadInput
from ackproof.base.processes import RunTag
from ackproof.clients import instances
from ackproof.clients.channel import ClientState, Events, SharedCounters
from ackproof.clients.launch import Handle
from ackproof.clients.librdkafka.adapter import (
    delivery_timeout_s,
    producer_config,
    reader_config,
    resend_after_s,
)
from ackproof.clients.librdkafka.producer import Pace
from ackproof.clients.librdkafka.reports import LeaderEpochs
from ackproof.clients.parts import PartWriter, RowBuffer
from ackproof.experiment.spec import ProducerSpec
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import ClientReset, Note


@given(st.floats(0.5, 100_000), st.lists(st.floats(0.0001, 0.1), min_size=1, max_size=50))
def test_a_pace_is_smooth(rate: float, steps: list[float]) -> None:
    pace, now, sent = Pace(rate, 100.0), 100.0, 0
    for step in steps:
        due = pace.due(now)
        pace.add_sent(due)
        sent += due
        assert abs(sent - (now - 100.0) * rate) <= 1.001
        wait = pace.wait_s(now)
        assert wait >= 0
        assert pace.due(now + wait + 1e-6) >= 1
        now += step


def test_what_was_delayed_is_not_made_up_for_by_a_burst() -> None:
    pace = Pace(1000, 0.0)
    pace.add_sent(pace.due(0.0))
    assert pace.due(60.0) == 200
    pace.add_sent(200)
    assert pace.due(60.0) == 0
    assert pace.due(60.01) in (10, 11)


def test_a_board_is_seen_from_both_sides(tmp_path: Path) -> None:
    ours = SharedCounters(tmp_path / "counters", 3, create=True)
    theirs = SharedCounters(tmp_path / "counters", 3)
    assert ours.state is ClientState.STARTING
    theirs.stage = ClientState.READY
    theirs.counts[2] += 5
    theirs.counts[0] = 1
    theirs.sent, theirs.failed, theirs.indeterminate = 7, 8, 9
    assert ours.state is ClientState.READY
    assert (ours.total(), list(ours.counts)) == (6, [1, 0, 5])
    assert (ours.sent, ours.failed, ours.indeterminate) == (7, 8, 9)


def test_config_of_a_producer() -> None:
    config = producer_config(ProducerSpec(delivery_timeout=7.0, config={"client.rack": "a"}), "h:1", "p0")
    assert delivery_timeout_s(config) == 7.0
    assert config["client.rack"] == "a"
    with pytest.raises(BadInput, match="use the field delivery_timeout"):
        producer_config(ProducerSpec(config={"delivery.timeout.ms": "7000"}), "h:1", "p0")
    assert producer_config(ProducerSpec(acks="0"), "", "")["acks"] == "0"


@pytest.mark.parametrize(
    ("producer", "seconds"),
    [
        ({}, 0),
        ({"retries": 3}, 0),
        ({"retries": 0, "idempotence": True}, 0),
        ({"retries": 0}, 0.4),
        ({"retries": 0, "config": {"retry.backoff.ms": "5000"}}, 1.0),
    ],
)
def test_from_which_age_a_record_may_have_been_sent_twice(producer: dict, seconds: float) -> None:
    config = producer_config(ProducerSpec.model_validate(producer), "", "")
    assert resend_after_s(config) == pytest.approx(seconds)


def test_config_of_a_reader() -> None:
    config = reader_config({"fetch.wait.max.ms": "7"}, "read_committed", "h:1", "r0")
    assert config["auto.offset.reset"] == "error"
    assert config["enable.auto.commit"] is False
    assert config["fetch.queue.backoff.ms"] == 10
    assert config["isolation.level"] == "read_committed"
    assert config["fetch.wait.max.ms"] == "7"


def statistics(at_us: int, epochs: dict[str, dict[int, int]]) -> str:
    return json.dumps(
        {
            "ts": at_us,
            "topics": {
                topic: {"partitions": {str(number): {"leader_epoch": epoch} for number, epoch in own.items()}}
                for topic, own in epochs.items()
            },
        }
    )


def test_epochs() -> None:
    epochs = LeaderEpochs([TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)])
    assert epochs.add(statistics(10, {"a": {0: 5, 1: 1, -1: -1}, "other": {0: 3}})) == 10_000
    epochs.add(statistics(20, {"a": {0: 5, 1: 2}}))
    epochs.add(statistics(30, {"a": {0: 5, 1: 2}}))
    cases = [
        (0, 11_000, 29_000, True),
        (0, 9_000, 29_000, False),  # sent before anything was known
        (0, 11_000, 31_000, False),  # not known since
        (1, 21_000, 29_000, True),
        (1, 11_000, 29_000, False),  # another epoch meanwhile
        (1, 15_000, 18_000, False),  # nobody looked at both its ends in one epoch
        (2, 11_000, 29_000, False),  # never seen
    ]
    place, sent, done, expected = (np.array(column) for column in zip(*cases, strict=True))
    assert epochs.unchanged(place, sent, done).tolist() == expected.tolist()


def test_events_are_copied_once_and_whole(tmp_path: Path) -> None:
    path, copied = tmp_path / "events.jsonl", []
    timeline = cast(
        Any, SimpleNamespace(add=lambda what, **of: copied.append((what, of["topic"], of["partition"])))
    )
    of_client: Any = SimpleNamespace(id="p0")
    handle = Handle(of_client, of_client, of_client, of_client, tmp_path, control=-1)
    handle.copy_events(timeline)
    assert copied == []
    events = Events(path, 0)
    events.add("reset", topic="orders", partition=3, position=5)
    events.add("problem", reason="why")
    with path.open("ab") as file:
        file.write(b'{"t_ns": 1, "kind"')
    handle.copy_events(timeline)
    assert copied == [(ClientReset(position=5), "orders", 3), (Note(note="cannot read: why"), None, None)]
    handle.copy_events(timeline)
    with path.open("ab") as file:
        file.write(b': "reset"}\nno json\n')
    events.add("reset")
    handle.copy_events(timeline)
    assert copied[2:] == [(ClientReset(), None, None)]


@pytest.mark.parametrize("module", ["producer", "reader"])
def test_a_client_process_loads_nothing_heavy_before_it_starts(module: str) -> None:
    code = (
        f"import sys, ackproof.clients.librdkafka.{module}\n"
        "heavy = {'pydantic', 'pyarrow', 'pyspark', 'pandas', 'rich', 'kafka'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_of_the_buffers_of_a_backlog_one_is_kept(monkeypatch, tmp_path: Path) -> None:
    """Only another backlog would need more buffers, and a soak would keep the memory of its deepest backlog."""
    written, go = [], threading.Event()
    monkeypatch.setattr(
        "ackproof.rundir.ledger.write_consumed", lambda *part: go.wait() and written.append(part[1])
    )
    monkeypatch.setattr(RowBuffer, "rows", lambda *_: None)
    parts = PartWriter(tmp_path, SimpleNamespace(first_part=0, ends=None, committed=False), [])
    for _ in range(4):
        parts.put(RowBuffer(10, 10))
    assert parts.empty_buffer() is None
    go.set()
    parts.finish()
    assert written == [0, 1, 2, 3]
    assert parts.empty_buffer() is not None
    assert parts.empty_buffer() is None


@pytest.mark.parametrize(
    ("fails", "error", "raised"),
    [
        ("hide", OSError(12, "no memory"), BadInput),
        ("spawn", OSError(2, "no such file"), BadInput),
        ("spawn", KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_process_that_does_not_start_leaves_no_descriptor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
    error: BaseException,
    raised: type[BaseException],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(instances, fails, fail)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(raised):
        instances.start_process(
            ["program"],
            RunTag("run", tmp_path, tmp_path),
            "p0",
            tmp_path,
            tmp_path,
            prints=False,
            what="client p0",
            hidden="secret",
        )
    assert len(list(Path("/proc/self/fd").iterdir())) == before
