"""One fact, two witnesses: what brokers said when each was asked, and what readers committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ackproof.judge.coherence import nodes
from ackproof.judge.facts import Facts
from ackproof.rundir.documents import Client, Document
from ackproof.rundir.observed import BrokerRound, OffsetCommit, ViewerAnswer
from ackproof.rundir.timeline import Event, NodeEnded, NodeStarted

from .conftest import SECOND, said

READER = Client(id="r0", kind="reader", reader=0)


def lines(documents: Iterable[Document]) -> str:
    return "".join(f"{one.model_dump_json()}\n" for one in documents)


def asked(at_s: float, done_s: float, *viewers: int, silent: tuple[int, ...] = ()) -> BrokerRound:
    told = tuple(ViewerAnswer(viewer=one, brokers=(1, 2, 3), partitions=()) for one in viewers)
    return BrokerRound(
        t_ns=round(at_s * SECOND), done_ns=round(done_s * SECOND), controller=1, told=told, silent=silent
    )


def commit(begun_s: float, done_s: float) -> OffsetCommit:
    return OffsetCommit(
        begun_ns=round(begun_s * SECOND), done_ns=round(done_s * SECOND), offsets=(("orders", 0, 5),)
    )


def planted(facts: Facts, told: Iterable[BrokerRound] = (), commits: Iterable[OffsetCommit] = ()) -> Facts:
    """A run whose experiment asks for both, and whose node 1 was dead from 5 s to 9 s."""
    facts.run.brokers.write_text(lines(told))
    facts.run.commits("r0").parent.mkdir(parents=True, exist_ok=True)
    facts.run.commits("r0").write_text(lines(commits))
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


def found(facts: Facts) -> list[str]:
    return [one.text for one in nodes.check_rounds(facts)]


def test_rounds_and_commits_that_agree(facts: Facts) -> None:
    told = [
        asked(1, 1.1, 1, 2, silent=(3,)),
        asked(1.1, 1.3, 0, 2),
        asked(4.9, 5.2, 1),
        asked(7.5, 7.6, 1, 2),
    ]
    assert found(planted(facts, told, [commit(1, 1.1), commit(1.1, 1.4), commit(2, -1), commit(3, 3)])) == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([asked(1, 0.9, 1)], "brokers were asked at 1.000 s, which ended at 0.900 s"),
        ([asked(1, 1.3, 1), asked(1.2, 1.4, 1)], "which ended at 1.300 s, and the next began at 1.200 s"),
        ([asked(2, 2.1, 1), asked(1, 1.1, 1)], "which ended at 2.100 s, and the next began at 1.000 s"),
        ([asked(1, 1.1, 2, 2)], "node 2 stands twice in the round at 1.000 s"),
        ([asked(1, 1.1, 2, 3, silent=(3,))], "node 3 stands twice in the round at 1.000 s"),
        ([asked(1, 1.1, 1), asked(6, 6.1, 1, 2)], "node 1 answered the round at 6.000 s, when it was dead"),
    ],
)
def test_rounds_that_contradict(facts: Facts, told: list[BrokerRound], words: str) -> None:
    (one,) = found(planted(facts, told))
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
    (one,) = found(planted(facts, (), told))
    assert words in one


def test_what_the_experiment_does_not_ask_for_is_named_in_the_verdict(facts: Facts) -> None:
    made: Any = planted(facts, [asked(1, 1.1, 2)], [commit(1, 1.1)])
    told = said(replace(made, case=facts.case, events=facts.events))
    assert "each broker was asked, and the experiment does not ask for that" in told
    assert "r0 committed offsets, and the experiment's readers do not" in told
