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
            rf"each case runs once; write repeat: {count}, or: ackproof run \S*e\.yaml --repeat {count}, "
            rf"or until it is decided: ackproof run \S*e\.yaml --repeat 2 --until-decided --at-most {2 * count}\n"
        )
        with pytest.raises(InvalidExperiment, match=remedy):
            load_text(text)


@pytest.mark.parametrize(
    ("demand", "needed"),
    [("p95 < 6s", 59), ("p90 < 6s", 29), ("p99 < 6s", 299), ("median < 6s", 6), ("median in 1s..6s", 6)],
)
def test_too_few_repeats_to_decide_are_told_with_the_number_that_can(
    load_text: Load, demand: str, needed: int
) -> None:
    def warned(repeats: int) -> list[str]:
        text = TEXT.format(expect=f"  - {{latency(p99): {demand}}}").replace(
            "repeat: 4", f"repeat: {repeats}"
        )
        return [one.message for one in load_text(text).warnings]

    name = demand.partition(" ")[0]
    (told,) = warned(3)
    assert told.startswith(
        f"over 3 repeats {name} has no interval that is bounded: it takes {needed}; write repeat: "
    )
    assert f"write repeat: {needed}, or: ackproof run " in told
    assert told.endswith(f"--until-decided --at-most {2 * needed}")
    assert warned(needed - 1)[0].startswith(f"over {needed - 1} repeats {name} ")
    assert warned(needed) == []


def test_a_statistic_that_no_experiment_can_decide(load_text: Load) -> None:
    text = TEXT.format(expect="  - {latency(p99): p99.9 < 6s}")
    (told,) = load_text(text).warnings
    assert "it takes 2995; no experiment has more than 1000" in told.message


def test_few_repeats_are_enough_for_what_does_not_ask_for_more(load_text: Load) -> None:
    for demand in ("mean < 6s", "max < 6s", "p95 > 6s"):
        assert load_text(TEXT.format(expect=f"  - {{latency(p99): {demand}}}")).warnings == ()


def test_who_goes_on_until_it_is_decided_is_told_of_the_most_repeats_alone(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(TEXT.format(expect="  - {given: {acks: 1, linger: 5ms}, latency(p99): p95 < 6s}"))

    def warned(at_most: int | None) -> list[str]:
        told: list[str] = []
        plan_batch(BatchOptions((path,), at_most=at_most), told.append)
        return told

    assert ["has no interval that is bounded: it takes 59" in one for one in warned(None)] == [True]
    assert warned(59) == []
    assert warned(58) == ["--at-most 58: latency(p99) p95 < 6s, acks=1,linger=5ms takes 59 repeats or more"]


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
