"""Expectations over repeats: the cells to which each applies, and the order of runs that are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.base.units import FROM_FILE
from ackproof.plan.cases import case_from_json, case_to_json, cases
from ackproof.run.options import BatchOptions, plan_batch

from .conftest import Load

TEXT = """\
name: t
topics: {{orders: {{}}}}
workload: {{duration: 1s}}
matrix:
  workload.producers.acks: [0, 1, all]
  workload.producers.linger: [5ms, 20ms]
expect:
{expect}
repeat: 4
seed: 7
"""


def test_no_case_is_judged_by_it(load_text: Load) -> None:
    plan = load_text(
        TEXT.format(expect="  - {latency(p99): p95 < 6s, lost: 0}\n  - {latency(max): mean < 6s}")
    )
    for case in cases(plan):
        assert [list(one.bounds) for one in case.experiment.expect] == [["lost"]]
        assert case_from_json(case_to_json(case)) == case
    again = type(plan.spec).model_validate(plan.spec.data(), context=FROM_FILE)
    assert again.expect == plan.spec.expect, "written as it was read"


def test_who_goes_on_until_it_is_decided_is_told_of_the_most_repeats_alone(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(TEXT.format(expect="  - {given: {acks: 1, linger: 5ms}, latency(p99): p95 < 6s}"))

    def warned(at_most: int | None) -> list[str]:
        told: list[str] = []
        plan_batch(BatchOptions((path,), at_most=at_most), told.append)
        return told

    assert ["has no interval that is bounded: it takes 59" in one for one in warned(None)] == [True]
    assert warned(59) == []
    assert warned(58) == ["--at-most 58: latency(p99) p95 < 6s, acks=1,linger=5ms needs 59 repeats or more"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "e.yaml"
    path.write_text(TEXT.format(expect="  - {latency(p99): mean of acks=all over acks=1 < 2}"))
    return path


def test_compared_runs_take_turns_in_an_order_of_the_seed(file: Path, tmp_path: Path) -> None:
    planned = plan_batch(BatchOptions((file,)))
    order = [case.id for _, case in planned.order()]
    rounds = [order[at : at + 6] for at in range(0, 24, 6)]
    assert sorted(order) == sorted(case.id for _, case in planned.cases)
    assert [{one.rpartition("#")[2] for one in each} for each in rounds] == [{"1"}, {"2"}, {"3"}, {"4"}]
    cells = {tuple(one.rpartition("#")[0] for one in each) for each in rounds}
    assert len(cells) > 1, "each round has an order of its own"
    assert order == [case.id for _, case in plan_batch(BatchOptions((file,))).order()]
    assert order != [case.id for _, case in plan_batch(BatchOptions((file,), seed=8)).order()]
    lines = list(planned.describe())
    assert sum(line.startswith("expected over 4 repeats: latency(p99) mean of") for line in lines) == 2
    assert lines[-4:] == ["  " + "  ".join(each) for each in rounds]


def test_what_is_not_compared_keeps_the_order_of_the_matrix(file: Path) -> None:
    file.write_text(TEXT.format(expect="  - {lost: 0}"))
    planned = plan_batch(BatchOptions((file,)))
    assert planned.order() == list(planned.cases)
    assert list(planned.describe()) == []


def test_what_is_left_out_is_said(file: Path) -> None:
    told: list[str] = []
    planned = plan_batch(
        BatchOptions((file,), only=("acks=all,linger=5ms", "acks=1,linger=5ms")), told.append
    )
    assert [one.cells for _, one in planned.over_repeats] == [("acks=all,linger=5ms", "acks=1,linger=5ms")]
    assert [text.partition(": ")[2] for text in told] == [
        "latency(p99) mean of acks=all over acks=1 < 2, acks=all,linger=20ms and acks=1,linger=20ms: "
        "it needs the case acks=all,linger=20ms#1, which is not selected"
    ]


def test_further_repeats_are_those_that_a_longer_plan_has(file: Path) -> None:
    planned = plan_batch(BatchOptions((file,)))
    more = planned.further(file, ["acks=1,linger=5ms"], 4, 6)
    longer = {case.id: case for _, case in plan_batch(BatchOptions((file,), repeat=6)).cases}
    assert [case.id for _, case in more] == ["acks=1,linger=5ms#5", "acks=1,linger=5ms#6"]
    assert all(case.seed == longer[case.id].seed for _, case in more)
