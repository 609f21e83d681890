"""Expectations over repeats: which cells they are of, and in which order compared runs take place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.base.units import FROM_FILE
from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import Plan, load
from ackproof.plan.cases import case_from_json, case_to_json, cases
from ackproof.run.options import BatchOptions, plan_batch

Load = Callable[[str], Plan]
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


def matched(load_text: Load, *expect: str) -> list[tuple[str, tuple[str, ...]]]:
    plan = load_text(TEXT.format(expect="\n".join(f"  - {one}" for one in expect)))
    return [(one.demand, one.cells) for one in plan.over_repeats]


def test_each_cell_of_its_settings(load_text: Load) -> None:
    text = "{given: {acks: all}, latency(p99): p95 < 6s}"
    assert matched(load_text, text) == [
        ("p95 < 6s", ("acks=all,linger=5ms",)),
        ("p95 < 6s", ("acks=all,linger=20ms",)),
    ]


def test_a_cell_is_held_beside_the_one_that_is_else_like_it(load_text: Load) -> None:
    demand = "mean of acks=all over acks=1 in 1.1..3"
    assert matched(load_text, f"latency(p99): {demand}") == [
        (demand, ("acks=all,linger=5ms", "acks=1,linger=5ms")),
        (demand, ("acks=all,linger=20ms", "acks=1,linger=20ms")),
    ]


def test_several_settings_choose_one_pair(load_text: Load) -> None:
    demand = "median of acks=all,linger=20ms minus acks=0,linger=5ms < 1s"
    text = f'latency(p99): "{demand}"'
    assert matched(load_text, text) == [(demand, ("acks=all,linger=20ms", "acks=0,linger=5ms"))]


def test_names_choose_settings_that_go_together(load_text: Load) -> None:
    plan = load_text(
        "name: t\ntopics: {orders: {}}\nmatrix:\n  workload.producers:\n"
        "    - {name: plain, acks: 1}\n    - {name: safe, acks: all, idempotence: true}\n"
        "expect:\n  - latency(p99): mean of safe over plain < 2\nrepeat: 2\n"
    )
    assert [one.cells for one in plan.over_repeats] == [("safe", "plain")]


def test_no_case_is_judged_by_it(load_text: Load) -> None:
    plan = load_text(
        TEXT.format(expect="  - {latency(p99): p95 < 6s, lost: 0}\n  - {latency(max): mean < 6s}")
    )
    for case in cases(plan):
        assert [list(one.bounds) for one in case.experiment.expect] == [["lost"]]
        assert case_from_json(case_to_json(case)) == case
    again = type(plan.spec).model_validate(plan.spec.data(), context=FROM_FILE)
    assert again.expect == plan.spec.expect, "written as it was read"


def test_one_run_is_no_repeats(load_text: Load) -> None:
    for demand, count in (("mean of acks=all minus acks=1 < 2s", 20), ("p95 < 6s", 59), ("p95 > 6s", 20)):
        text = TEXT.format(expect=f"  - {{latency(p99): {demand}}}").replace("repeat: 4", "repeat: 1")
        remedy = (
            rf"each case runs once; write repeat: {count}, or: ackproof run \S*e\.yaml --repeat {count}\n"
        )
        with pytest.raises(InvalidExperiment, match=remedy):
            load_text(text)


def test_how_often_can_be_said_with_the_call(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(TEXT.format(expect="  - {latency(p99): p95 < 6s}").replace("repeat: 4", "repeat: 1"))
    assert {one.repeats for one in load(path, repeat=3).over_repeats} == {3}
    with pytest.raises(InvalidExperiment, match="runs once"):
        load(path)


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
        "acks=all,linger=20ms#1 is left out"
    ]


def test_further_repeats_are_those_that_a_longer_plan_has(file: Path) -> None:
    planned = plan_batch(BatchOptions((file,)))
    more = planned.further(file, ["acks=1,linger=5ms"], 4, 6)
    longer = {case.id: case for _, case in plan_batch(BatchOptions((file,), repeat=6)).cases}
    assert [case.id for _, case in more] == ["acks=1,linger=5ms#5", "acks=1,linger=5ms#6"]
    assert all(case.seed == longer[case.id].seed for _, case in more)
