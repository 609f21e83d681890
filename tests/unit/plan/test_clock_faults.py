"""Clocks that jump, as a file says them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.backends import Need
from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import Plan

Load = Callable[[str], Plan]

FRAME = """\
name: x
backend: {backend}
topics: {{t: {{}}}}
faults:
  - {fault}
    at: 1s
"""


@pytest.mark.parametrize(
    ("by", "said"), [("1h", "+3600s"), ("+90s", "+90s"), ("-1m", "-60s"), ("-1500ms", "-1500ms")]
)
def test_what_there_is(load_text: Load, by: str, said: str) -> None:
    fault = load_text(
        FRAME.format(backend="process", fault=f"clock_jump: {{target: leader(t/0), by: {by}}}")
    ).spec.faults[0]
    assert str(fault) == f"clock_jump leader(t/0) by {said}"
    assert fault.needs == {Need.CLOCKS}


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("0s", "cannot be witnessed"),
        ("-999ms", "cannot be witnessed"),
        ("25h", "at most 24h"),
        ("--1h", "with a minus for the past"),
        ("60", "lacks a unit"),
        ("[1h]", "expected a text such as +1h"),
    ],
)
def test_what_is_refused(load_text: Load, by: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as refused:
        load_text(FRAME.format(backend="process", fault=f"clock_jump: {{target: leader(t/0), by: {by}}}"))
    (problem,) = refused.value.problems
    assert problem.path == "faults[1].clock_jump.by"
    assert problem.line == 5
    assert said in problem.message


def test_other_peoples_clocks_are_out_of_reach(load_text: Load) -> None:
    with pytest.raises(InvalidExperiment, match="are out of reach"):
        load_text(FRAME.format(backend="attach", fault="clock_jump: {target: leader(t/0), by: 1h}"))
