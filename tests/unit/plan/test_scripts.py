"""Scripts in a file: what is held, what they come to, and what is refused, where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.faults.script.spec import Gate, Script, StateSpec
from ackproof.plan import InvalidExperiment, Plan, describe
from ackproof.plan.cases import case_from_json, case_to_json, cases
from ackproof.rundir.timeline import ScriptState
from ackproof_model.predict.incidents import planned

Load = Callable[[str], Plan]
FRAME = """\
name: script
cluster: {{controllers: {controllers}, timing: {timing}}}
topics: {{t: {{partitions: {partitions}}}}}
workload: {{duration: 1s, producers: {{acks: 1, count: 2}}}}
backend: {backend}
faults:
  - script:
      steps:
        - {step}
    at: 0s
"""


def text(step: str, **more: object) -> str:
    usual: dict[str, object] = {"controllers": 1, "timing": "script", "partitions": 1, "backend": "process"}
    return FRAME.format(step=step, **{**usual, **more})


def script(plan: Plan) -> Script:
    (fault,) = cases(plan)[0].faults
    assert isinstance(fault, Script)
    return fault


@pytest.mark.parametrize(
    ("step", "gates", "did"),
    [
        ("send: 1", (), "send 1"),
        ("{fetch: 2, times: 3}", (Gate.FETCHES,), "fetch 2 3 times"),
        ("{fetch: 2, side: request}", (Gate.FETCHES,), "fetch 2 request"),
        ("proposal: 1", (Gate.PROPOSALS,), "proposal 1"),
        ("learn: 3", (Gate.METADATA,), "learn 3"),
        ("heartbeat: 3", (Gate.HEARTBEATS,), "heartbeat 3"),
        ("{power_loss: 1, keep: 2}", (), "power_loss 1 keep 2"),
        (
            "{shut: [metadata, fetches], of: [2, 3]}",
            (Gate.FETCHES, Gate.METADATA),
            "shut metadata, fetches of 2, 3",
        ),
        ("set: {min.insync.replicas: 1}", (), "set min.insync.replicas=1"),
        ("{then: {leader: 2}}", (), "wait"),
    ],
)
def test_what_a_step_lets_through_is_held(
    load_text: Load, step: str, gates: tuple[Gate, ...], did: str
) -> None:
    plan = load_text(text(step))
    assert script(plan).gates == gates
    assert script(plan).steps[0].did == did
    assert any(f"1. {did}" in line for line in describe(cases(plan)[0]))
    case = cases(plan)[0]
    assert case_from_json(case_to_json(case)) == case


@pytest.mark.parametrize(
    ("step", "more", "line", "words"),
    [
        ("kil: 1", {}, 9, "kill"),
        ("{kill: 1, fetch: 2}", {}, 9, "a step does one thing; this one has fetch and kill"),
        ("{note: nothing}", {}, 9, "a step has an action"),
        ("kill: 9", {}, 9, "there is no broker 9"),
        ("send: 2", {}, 9, "there is no producer 2"),
        ("{kill: 1, side: request}", {}, 9, "'side' goes with fetch and proposal"),
        ("{shut: doors}", {}, 9, "unknown gate 'doors'"),
        ("{fetch: 2, then: {leader: two}}", {}, 9, "a whole number"),
        ("{fetch: 2, then: {ends: {9x: 1}}}", {}, 9, "9x"),
        ("fetch: 2", {"timing": "chaos"}, 7, "write cluster: {timing: script}"),
        ("kill: 1", {"controllers": 3}, 7, "one controller of its own"),
        ("kill: 1", {"partitions": 2}, 7, "one topic with one partition"),
        ("kill: 1", {"backend": "model"}, 7, "nothing stands between"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(
    load_text: Load, step: str, more: dict[str, object], line: int, words: str
) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(text(step, **more))
    assert any(words in problem.message + str(problem.suggestion) for problem in caught.value.problems), (
        caught.value
    )
    assert {problem.line for problem in caught.value.problems} == {line}


@pytest.mark.parametrize("backend", ["process", "docker", "auto"])
def test_where_it_can_be_played(load_text: Load, backend: str) -> None:
    """Brokers as processes and in containers alike, whatever its steps do."""
    every = "fetch: 2\n        - power_loss: 1\n        - pause: 2\n        - end_session: 1"
    assert load_text(text(every, backend=backend)).spec.backend == backend


def test_its_steps_are_what_goes_wrong_in_it(load_text: Load) -> None:
    plan = load_text(text("kill: 1\n        - end_session: 1\n        - lead: 3\n        - {elect: unclean}"))
    (counted,) = [count for _, count in planned(cases(plan)[0], "t")]
    assert (counted.kills, counted.cuts, counted.hand_overs, counted.unclean) == (1, 1, 1, 1)
    assert script(plan).may_set(plan.spec, "t") == {"unclean.leader.election.enable": "true"}


def test_a_state_says_what_is_otherwise() -> None:
    seen = ScriptState(leader=2, epoch=1, isr=(2, 3), ends={1: 3, 2: 1}, acked=3)
    assert StateSpec(leader=2, isr=(3, 2), ends={1: 3}, acked=3).unmet(seen) == []
    assert StateSpec(leader=1, ends={2: 3, 3: 1}, fenced=(1,)).unmet(seen) == [
        "leader 1, not 2",
        "fenced [1], not []",
        "end of broker 2 3, not 1",
        "end of broker 3 1, not unknown",
    ]
