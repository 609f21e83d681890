"""Tests of the timeline: typed events, their lines on disk, and torn lines or lines of other versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ackproof.rundir.clock import RunClock
from ackproof.rundir.timeline import (
    ClientReset,
    EventDetail,
    EventKind,
    FaultAsked,
    IsrChanged,
    NodeDied,
    PhaseBegan,
    RunEnded,
    Timeline,
    read_timeline,
)

SAID = [
    (PhaseBegan(phase="load"), {}, {"phase": "load"}),
    (
        FaultAsked(kind="kill", role="leader(orders/0)", nodes=(1, 2), trigger="at 1 s"),
        {"fault": 1},
        {"kind": "kill", "role": "leader(orders/0)", "nodes": [1, 2], "trigger": "at 1 s"},
    ),
    (ClientReset(position=5, reason="gone"), {"partition": 0}, {"position": 5, "reason": "gone"}),
    (NodeDied(pid=7, status="SIGKILL", log=""), {"node": 3}, {"pid": 7, "status": "SIGKILL", "log": ""}),
    (IsrChanged(isr=()), {"topic": "orders", "partition": 0}, {"isr": []}),
    (RunEnded(), {}, None),
]


@pytest.mark.parametrize(("what", "whom", "detail"), SAID)
def test_an_event_is_written_and_read_back(
    tmp_path: Path, what: EventDetail, whom: dict[str, int], detail: object
) -> None:
    path = tmp_path / "timeline.jsonl"
    with Timeline(path, RunClock.start()) as timeline:
        timeline.add(what, t_ns=5, **whom)
    line = json.loads(path.read_text())
    assert list(line) == ["t_ns", "wall_ns", "kind", *whom, *(["detail"] if detail else [])]
    assert (line["t_ns"], line["kind"], line.get("detail")) == (5, what.KIND.value, detail)
    (event,), whole = read_timeline(path)
    assert whole
    assert event.what == what


def test_every_kind_has_its_type() -> None:
    assert {kind.KIND for kind in EventDetail.__subclasses__()} == set(EventKind)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ('{"t_ns":1,"wall_ns":2,"kind":"phase","detail":{"phase":"load","of_a_newer_version":[1]}}', True),
        ('{"t_ns":1,"wall_ns":2,"kind":"isr","topic":"t","partition":0}', True),
        ('{"t_ns":1,"wall_ns":2,"kind":"of-a-newer-version"}', False),
        ('{"t_ns":1,"wall_ns":2,"kind":"isr","topic":"t","partition":0,"detail":{"isr":"none"}}', False),
        ('{"t_ns":1,"wall_ns":2,"ki', False),
    ],
)
def test_lines_of_other_versions_and_torn_ones(tmp_path: Path, line: str, read: bool) -> None:
    path = tmp_path / "timeline.jsonl"
    path.write_text(line + "\n")
    events, whole = read_timeline(path)
    assert (len(events) == 1, whole) == (read, read)
