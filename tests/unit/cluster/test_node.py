"""Tests of nodes and the watcher, with a shell in place of a JVM: expected and unexpected ends, and how soon they are
reported."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput, NodeDied
from ackproof.base.processes import Child, RunTag, spawn
from ackproof.base.wait import wait_until
from ackproof.cluster.disks.node_disk import NodeDisk
from ackproof.cluster.node import NodeFiles, ProcessNode, Watcher, status_text
from ackproof.cluster.protocol import NodeEvent, NodeState
from ackproof.rundir.timeline import EventKind, NodeEnded
from ackproof.rundir.timeline import NodeDied as NodeDiedEvent

Make = Callable[[str], ProcessNode]
PATIENT = "exec sleep 60"
STUBBORN = "trap '' TERM; echo ready > server.log; while :; do sleep 0.05; done"


class Events:
    """Receiver that keeps each node event with the time of its arrival, in seconds on a monotonic clock."""

    def __init__(self) -> None:
        self.all: list[tuple[float, NodeEvent]] = []
        self._lock = threading.Lock()

    def __call__(self, event: NodeEvent) -> None:
        with self._lock:
            self.all.append((time.monotonic(), event))

    def kinds(self) -> list[EventKind]:
        return [event.what.KIND for _, event in self.all]

    def of(self, kind: EventKind) -> tuple[float, NodeEvent]:
        return wait_until(
            lambda: next((seen for seen in self.all if seen[1].what.KIND is kind), None),
            what=kind,
            timeout_s=5,
        )


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def make(tmp_path: Path, events: Events) -> Iterator[Make]:
    watcher = Watcher()
    nodes: list[ProcessNode] = []

    def build(script: str) -> ProcessNode:
        files = NodeFiles(tmp_path / str(len(nodes) + 1))
        files.folder.mkdir()
        tag = RunTag("test-node", tmp_path, tmp_path)
        node = ProcessNode(
            len(nodes) + 1,
            f"broker-{len(nodes) + 1}",
            is_broker=True,
            is_controller=False,
            files=files,
            disk=NodeDisk(files.data, (files.data,), files.data, lay=lambda: None),
            launch=lambda: spawn(
                ["sh", "-c", script], run=tag, role="broker-1", cwd=files.folder, stdout=files.stdout
            ),
            watcher=watcher,
            on_event=events,
            ready=lambda node, timeout_s: None,
        )
        nodes.append(node)
        return node

    yield build
    for node in nodes:
        node.kill()
    watcher.close()


def test_a_death_by_itself_is_told_at_once_with_status_and_log(make: Make, events: Events) -> None:
    node = make("echo one > server.log; echo two >> server.log; echo printed; exit 3")
    node.start()
    _, event = events.of(EventKind.NODE_DIED)
    assert isinstance(event.what, NodeDiedEvent)
    assert (event.what.status, event.what.log.splitlines()) == ("exit status 3", ["one", "two", "printed"])
    assert isinstance(node.death, NodeDied)
    assert "died by itself: exit status 3; last log lines:\none\ntwo" in str(node.death)
    assert (node.state(), node.alive) == (NodeState.GONE, False)


def test_a_stranger_who_kills_is_noticed_within_50_ms(make: Make, events: Events) -> None:
    delays = []
    for _ in range(5):
        node = make(PATIENT)
        node.start()
        assert node.pid is not None
        killed = time.monotonic()
        os.kill(node.pid, signal.SIGKILL)
        wait_until(lambda node=node: node.death, what="the death", timeout_s=5, interval_s=0.001)
        delays.append(time.monotonic() - killed)
    assert sorted(delays)[2] < 0.05, delays
    assert [event.what.status for _, event in events.all if isinstance(event.what, NodeDiedEvent)] == [
        "SIGKILL"
    ] * 5


@pytest.mark.parametrize("act", [ProcessNode.kill, ProcessNode.terminate, ProcessNode.stop])
def test_an_end_that_was_asked_for_is_no_death(
    make: Make, events: Events, act: Callable[[ProcessNode], object]
) -> None:
    node = make(PATIENT)
    node.start()
    act(node)
    _, event = events.of(EventKind.NODE_ENDED)
    assert isinstance(event.what, NodeEnded)
    assert event.what.status in ("SIGKILL", "SIGTERM")
    assert node.death is None
    assert events.kinds() == [EventKind.NODE_STARTED, EventKind.NODE_ENDED]


def test_ends_that_were_asked_for_and_ends_that_were_not_are_never_mixed_up(
    make: Make, events: Events
) -> None:
    nodes = [make(PATIENT) for _ in range(20)]
    for node in nodes:
        node.start()
    for i, node in enumerate(nodes):
        assert node.pid is not None
        if i % 2:
            node.kill()
        else:
            os.kill(node.pid, signal.SIGKILL)
    wait_until(lambda: len(events.all) == 40, what="all ends", timeout_s=5)
    assert [node.death is None for node in nodes] == [bool(i % 2) for i in range(20)]


def test_pause_and_resume_show_in_proc(make: Make) -> None:
    node = make(PATIENT)
    node.start()
    node.pause()
    wait_until(lambda: node.state() is NodeState.STOPPED, what="a stop", timeout_s=5)
    assert node.alive
    node.resume()
    wait_until(lambda: node.state() is NodeState.RUNNING, what="going on", timeout_s=5)


def test_a_paused_node_can_be_killed(make: Make, events: Events) -> None:
    node = make(PATIENT)
    node.start()
    node.pause()
    node.kill()
    events.of(EventKind.NODE_ENDED)
    assert node.state() is NodeState.GONE


def test_a_node_that_ignores_sigterm_is_killed_and_said_to_be_late(make: Make) -> None:
    node = make(STUBBORN)
    node.start()
    wait_until(node.files.log.exists, what="the trap", timeout_s=5)
    assert node.stop(timeout_s=0.1) is False
    assert node.state() is NodeState.GONE
    assert node.death is None


def test_started_again_it_is_another_process_and_the_old_end_comes_first(make: Make, events: Events) -> None:
    node = make(PATIENT)
    node.start()
    first = node.pid
    node.kill()
    wait_until(lambda: not node.alive, what="the end", timeout_s=5)
    node.start()
    assert node.pid != first
    assert events.kinds() == [EventKind.NODE_STARTED, EventKind.NODE_ENDED, EventKind.NODE_STARTED]
    with pytest.raises(BadInput, match="it is running"):
        node.start()


def test_a_new_start_forgives_a_death(make: Make, events: Events) -> None:
    node = make("test -e lived && exec sleep 60; touch lived; exit 1")
    node.start()
    events.of(EventKind.NODE_DIED)
    node.start()
    assert node.death is None
    assert node.alive


def test_signals_to_a_node_that_is_gone_or_never_was_do_nothing(make: Make, events: Events) -> None:
    node = make(PATIENT)
    for act in (node.kill, node.terminate, node.pause, node.resume):
        act()
    assert (node.pid, node.state(), node.stop(), events.all) == (None, NodeState.GONE, True, [])


def test_closing_the_watcher_waits_until_every_end_is_told(
    make: Make, events: Events, tmp_path: Path
) -> None:
    watcher = Watcher()
    told: list[int] = []
    tag = RunTag("test-watcher", tmp_path, tmp_path)
    children = [
        spawn(["sleep", "60"], run=tag, role=f"{i}", cwd=tmp_path, stdout=tmp_path / "out") for i in range(10)
    ]
    for child in children:
        watcher.watch(child, lambda _, status: told.append(status))
    for child in children:
        child.signal(signal.SIGTERM)
    watcher.close()
    assert told == [-signal.SIGTERM] * 10
    watcher.close()


def test_a_receiver_that_fails_is_heard_of_and_silences_nobody_else(tmp_path: Path) -> None:
    watcher = Watcher()
    told: list[int] = []
    tag = RunTag("test-watcher", tmp_path, tmp_path)

    def fail(child: Child, status: int) -> None:
        raise ValueError("a bad receiver")

    for on_end in (fail, lambda _, status: told.append(status)):
        child = spawn(["true"], run=tag, role="x", cwd=tmp_path, stdout=tmp_path / "out")
        watcher.watch(child, on_end)
        wait_until(lambda child=child: child.poll() is not None, what="the end", timeout_s=5)
    with pytest.raises(ValueError, match="a bad receiver"):
        watcher.close()
    assert told == [0]
    watcher.close()


def test_status_in_words() -> None:
    assert [status_text(status) for status in (0, 3, -9, -200)] == [
        "exit status 0",
        "exit status 3",
        "SIGKILL",
        "signal 200",
    ]


def test_log_tail_reads_only_the_end_and_survives_bytes_that_are_no_text(make: Make) -> None:
    node = make(PATIENT)
    assert node.log_tail() == ""
    node.files.log.write_bytes(b"x" * 100_000 + b"\nlast but one \xff\nlast\n")
    assert node.log_tail(2) == "last but one \N{REPLACEMENT CHARACTER}\nlast"
