"""Plays scripts on real brokers, and duds that must not pass for one, on both backends."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ackproof.faults.script.acts import ScriptActions
from ackproof.faults.script.spec import Gate, StepSpec
from ackproof.network.requests.rules import FrameSide
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.run.case import CaseRun
from ackproof.run.phases import CaseOptions, SilentWatcher
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.script_state import ScriptState
from ackproof.rundir.timeline import FaultConfirmed, FaultFailed, FaultRecovered, ScriptStep, read_timeline
from faultbench.spoilt import Spoilt, not_at_first, of_another_api

CATALOGUE: Final = Path(__file__).parents[2] / "experiments"
_FRAME: Final = """\
name: scripted
cluster: {{controllers: 1, timing: script}}
topics: {{orders: {{assignment: [[1, 2, 3]], config: {{min.insync.replicas: 1}}}}}}
workload: {{duration: 1s, producers: {{acks: 1}}}}
faults:
  - script:
      steps:
{steps}    at: 0s
"""
_SHORT: Final = (
    "{send: 0, then: {acked: 1}}",
    "{fetch: 2, then: {ends: {1: 1, 2: 1}}}",
    "{kill: 3, within: 3s}",
)


def written(file: Path, *steps: str) -> Path:
    """Write the experiment file of a script with these steps, with three replicas and acks=1; return its path."""
    lines = "".join(f"        - {step}\n" for step in steps)
    file.write_text(_FRAME.format(steps=lines), encoding="utf-8")
    return file


def played(file: Path, folder: Path, backend: str = "process") -> tuple[list[ScriptStep], str]:
    """Run the script of a file; return its recorded steps, and why it failed ('' if it did not). Assert that a script
    that did not fail was confirmed and recovered."""
    (case,) = cases(load(file, backend=backend))
    run = CaseDir(folder)
    with CaseRun(case, run, CaseOptions(batch=str(folder), replay=""), SilentWatcher()) as one:
        one.prepare()
        one.go()
    events, whole = read_timeline(run.timeline)
    assert whole
    failed = [event.what.reason for event in events if isinstance(event.what, FaultFailed)]
    if not failed:
        assert {FaultConfirmed, FaultRecovered} <= {type(event.what) for event in events}
    return [event.what for event in events if isinstance(event.what, ScriptStep)], "; ".join(failed)


def last(steps: list[ScriptStep]) -> ScriptState:
    """Return the state that was observed after the last step."""
    assert steps[-1].seen is not None
    return steps[-1].seen


def with_a_fetch_of_3(act: Callable[..., str]) -> Callable[..., str]:
    """Return a replacement of a step that also lets a fetch of broker 3 through."""

    def spoilt(self: ScriptActions, step: StepSpec) -> str:
        self.gates.release(Gate.FETCHES, 3, FrameSide.REQUEST)
        done = act(self, step)
        self.until(lambda: self.gates.count_held(Gate.FETCHES, 3, FrameSide.RESPONSE), "3 to be answered")
        self.gates.release(Gate.FETCHES, 3, FrameSide.RESPONSE)
        self.until(lambda: self.gates.count_held(Gate.FETCHES, 3, FrameSide.REQUEST), "3 to ask anew")
        return done

    return spoilt


@dataclass(frozen=True)
class Lie:
    """A replaced call of the harness. `call`: its name below `ackproof`. `spoilt`: makes the replacement from the
    function. `told`: number of steps that the run then records. `words`: part of the failure's message."""

    call: str
    spoilt: Spoilt
    told: int
    words: str


LIES: Final = (
    Lie(
        "network.requests.links.RequestLinks.lay",
        of_another_api,
        0,
        "the fetches of broker 2 to be held",
    ),
    Lie(
        "faults.script.acts.ScriptActions._fetch",
        with_a_fetch_of_3,
        2,
        "unexpected: the log of broker 3 also went from 0",
    ),
    Lie("cluster.node.ProcessNode.kill", not_at_first, 3, "broker-3 to be gone"),
)


def found_out(lie: Lie, patch: pytest.MonkeyPatch, folder: Path, backend: str = "process") -> None:
    """Play a short script with a lie; assert that the script fails with the lie's message."""
    name = f"ackproof.{lie.call}"
    patch.setattr(name, lie.spoilt(pkgutil.resolve_name(name)))
    patch.setattr("ackproof.faults.script.injection.SETTLED_WITHIN_S", 10.0)
    steps, failed = played(written(folder / "dud.yaml", *_SHORT), folder / "run", backend)
    assert lie.words in failed
    assert len(steps) == lie.told and (not steps or steps[-1].wrong)
