"""Tests of plans with faults, beyond the golden files: gates and steps of scripts, and how each kind of fault says when
it ends."""

from __future__ import annotations

import pytest

from ackproof.experiment.problems import InvalidExperiment
from ackproof.faults.registry import fault_kinds
from ackproof.faults.script.spec import Gate, Script, StateSpec
from ackproof.plan import Plan, describe
from ackproof.plan.cases import case_from_json, case_to_json, cases
from ackproof.rundir.script_state import ScriptState

from .conftest import Load

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
        ("set_aside: 2", (Gate.FETCHES,), "set_aside 2"),
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
    ("steps", "number"),
    [
        (["deliver: 2"], 1),
        (["set_aside: 3", "deliver: 2"], 2),
        (["set_aside: 2", "deliver: 2", "deliver: 2"], 3),
        (["set_aside: 2", "{deliver: 2, times: 2}"], 2),
    ],
)
def test_only_a_fetch_that_was_set_aside_can_be_delivered(
    load_text: Load, steps: list[str], number: int
) -> None:
    with pytest.raises(InvalidExperiment) as said:
        load_text(text("\n        - ".join(steps)))
    assert f"steps[{number}].deliver: no step before it sets a fetch of broker 2 aside" in str(said.value)


def test_an_unclean_election_sets_what_allows_it(load_text: Load) -> None:
    plan = load_text(text("{elect: unclean}"))
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


def test_every_fault_that_holds_nodes_says_when_it_lets_go() -> None:
    """On a node that a fault keeps in a state (`GRIP`), a second fault of its kind finds nothing to break. `starve` and
    `flip_bits` are exceptions."""
    for kind in fault_kinds().values():
        assert kind.GRIP is None or kind.GRIP not in kind.OVER or kind.KIND in ("starve", "flip_bits"), (
            kind.KIND
        )
