"""Tests of coherence of nodes: planted contradictions in scrapes, brokers' answers and readers' offset commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest

from ackproof.judge.coherence import nodes
from ackproof.judge.facts import Facts
from ackproof.rundir.document import Document
from ackproof.rundir.documents import Client
from ackproof.rundir.observed import BrokerRound, OffsetCommit, ViewerAnswer
from ackproof.rundir.timeline import Event, EventDetail, FaultAsked, NodeEnded, NodeStarted, PhaseBegan
from judged_run import SECOND, in_sync, said
from run_directory import write_run

URP = "under_replicated_partitions"
ASKS = "the experiment does not ask"
Row = tuple[float, int, dict[str, float]]


def scraped(facts: Facts, told: Iterable[Row], *events: tuple[EventDetail, float, int | None]) -> list[str]:
    """Return the texts of opinions on scrapes (time in s, node, values) in a run with only these `events` (detail, time
    in s, node)."""
    rows = [
        {
            "t_ns": round(at * SECOND),
            "done_ns": round(at * SECOND) + 1,
            "node": node,
            "metric": name,
            "value": value,
        }
        for at, node, values in told
        for name, value in {"up": 1.0, **values}.items()
    ]
    write_run(facts.run.path, metrics=rows)
    asked = facts.case.experiment.model_copy(
        update={"observe": facts.case.experiment.observe.model_copy(update={"metrics": True})}
    )
    mine = tuple(
        Event(t_ns=round(at * SECOND), wall_ns=0, kind=what.KIND, detail=what.detail(), node=node)
        for what, at, node in events
    )
    case = replace(facts.case, experiment=asked)
    return [one.text for one in nodes.check_scrapes(replace(facts, events=mine, case=case))]


def each_second(count: int, node: int = 1, **values: float) -> list[Row]:
    return [(at, node, values) for at in range(count)]


def test_scrapes_that_agree(facts: Facts) -> None:
    lives: Sequence[Any] = [
        (NodeStarted(pid=1), 0, 1), (NodeEnded(pid=1), 5.5, 1), (NodeStarted(pid=2), 9, 1),
    ]  # fmt: skip
    told = [one for one in each_second(20, **{URP: 0}) if not 5.5 <= one[0] <= 9]
    assert scraped(facts, told, *lives) == []


def test_nobody_asked_for_them(facts: Facts) -> None:
    assert scraped(facts, each_second(3)) == []
    pq.write_table(pq.read_table(facts.run.metrics), facts.run.metrics)
    (said,) = [one.text for one in nodes.check_scrapes(replace(facts, events=()))]
    assert ASKS in said


def test_a_dead_node_does_not_answer(facts: Facts) -> None:
    lives: Sequence[Any] = [(NodeStarted(pid=1), 0, 1), (NodeEnded(pid=1), 5.5, 1)]
    assert scraped(facts, each_second(8), *lives) == ["node 1 answered a scrape at 6.000 s, when it was dead"]


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_metric_is_a_number_and_not_below_0(facts: Facts, value: float) -> None:
    (said,) = scraped(facts, each_second(3, **{URP: value}))
    assert said.startswith(f"node 1: {URP} is ")


def _lacking(facts: Facts, seconds: int) -> None:
    looks = [
        replace(in_sync("orders", 0), t_ns=at * SECOND // 10, isr=(1, 2)) for at in range(10, seconds * 10)
    ]
    facts.run.samples.write_text("".join(one.line() + "\n" for one in looks))


LOAD: Sequence[Any] = [(PhaseBegan(phase="load"), 0, None)]


def test_an_isr_that_lacks_a_replica_for_long_is_counted(facts: Facts) -> None:
    _lacking(facts, 15)
    (said,) = scraped(facts, each_second(16, **{URP: 0}), *LOAD)
    assert said.startswith("orders/0: its ISR lacks replicas from 1.000 s to 11.1")


def test_what_is_counted_or_short_or_under_a_fault_is_no_contradiction(facts: Facts) -> None:
    _lacking(facts, 15)
    assert scraped(facts, each_second(16, **{URP: 1}), *LOAD) == []
    assert scraped(facts, [*each_second(3, **{URP: 0}), (15, 1, {URP: 0})], *LOAD) == [], "a hole"
    _lacking(facts, 9)
    assert scraped(facts, each_second(16, **{URP: 0}), *LOAD) == []
    _lacking(facts, 15)
    fault = Event(
        t_ns=2 * SECOND, wall_ns=0, kind=FaultAsked.KIND, fault=1, detail={"kind": "pause", "nodes": [3]}
    )
    run = replace(facts, events=(*facts.events, fault))
    assert not [one for one in nodes.check_scrapes(run) if "lacks replicas" in one.text]


READER = Client(id="r0", kind="reader", reader=0)


def json_lines(documents: Iterable[Document]) -> str:
    return "".join(f"{one.model_dump_json()}\n" for one in documents)


def ask(at_s: float, done_s: float, *viewers: int, silent: tuple[int, ...] = ()) -> BrokerRound:
    told = tuple(ViewerAnswer(viewer=one, brokers=(1, 2, 3), partitions=()) for one in viewers)
    return BrokerRound(
        t_ns=round(at_s * SECOND), done_ns=round(done_s * SECOND), controller=1, told=told, silent=silent
    )


def commit(begun_s: float, done_s: float) -> OffsetCommit:
    return OffsetCommit(
        begun_ns=round(begun_s * SECOND), done_ns=round(done_s * SECOND), offsets=(("orders", 0, 5),)
    )


def planted(facts: Facts, told: Iterable[BrokerRound] = (), commits: Iterable[OffsetCommit] = ()) -> Facts:
    """Return a run with these brokers' answers (`told`) and commits of reader r0, both of which its experiment asks
    for. Its node 1 was down from 5 s to 9 s."""
    facts.run.brokers.write_text(json_lines(told))
    facts.run.commits("r0").parent.mkdir(parents=True, exist_ok=True)
    facts.run.commits("r0").write_text(json_lines(commits))
    experiment = facts.case.experiment
    consumers = experiment.workload.consumers.model_copy(update={"commit_every": 0.2})
    experiment = experiment.model_copy(
        update={
            "observe": experiment.observe.model_copy(update={"brokers": True}),
            "workload": experiment.workload.model_copy(update={"consumers": consumers}),
        }
    )
    events = tuple(
        Event(t_ns=round(at * SECOND), wall_ns=0, kind=what.KIND, detail=what.detail(), node=1)
        for what, at in ((NodeStarted(pid=1), 0), (NodeEnded(pid=1), 5), (NodeStarted(pid=2), 9))
    )
    case = replace(facts.case, experiment=experiment)
    return replace(facts, clients=(*facts.clients, READER), events=events, case=case)


def texts_of(facts: Facts) -> list[str]:
    return [one.text for one in nodes.check_rounds(facts)]


def test_rounds_and_commits_that_agree(facts: Facts) -> None:
    told = [
        ask(1, 1.1, 1, 2, silent=(3,)),
        ask(1.1, 1.3, 0, 2),
        ask(4.9, 5.2, 1),
        ask(7.5, 7.6, 1, 2),
    ]
    assert (
        texts_of(planted(facts, told, [commit(1, 1.1), commit(1.1, 1.4), commit(2, -1), commit(3, 3)])) == []
    )


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([ask(1, 0.9, 1)], "brokers were asked at 1.000 s, which ended at 0.900 s"),
        (
            [ask(1, 1.3, 1), ask(1.2, 1.4, 1)],
            "which ended at 1.300 s, and the next began at 1.200 s",
        ),
        (
            [ask(2, 2.1, 1), ask(1, 1.1, 1)],
            "which ended at 2.100 s, and the next began at 1.000 s",
        ),
        ([ask(1, 1.1, 2, 2)], "node 2 stands twice in the round at 1.000 s"),
        ([ask(1, 1.1, 2, 3, silent=(3,))], "node 3 stands twice in the round at 1.000 s"),
        (
            [ask(1, 1.1, 1), ask(6, 6.1, 1, 2)],
            "node 1 answered the round at 6.000 s, when it was dead",
        ),
    ],
)
def test_rounds_that_contradict(facts: Facts, told: list[BrokerRound], words: str) -> None:
    (one,) = texts_of(planted(facts, told))
    assert words in one


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([commit(1, 0.9)], "r0 asked for a commit at 1.000 s, which was answered at 0.900 s"),
        ([commit(1, 1.2), commit(1.1, 1.3)], "answered at 1.200 s, and its next at 1.100 s"),
        ([commit(2, -1), commit(1, 1.1)], "and its next at 1.000 s"),
    ],
)
def test_commits_that_contradict(facts: Facts, told: list[OffsetCommit], words: str) -> None:
    (one,) = texts_of(planted(facts, (), told))
    assert words in one


def test_what_the_experiment_does_not_ask_for_is_named_in_the_verdict(facts: Facts) -> None:
    made: Any = planted(facts, [ask(1, 1.1, 2)], [commit(1, 1.1)])
    told = said(replace(made, case=facts.case, events=facts.events))
    assert "each broker was asked, and the experiment does not ask for that" in told
    assert "r0 committed offsets, and the experiment's readers do not" in told
