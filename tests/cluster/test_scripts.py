"""Scripts on real brokers: each step is seen; what happens beside one is noticed, and a gate that does not hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ackproof.cluster.network.requests.links import RequestLinks
from ackproof.cluster.network.requests.rules import Rule, Side
from ackproof.experiment.apis import APIS
from ackproof.faults.script.acts import Acts
from ackproof.faults.script.steps import Gate, StepSpec
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.run.batch import Silent
from ackproof.run.case import CaseRun
from ackproof.run.phases import CaseOptions
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import (
    FaultConfirmed,
    FaultFailed,
    FaultRecovered,
    ScriptStep,
    Seen,
    read_timeline,
)

pytestmark = pytest.mark.cluster
CATALOGUE = Path(__file__).parents[2] / "experiments"
SHORT = """\
name: dud
cluster: {controllers: 1, timing: script}
topics: {orders: {assignment: [[1, 2, 3]], config: {min.insync.replicas: 1}}}
workload: {duration: 1s, producers: {acks: 1}}
faults:
  - script:
      steps:
        - {send: 0, then: {acked: 1}}
        - {fetch: 2, then: {ends: {1: 1, 2: 1}}}
        - {kill: 3, within: 3s}
    at: 0s
"""


def played(file: Path, folder: Path) -> tuple[list[ScriptStep], str]:
    """The steps that were told, and why the script failed; '' where it did not."""
    (case,) = cases(load(file))
    run = CaseDir(folder)
    with CaseRun(case, run, CaseOptions(batch=str(folder), replay=""), Silent()) as one:
        one.prepare()
        one.go()
    events, whole = read_timeline(run.timeline)
    assert whole
    failed = [event.what.reason for event in events if isinstance(event.what, FaultFailed)]
    if not failed:
        assert {FaultConfirmed, FaultRecovered} <= {type(event.what) for event in events}
    return [event.what for event in events if isinstance(event.what, ScriptStep)], "; ".join(failed)


def last(steps: list[ScriptStep]) -> Seen:
    assert steps[-1].seen is not None
    return steps[-1].seen


def test_a_tail_that_nobody_fetched_is_lost(tmp_path: Path) -> None:
    steps, failed = played(CATALOGUE / "script-acks-1-tail.yaml", tmp_path)
    assert (failed, len(steps), [step.wrong for step in steps if step.wrong]) == ("", 6, [])
    seen = last(steps)
    assert (seen.leader, seen.epoch, seen.acked, seen.down) == (2, 1, 3, (1,))
    assert seen.ends == {1: 3, 2: 1, 3: 1}


@pytest.mark.nightly  # its shorter kin is above
def test_a_leader_that_slept_through_an_epoch_loses_what_it_acknowledges(tmp_path: Path) -> None:
    """Should a release mend it, this fails: docs/found.md says what it is."""
    steps, failed = played(CATALOGUE / "slept-through-epoch.yaml", tmp_path)
    assert failed == ""
    seen = last(steps)
    assert (seen.leader, seen.epoch, seen.acked, seen.ends[3]) == (3, 3, 3, 0)


def _of_another_api(lay: Callable[..., None]) -> Callable[..., None]:
    def spoilt(self: RequestLinks, rule: Rule) -> None:
        other = APIS["Vote"].key
        lay(self, Rule(rule.name, rule.kind, Side.REQUEST, other, rule.ways))

    return spoilt


def _with_a_fetch_of_3(act: Callable[..., str]) -> Callable[..., str]:
    def spoilt(self: Acts, step: StepSpec) -> str:
        self._on.gates.release(Gate.FETCHES, 3, Side.REQUEST)
        done = act(self, step)
        self._on.until(lambda: self._on.gates.held(Gate.FETCHES, 3, Side.RESPONSE), "3 to be answered")
        self._on.gates.release(Gate.FETCHES, 3, Side.RESPONSE)
        self._on.until(lambda: self._on.gates.held(Gate.FETCHES, 3, Side.REQUEST), "3 to ask anew")
        return done

    return spoilt


def _not(call: Callable[..., Any]) -> Callable[..., None]:
    del call
    return lambda *_: None


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("call", "spoilt", "told", "words"),
    [
        (
            "cluster.network.requests.links.RequestLinks.lay",
            _of_another_api,
            0,
            "the fetches of broker 2 to be held",
        ),
        (
            "faults.script.acts.Acts._fetch",
            _with_a_fetch_of_3,
            2,
            "beside it the log of broker 3 also went from 0",
        ),
        ("cluster.backends.process.node.ProcessNode.kill", _not, 3, "broker 3 to be gone"),
    ],
)
def test_duds(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    call: str,
    spoilt: Callable[[Any], Any],
    told: int,
    words: str,
) -> None:
    import pkgutil

    name = f"ackproof.{call}"
    monkeypatch.setattr(name, spoilt(pkgutil.resolve_name(name)))
    monkeypatch.setattr("ackproof.faults.script.play.SETTLED_WITHIN_S", 10.0)
    file = tmp_path / "dud.yaml"
    file.write_text(SHORT)
    steps, failed = played(file, tmp_path / "run")
    assert words in failed
    assert len(steps) == told and (not steps or steps[-1].wrong)
