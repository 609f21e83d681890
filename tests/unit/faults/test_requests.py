"""Witnesses of request faults: the outcomes of a probe and its control request that each accepts as evidence."""

from __future__ import annotations

import pytest

from ackproof.faults.requests.injection import RequestObservation, RequestWitness
from ackproof.network.requests.questions import How, QuestionOutcome

ANSWERED = QuestionOutcome("answered", 0.003, 1)
HELD = RequestWitness("holds", how="silent", arrives=False)
UNHEARD = RequestWitness("loses", how="silent", arrives=True)
TOLD = RequestWitness("answers", code=41, arrives=False)
STAMPED = RequestWitness("answers", code=41, arrives=True)
TWICE = RequestWitness("repeats", wanted=2, later_s=0.0)
CLOSED = RequestWitness("closes at", how="closed")
AGAIN = RequestWitness("repeats", wanted=2, later_s=0.4)
LATE = RequestWitness("delays", least_s=0.3, arrives=False, look_after_s=0.15)


def make_outcome(how: How, seconds: float = 0.003, arrived: int = 1) -> QuestionOutcome:
    return QuestionOutcome(how, seconds, arrived)


@pytest.mark.parametrize(
    ("witness", "seen"),
    [
        (HELD, make_outcome("silent", 0.8, 0)),
        (UNHEARD, make_outcome("silent", 0.8, 1)),
        (CLOSED, make_outcome("closed", 0.01, 0)),
        (LATE, make_outcome("answered", 0.31, 0)),
        (TWICE, make_outcome("answered", 0.004, 2)),
        (AGAIN, QuestionOutcome("answered", 0.004, 2, arrived_s=0.41)),
        (TOLD, QuestionOutcome("answered", 0.004, 0, 41)),
        (STAMPED, QuestionOutcome("answered", 0.004, 1, 41)),
        (RequestWitness(), ANSWERED),
    ],
)
def test_each_sees_its_own_and_no_other(witness: RequestWitness, seen: QuestionOutcome) -> None:
    assert witness.sees(RequestObservation(seen, ANSWERED))
    # a line that carries nothing at all is another fault's doing
    for how in ("silent", "closed", "refused"):
        assert not witness.sees(RequestObservation(seen, make_outcome(how)))


@pytest.mark.parametrize(
    ("witness", "seen"),
    [
        (HELD, ANSWERED),
        (HELD, make_outcome("silent", 0.8, 1)),
        (HELD, make_outcome("closed", 0.1, 0)),
        (UNHEARD, make_outcome("silent", 0.8, 0)),
        (UNHEARD, ANSWERED),
        (CLOSED, ANSWERED),
        (CLOSED, make_outcome("silent", 2.0, 0)),
        (LATE, ANSWERED),
        (LATE, make_outcome("answered", 0.31, 1)),
        (TWICE, ANSWERED),
        (AGAIN, QuestionOutcome("answered", 0.004, 2, arrived_s=0.02)),
        (AGAIN, QuestionOutcome("answered", 0.004, 1, arrived_s=0.7)),
        (TOLD, QuestionOutcome("answered", 0.004, 1, 41)),
        (TOLD, QuestionOutcome("answered", 0.004, 0, 42)),
        (TOLD, QuestionOutcome("answered", 0.004, 0)),
        (STAMPED, QuestionOutcome("answered", 0.004, 0, 41)),
        (STAMPED, QuestionOutcome("answered", 0.004, 1)),
        (RequestWitness(), make_outcome("silent", 2.0, 0)),
    ],
)
def test_none_is_content_with_less(witness: RequestWitness, seen: QuestionOutcome) -> None:
    assert not witness.sees(RequestObservation(seen, ANSWERED))


def test_a_machine_that_is_slow_all_over_is_no_delay() -> None:
    assert not LATE.sees(RequestObservation(make_outcome("answered", 0.5, 0), make_outcome("answered", 0.4)))
