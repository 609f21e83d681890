"""What the witnesses of requests believe, of a question and the control beside it."""

from __future__ import annotations

import pytest

from ackproof.faults.requests.injection import Closed, Late, Look, Told, Twice, Unanswered, Witness
from ackproof.network.requests.questions import Asked, How

ANSWERED = Asked("answered", 0.003, 1)
HELD = Unanswered("holds", arrives=False)
UNHEARD = Unanswered("loses", arrives=True)
TOLD = Told("answers", code=41, arrives=False)
STAMPED = Told("answers", code=41, arrives=True)
TWICE = Twice("repeats", later_s=0.0)
AGAIN = Twice("repeats", later_s=0.4)
LATE = Late("delays", least_s=0.3, arrives=False, look_after_s=0.15)


def asked(how: How, seconds: float = 0.003, arrived: int = 1) -> Asked:
    return Asked(how, seconds, arrived)


@pytest.mark.parametrize(
    ("witness", "seen"),
    [
        (HELD, asked("silent", 0.8, 0)),
        (UNHEARD, asked("silent", 0.8, 1)),
        (Closed("closes at"), asked("closed", 0.01, 0)),
        (LATE, asked("answered", 0.31, 0)),
        (TWICE, asked("answered", 0.004, 2)),
        (AGAIN, Asked("answered", 0.004, 2, arrived_s=0.41)),
        (TOLD, Asked("answered", 0.004, 0, 41)),
        (STAMPED, Asked("answered", 0.004, 1, 41)),
        (Witness(), ANSWERED),
    ],
)
def test_each_sees_its_own_and_no_other(witness: Witness, seen: Asked) -> None:
    assert witness.sees(Look(seen, ANSWERED))
    # a line that carries nothing at all is another fault's doing
    for how in ("silent", "closed", "refused"):
        assert not witness.sees(Look(seen, asked(how)))


@pytest.mark.parametrize(
    ("witness", "seen"),
    [
        (HELD, ANSWERED),
        (HELD, asked("silent", 0.8, 1)),
        (HELD, asked("closed", 0.1, 0)),
        (UNHEARD, asked("silent", 0.8, 0)),
        (UNHEARD, ANSWERED),
        (Closed("closes at"), ANSWERED),
        (Closed("closes at"), asked("silent", 2.0, 0)),
        (LATE, ANSWERED),
        (LATE, asked("answered", 0.31, 1)),
        (TWICE, ANSWERED),
        (AGAIN, Asked("answered", 0.004, 2, arrived_s=0.02)),
        (AGAIN, Asked("answered", 0.004, 1, arrived_s=0.7)),
        (TOLD, Asked("answered", 0.004, 1, 41)),
        (TOLD, Asked("answered", 0.004, 0, 42)),
        (TOLD, Asked("answered", 0.004, 0)),
        (STAMPED, Asked("answered", 0.004, 0, 41)),
        (STAMPED, Asked("answered", 0.004, 1)),
        (Witness(), asked("silent", 2.0, 0)),
    ],
)
def test_none_is_content_with_less(witness: Witness, seen: Asked) -> None:
    assert not witness.sees(Look(seen, ANSWERED))


def test_a_machine_that_is_slow_all_over_is_no_delay() -> None:
    assert not LATE.sees(Look(asked("answered", 0.5, 0), asked("answered", 0.4)))
