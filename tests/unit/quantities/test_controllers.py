"""When a controller was elected, and how many were, on planted metadata logs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

from ackproof.quantities.answer import measured
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.value import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.bounds import WHOLE
from ackproof.rundir.timeline import EventKind

from .conftest import Make, decided, ended, event, life


def value(evidence: Evidence, text: str) -> Value:
    return measured(evidence, parse_ask(text), WHOLE)


@pytest.mark.parametrize(
    ("epochs", "asked_s", "expected"),
    [
        ([(0, 1), (1, 1), (3.5, 2), (9, 2)], 2, Value(1.5, 1.501)),
        ([(0, 1), (2, 2)], 2, Value(0, 0.001)),
        ([(1.999, 1), (3, 2)], 2, Value(1, 1.001)),
        ([(0, 1), (2, 1), (3.5, 2)], 2.0005, Value(1.4995, 1.5005)),
        ([(0, 1), (2, 2), (3.5, 3)], 2.0005, Value(0, 1.5005)),
        (
            [(0, 1), (2, 2)],
            2.0005,
            Value(0, math.inf, "a controller began within a moment of when the fault was asked for"),
        ),
        (
            [(0, 1), (9, 1)],
            2,
            Value(8, math.inf, "no controller began until 10.000 s of the run, and then nobody looked"),
        ),
        ([(3, 1), (4, 2)], 2, Value.unknown("the metadata log begins after the fault")),
    ],
    ids=["later", "at once", "just before", "nothing new within its moment", "one within its moment, and a later one",
         "within its moment", "never", "no log before"],
)  # fmt: skip
def test_when_a_controller_was_elected(
    make: Make, epochs: Sequence[tuple[float, int]], asked_s: float, expected: Value
) -> None:
    """A record is dated by a whole millisecond, cut off."""
    log = ended([decided(number, at, epoch=epoch) for number, (at, epoch) in enumerate(epochs)])
    found = value(make(metadata=log, events=life(asked_s, asked_s)), "time_to(controller elected, fault 1)")
    assert (found.low, found.high, found.why) == (
        pytest.approx(expected.low),
        pytest.approx(expected.high),
        expected.why,
    )


def test_controllers_are_dated_by_a_wall_clock_that_must_stand(make: Make) -> None:
    asked = "time_to(controller elected, fault 1)"
    log = ended([decided(0), decided(1, 1), decided(2, 3.5, epoch=2), decided(3, 9, epoch=2)])
    jumped = make(metadata=log, events=[*life(2, 2), event(EventKind.NOTE, 5, wall_ns=5)])
    assert value(jumped, asked).why.startswith("the wall clock, by which the metadata log is dated, moved by")
    moved = make(metadata=log, events=life(2, 2, kind="clock_jump"))
    assert value(moved, asked).why == "a fault moved wall clocks, by which the metadata log is dated"


def test_controllers_that_change_are_counted_by_their_epochs(make: Make) -> None:
    records = [decided(0, epoch=1), decided(1, epoch=3), decided(2, epoch=3)]
    assert value(make(metadata=ended(list(records))), "controller_changes") == Value.exactly(1)
    cut = value(make(metadata=list(records)), "controller_changes")
    assert (cut.low, cut.high) == (1, math.inf)
    assert json.loads(records[1].model_dump_json())["epoch"] == 3
