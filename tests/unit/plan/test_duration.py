"""How long it takes, as an estimate: load and faults as the file has them, and what each run takes beside."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.base.units import rough_duration
from ackproof.plan import Plan
from ackproof.plan.cases import cases
from ackproof.plan.doubts import estimate, load_s

Load = Callable[[str], Plan]
TEXT = """\
name: t
topics: {orders: {}}
workload: {duration: 10s}
"""
FAULTS = """\
faults:
  - {pause: broker, at: 8s, for: 4s}
  - {kill: broker, after: {fault: 1, by: 3s}, restart_after: 9s}
"""


@pytest.mark.parametrize(("text", "seconds"), [(TEXT, 10), (TEXT + FAULTS, 20)])
def test_the_load_lasts_until_all_has_healed(load_text: Load, text: str, seconds: float) -> None:
    (case,) = cases(load_text(text))
    assert load_s(case.planned) == seconds


def test_a_storm_lasts_as_long_as_what_it_drew(load_text: Load) -> None:
    storm = "faults:\n  - {storm: {count: 20, gap: 2s..2s, lasting: 1s..1s}, at: 1s}\n"
    (case,) = cases(load_text(TEXT + storm))
    assert load_s(case.planned) >= 1 + 19 * 2


def test_each_repeat_of_each_cell_counts(load_text: Load) -> None:
    text = TEXT + "matrix:\n  workload.producers.acks: [1, all]\nrepeat: 30\n"
    (told,) = estimate(cases(load_text(text)))
    assert told == (
        "estimate: about 22 min for 60 run(s): 10 min of load, 12 min of start-up, final read and audit; longer on a "
        "busy machine"
    )
    (one,) = estimate(cases(load_text(TEXT)))
    assert one.startswith("estimate: about 42 s for 1 run(s): 10 s of load, ")
    assert list(estimate(cases(load_text(TEXT + "backend: model\n")))) == []


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (99.4, "99 s"), (180, "3 min"), (9000, "2.5 h")])
def test_a_duration_in_words(seconds: float, text: str) -> None:
    assert rough_duration(seconds) == text
