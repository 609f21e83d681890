"""A script that was confirmed: its steps are all told, in order, and none was otherwise."""

from __future__ import annotations

import pytest

from ackproof.judge.facts import Facts
from ackproof.rundir.clock import RunClock
from ackproof.rundir.timeline import (
    EventDetail,
    FaultAsked,
    FaultConfirmed,
    FaultHealed,
    FaultRecovered,
    PhaseBegan,
    RunEnded,
    ScriptState,
    ScriptStep,
    Timeline,
)

from .conftest import MakeRun

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
        ((ONE, TWO.model_copy(update={"wrong": "beside it x"})), "at step 2 it was otherwise: beside it x"),
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
