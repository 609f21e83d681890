"""Faults of clients on paper: whom they name, what a file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.faults.clients import ClientSelector, FenceProducer, KillClient, PauseClient
from ackproof.plan import InvalidExperiment, load

HEAD = "name: t\ntopics:\n  orders: {}\nworkload:\n  consumers: {live: %d}\nfaults:\n"


def read(folder: Path, fault: str, *, live: int = 0):  # type: ignore[no-untyped-def]
    file = folder / "e.yaml"
    file.write_text(HEAD % live + fault, encoding="utf-8")
    return load(file).spec


def test_whom_they_mean() -> None:
    running = ["r0", "p0", "p1", "r1", "p3"]
    assert ClientSelector.parse("producer(1)").among(running, 0) == ("p1",)
    assert ClientSelector.parse("producer(2)").among(running, 0) == ()
    assert ClientSelector.parse("producers").among(running, 5) == ("p0", "p1", "p3")
    assert [ClientSelector.parse("producer").among(running, draw) for draw in (0, 1, 5)] == [
        ("p0",),
        ("p1",),
        ("p3",),
    ]
    assert ClientSelector.parse("readers").among(["p0"], 3) == ()
    for text in ("producer(1)", "producer", "producers", "reader"):
        assert str(ClientSelector.parse(text)) == text


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


IN_TRANSACTIONS = (
    "name: t\ntopics:\n  orders: {}\nworkload:\n  consumers: {live: 1}\n"
    "  producers: {idempotence: true, transaction_size: 10}\nfaults:\n"
)


def test_a_producer_is_fenced_where_producers_write_in_transactions(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    fence = "  - fence_producer: {client: %s}\n    at: 1s\n"
    coordinator = "  - kill: {target: leader(__transaction_state/%d)}\n    at: 1s\n    restart_after: 1s\n"
    file.write_text(IN_TRANSACTIONS + fence % "producer(0)" + coordinator % 0, encoding="utf-8")
    first, second = load(file).spec.faults
    assert isinstance(first, FenceProducer) and str(second) == "kill leader(__transaction_state/0)"
    for head, fault, message in (
        (IN_TRANSACTIONS, fence % "reader(0)", "has no transactional id; name a producer"),
        (HEAD % 1, fence % "producer", "set workload.producers.transaction_size"),
        (HEAD % 1, coordinator % 0, "'__transaction_state' does not exist"),
        (IN_TRANSACTIONS, coordinator % 1, "'__transaction_state' does not exist"),
    ):
        file.write_text(head + fault, encoding="utf-8")
        with pytest.raises(InvalidExperiment) as caught:
            load(file)
        assert message in str(caught.value.problems[0])


def test_the_coordinator_of_groups_is_aimed_at_where_readers_commit(tmp_path: Path) -> None:
    def problems(readers: str, role: str, head: str = "", when: str = "at: 1s") -> str:
        file = tmp_path / "e.yaml"
        text = f"name: t\n{head}topics: {{orders: {{}}}}\nworkload: {{consumers: {readers}}}\nfaults:\n"
        file.write_text(text + f"  - {{kill: {role}, {when}, restart_after: 1s}}\n", encoding="utf-8")
        try:
            load(file)
        except InvalidExperiment as error:
            return error.problems[0].message
        return ""

    commits, role = "{live: 1, commit_every: 1s}", "leader(__consumer_offsets/0)"
    assert problems(commits, role) == ""
    for readers in ("{live: 1}", "{live: 0, commit_every: 1s}"):
        assert "'__consumer_offsets' does not exist" in problems(readers, role)
    second = "leader(__consumer_offsets/1)"
    assert "'__consumer_offsets' does not exist" in problems(commits, second)
    assert problems(commits, second, "cluster: {config: {offsets.topic.num.partitions: 2}}\n") == ""
    unwatched = problems(commits, role, when="when: isr(__consumer_offsets/0) < 3")
    assert unwatched == "__consumer_offsets is not watched; name a topic of the experiment"
