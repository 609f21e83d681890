"""Faults of clients on paper: whom they name, what a file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.plan import InvalidExperiment, load
from ackproof.plan.fault_clients import KillClient, PauseClient, Whom

HEAD = "name: t\ntopics:\n  orders: {}\nworkload:\n  consumers: {live: %d}\nfaults:\n"


def read(folder: Path, fault: str, *, live: int = 0):  # type: ignore[no-untyped-def]
    file = folder / "e.yaml"
    file.write_text(HEAD % live + fault, encoding="utf-8")
    return load(file)


def test_whom_they_mean() -> None:
    running = ["r0", "p0", "p1", "r1", "p3"]
    assert Whom.parse("producer(1)").among(running, 0) == ("p1",)
    assert Whom.parse("producer(2)").among(running, 0) == ()
    assert Whom.parse("producers").among(running, 5) == ("p0", "p1", "p3")
    assert [Whom.parse("producer").among(running, draw) for draw in (0, 1, 5)] == [("p0",), ("p1",), ("p3",)]
    assert Whom.parse("readers").among(["p0"], 3) == ()
    for text in ("producer(1)", "producer", "producers", "reader"):
        assert str(Whom.parse(text)) == text


def test_they_are_read(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        "  - kill_client: {client: producer(0)}\n    at: 1s\n    restart_after: 2s\n"
        "  - pause_client: {client: readers}\n    at: 1s\n    for: 3s\n",
        live=1,
    )
    kill, pause = spec.faults
    assert isinstance(kill, KillClient) and kill.hold == 2.0 and str(kill) == "kill_client producer(0)"
    assert isinstance(pause, PauseClient) and pause.hold == 3.0 and pause.client.every


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("{client: prodcer}", "expected producer, producers"),
        ("{client: producers(1)}", "expected producer, producers"),
        ("{}", "missing"),
        ("{client: reader}", "set workload.consumers.live"),
    ],
)
def test_what_is_refused(tmp_path: Path, fault: str, message: str) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        read(tmp_path, f"  - kill_client: {fault}\n    at: 1s\n")
    (problem,) = caught.value.problems
    assert problem.path.startswith("faults[1].kill_client")
    assert message in str(problem)


def test_a_storm_may_draw_them(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        "  - storm: {menu: {kill_client: 1, pause_client: {weight: 1, client: producers}}}\n    at: 0s\n",
    )
    assert spec.faults[0].kind == "storm"
