"""Tests of coherence of clients, transactions and scripts: planted contradictions are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ackproof.judge.coherence.rows import check_transactions
from ackproof.judge.facts import Facts
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import Client
from ackproof.rundir.ledger import TxnRow, write_transactions
from ackproof.rundir.script_state import ScriptState
from ackproof.rundir.timeline import (
    ClientStarted,
    Event,
    EventDetail,
    EventKind,
    FaultAsked,
    FaultConfirmed,
    FaultHealed,
    FaultRecovered,
    PhaseBegan,
    RunEnded,
    ScriptStep,
    Timeline,
)
from judged_run import SECOND, MakeRun, attempt, said
from run_directory import write_run

P0 = Client(id="p0", kind="producer", producer=0)
F0 = Client(id="f0", kind="final", reader=0)


def _facts(make_run: MakeRun, **changes: Any) -> Facts:
    """Return facts of a run with a ledger row of producer p0 and one of final reader f0. `changes`: of the latter."""
    facts = Facts.read(make_run(attempts=[attempt(0, 0.5)]))
    row = {
        "phase": 1, "topic": "orders", "leader_epoch": 1, "origin_topic": "orders", "read_ns": facts.phases["read"],
        **changes,
    }  # fmt: skip
    write_run(facts.run.path, consumed={"f0": [row]})
    return facts


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"reader": 1}, "case.json says that client f0 is final 0, and rows of its ledger are of 1"),
        ({"phase": 0}, "case.json calls client f0 a final, and rows of its ledger are of phase 0"),
        ({"phase": 3}, None),
        ({"read_ns": SECOND}, "client f0 began at 1.400 s, and read_ns in its ledger is 1.000 s"),
        ({"read_ns": 3 * SECOND}, "client f0 had ended by 1.400 s, and read_ns in its ledger is 3.000 s"),
    ],
)
def test_rows_of_a_reader(make_run: MakeRun, changes: dict[str, Any], words: str | None) -> None:
    assert said(_facts(make_run, **changes)) == ([] if words is None else [words])


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ((P0, F0), None),
        ((P0, P0, F0), "case.json lists client p0 2 times"),
        (
            (P0.model_copy(update={"producer": 3}), F0),
            "client p0 is producer 3, and rows of its ledger are of 0",
        ),
        (
            (P0, F0.model_copy(update={"kind": "reader"})),
            "calls client f0 a reader, and rows of its ledger are of",
        ),
        (
            (Client(id="p0", kind="reader", reader=4), F0),
            "produced/client=p0: case.json calls client p0 a reader",
        ),
        ((F0,), "lists 0 clients of kind producer, and the case has 1"),
        ((F0,), "the timeline names client p0, which case.json does not list"),
        (
            (P0, F0, Client(id="r0", kind="reader", reader=1, isolation="read_committed")),
            "client r0 read at read_committed, and the case says read_uncommitted",
        ),
    ],
    ids=str,
)
def test_the_list_of_clients(make_run: MakeRun, clients: tuple[Client, ...], words: str | None) -> None:
    found = said(replace(_facts(make_run), clients=clients))
    assert (found == []) if words is None else any(words in text for text in found), found


def test_rows_from_before_their_client_began(make_run: MakeRun) -> None:
    facts = _facts(make_run)
    late = Event(t_ns=SECOND // 4, wall_ns=0, kind=EventKind.CLIENT_STARTED, client="p0", detail={})
    events = tuple(late if isinstance(event.what, ClientStarted) else event for event in facts.events)
    assert said(replace(facts, events=events)) == [
        "client p0 began at 0.250 s, and sent_ns in its ledger is 0.000 s"
    ]


def test_a_run_that_did_not_go_through_may_lack_clients(make_run: MakeRun) -> None:
    facts = _facts(make_run)
    cut = replace(facts, clients=(F0,), events=facts.events[:-1])
    assert not any("clients of kind" in text for text in said(cut))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "which the timeline does not know"),
        (-9, "and no fault was asked to"),
        ("SIGKILL", "and no fault was asked to"),
    ],
    ids=["a good end", "killed", "by name"],
)
def test_a_client_that_a_fault_is_said_to_have_killed(
    make_run: MakeRun, status: int | str, words: str
) -> None:
    """The only fault of this run kills a node, and no fault was requested to kill a client."""
    facts = _facts(make_run)
    ended = Event(t_ns=SECOND, wall_ns=0, kind=EventKind.CLIENT_ENDED, client="p0", detail={"status": status})
    killed = P0.model_copy(update={"killed": True})
    changed = replace(facts, clients=(killed, F0), events=(*facts.events[:-1], ended, facts.events[-1]))
    assert said(changed) == [f"case.json says that a fault killed client p0, {words}"]


def test_a_client_that_was_never_started(make_run: MakeRun) -> None:
    facts = _facts(make_run)
    events = tuple(event for event in facts.events if not isinstance(event.what, ClientStarted))
    assert said(replace(facts, events=events)) == ["case.json lists client p0, which was never started"]


BEGUN, COMMIT, ENDED = 0, SECOND, 2 * SECOND
WHOLE = TxnRow(0, 0, 0, 0, BEGUN, COMMIT, ENDED)


def _said(make_run: MakeRun, *transactions: TxnRow, sent_ns: int = 5) -> list[str]:
    """Return the texts of opinions on a run with these transactions. Seqs 0 and 1 are in transaction 0, sent at
    `sent_ns`."""
    rows = [{**attempt(seq, 0.5), "sent_ns": sent_ns, "txn": 0} for seq in (0, 1)]
    facts = Facts.read(make_run(producers="acks: all, idempotence: true, transaction_size: 2", attempts=rows))
    write_transactions(facts.run.transactions / "client=p0", list(transactions))
    return [opinion.text for opinion in check_transactions(facts)]


@pytest.mark.parametrize(
    ("one", "sent_ns", "words"),
    [
        (WHOLE, 5, None),
        (WHOLE._replace(begun_ns=-5), 5, "begin before the run"),
        (WHOLE._replace(commit_ns=-1), 5, "are committed and were never asked to be, or never ended"),
        (WHOLE._replace(ended_ns=-1), 5, "are committed and were never asked to be, or never ended"),
        (
            WHOLE._replace(ended_ns=SECOND - 1),
            5,
            "end or are to be committed before they begin, or end before that",
        ),
        (WHOLE._replace(begun_ns=7), 5, "have records from before they begin"),
        (WHOLE, SECOND + 1, "have records from after their commit was asked for"),
        (WHOLE._replace(first_seq=1), 5, "begin with another seq than their first record has"),
    ],
    ids=str,
)
def test_the_course_of_a_transaction(make_run: MakeRun, one: TxnRow, sent_ns: int, words: str | None) -> None:
    found = _said(make_run, one, sent_ns=sent_ns)
    assert found == ([] if words is None else [f"transactions that {words}: 1, such as 0 of producer 0"])


def test_a_transaction_without_records_has_no_first(make_run: MakeRun) -> None:
    assert _said(make_run, WHOLE, TxnRow(0, 1, 1, 2, BEGUN, -1, ENDED)) == []


@pytest.mark.parametrize(("unknown", "good"), [(1, True), (2, False)])
def test_half_of_the_transactions_may_be_unknown(make_run: MakeRun, unknown: int, good: bool) -> None:
    more = [TxnRow(0, 1 + number, 2, 2, BEGUN, COMMIT, -1) for number in range(unknown)]
    words = f"of {1 + unknown} transactions {unknown} are unknown, more than the 50% that may be"
    assert _said(make_run, WHOLE, *more) == ([] if good else [words])


EXPERIMENT = """\
name: t
cluster: {timing: script, controllers: 1}
topics: {orders: {config: {min.insync.replicas: 2}}}
workload: {duration: 1s}
faults:
  - script:
      steps:
        - {fetch: 2, then: {ends: {2: 1}}}
        - {then: {acked: 1}}
    at: 0s
"""
ONE = ScriptStep(number=1, step="fetch 2, then ends {2: 1}", seen=ScriptState(ends={2: 1}))
TWO = ScriptStep(number=2, step="wait, then acked 1", seen=ScriptState(acked=1))


def run_of(*steps: ScriptStep) -> list[EventDetail]:
    life = (FaultAsked(kind="script"), *steps, FaultConfirmed(did="d", witness="w"), FaultHealed(did="d"))
    phases = [PhaseBegan(phase=name) for name in ("start", "load")]
    later = [PhaseBegan(phase=name) for name in ("heal", "drain", "read", "end")]
    return [*phases, *life, FaultRecovered(witness="w"), *later, RunEnded()]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((ONE, TWO), None),
        ((ONE,), "fault 1 was confirmed, and the timeline has 1 of its 2 steps"),
        ((TWO, ONE), "fault 1 has the steps 2, 1, which are not one after the other"),
        ((ONE.model_copy(update={"step": "kill 2"}), TWO), "fault 1 has the step 1 'kill 2' in the timeline"),
        (
            (ONE, TWO.model_copy(update={"wrong": "unexpected: x"})),
            "at step 2 it was otherwise: unexpected: x",
        ),
        (
            (ONE, TWO.model_copy(update={"seen": ScriptState(acked=0)})),
            "at step 2 it was otherwise: acked 1, not 0",
        ),
    ],
)
def test_its_steps(make_run: MakeRun, steps: tuple[ScriptStep, ...], words: str | None) -> None:
    from ackproof.judge.coherence.faults import check_scripts as check

    run = make_run(experiment=EXPERIMENT)
    run.timeline.unlink()
    with Timeline(run.timeline, RunClock.start()) as timeline:
        for what in run_of(*steps):
            timeline.add(what, fault=None if isinstance(what, PhaseBegan | RunEnded) else 1)
    facts = Facts.read(run)
    found = [opinion.text for opinion in check(facts)]
    assert found == [] if words is None else words in "; ".join(found)
