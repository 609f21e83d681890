"""Settings that go together in a matrix, what is excluded and what is included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.plan import InvalidExperiment, Plan, cases, load
from ackproof.plan.cases import case_from_json, case_to_json
from ackproof.plan.schedule import describe

Load = Callable[[str], Plan]
HEAD = "name: n\ntopics: {t: {}}\nmatrix:\n"
MODES = (
    "  workload.producers:\n    - {name: plain, acks: 1}\n    - {name: safe, acks: all, idempotence: true}\n"
)
SIZES = "  topics.t.config[min.insync.replicas]: [1, 2]\n"


def cells(load_text: Load, matrix: str) -> dict[str, tuple[str, bool, str | None]]:
    """Of each case its acks, idempotence and min.insync.replicas, by its name."""
    return {
        cell.name: (
            cell.experiment.workload.producers.acks,
            cell.experiment.workload.producers.idempotence,
            cell.experiment.topics["t"].config.get("min.insync.replicas"),
        )
        for cell in load_text(HEAD + matrix).cells
    }


def test_beside_a_free_axis(load_text: Load) -> None:
    assert cells(load_text, MODES + SIZES) == {
        "plain,min.insync.replicas=1": ("1", False, "1"),
        "plain,min.insync.replicas=2": ("1", False, "2"),
        "safe,min.insync.replicas=1": ("all", True, "1"),
        "safe,min.insync.replicas=2": ("all", True, "2"),
    }


def test_without_names_and_across_groups(load_text: Load) -> None:
    """A name of one's own as key, settings by their whole path; what an item leaves out is as the file says."""
    matrix = (
        "  modes:\n    - {workload.producers.acks: 1, topics.t.config.min.insync.replicas: 1}\n"
        "    - {workload.producers.acks: all}\n"
    )
    assert cells(load_text, matrix) == {
        "acks=1,min.insync.replicas=1": ("1", False, "1"),
        "acks=all": ("all", False, None),
    }
    first, second = cases(load_text(HEAD + matrix))
    assert second.cell == "acks=all"
    assert first.settings.keys() == second.settings.keys()
    assert second.settings["topics.t.config[min.insync.replicas]"] is None
    assert "  topics.t.config[min.insync.replicas] = not set" in describe(second)


def test_the_whole_of_a_case_holds_its_name(load_text: Load) -> None:
    (case, *_) = cases(load_text(HEAD + MODES + SIZES))
    assert case.cell == "plain"
    assert case_from_json(case_to_json(case)) == case
    assert [one.cell for one in cases(load_text(HEAD + SIZES))] == ["", ""]


@pytest.mark.parametrize(
    ("excluded", "left"),
    [
        ("{name: plain}", ["safe,min.insync.replicas=1", "safe,min.insync.replicas=2"]),
        ("{acks: 1, min.insync.replicas: 2}", ["plain,min.insync.replicas=1", "safe,min.insync.replicas=1",
                                               "safe,min.insync.replicas=2"]),
        ("{workload.producers: plain, min.insync.replicas: 2}",
         ["plain,min.insync.replicas=1", "safe,min.insync.replicas=1", "safe,min.insync.replicas=2"]),
        ("{min.insync.replicas: 1}", ["plain,min.insync.replicas=2", "safe,min.insync.replicas=2"]),
    ],
)  # fmt: skip
def test_excluded(load_text: Load, excluded: str, left: list[str]) -> None:
    assert list(cells(load_text, f"{MODES}{SIZES}  exclude: [{excluded}]\n")) == left


def test_excluded_by_the_names_of_two_items(load_text: Load) -> None:
    """The items themselves, not whatever has their settings."""
    twin = "    - {name: twin, acks: 1, idempotence: false}\n"
    sizes = "  how: [{name: one, cluster.brokers: 3}, {name: two, cluster.brokers: 5}]\n"
    matrix = f"{MODES}{twin}{sizes}  exclude: [{{workload.producers: plain, how: two}}]\n"
    assert list(cells(load_text, matrix)) == ["plain,one", "safe,one", "safe,two", "twin,one", "twin,two"]


def test_included_as_in_github_actions(load_text: Load) -> None:
    """The example of its documentation: what fits is added, what would overwrite is a further case."""
    color, shape = "topics.t.config.retention.ms", "topics.t.config.segment.ms"
    matrix = (
        "  cluster.brokers: [3, 4]\n  cluster.controllers: [1, 3]\n  include:\n"
        f"    - {{{color}: 1}}\n    - {{{color}: 2, cluster.controllers: 1}}\n"
        f"    - {{cluster.brokers: 3, {shape}: 9}}\n    - {{cluster.brokers: 5}}\n"
        f"    - {{cluster.brokers: 5, cluster.controllers: 3}}\n"
    )
    made = [
        (
            cell.experiment.cluster.brokers,
            cell.experiment.cluster.controllers,
            cell.experiment.topics["t"].config.get("retention.ms"),
            cell.experiment.topics["t"].config.get("segment.ms"),
        )
        for cell in load_text(HEAD + matrix).cells
    ]
    assert made == [
        (3, 1, "2", "9"),
        (3, 3, "1", "9"),
        (4, 1, "2", None),
        (4, 3, "1", None),
        (5, 1, None, None),
        (5, 3, None, None),
    ]


def test_nothing_but_included(load_text: Load) -> None:
    matrix = "  include:\n    - {name: a, workload.producers.acks: 1}\n    - {name: b}\n"
    assert {name: cell[0] for name, cell in cells(load_text, matrix).items()} == {"a": "1", "b": "all"}


def test_expectations_speak_of_what_goes_together(load_text: Load) -> None:
    plan = load_text(HEAD + MODES + "expect:\n  - {given: {idempotence: true}, duplicate: 0}\n")
    assert [len(cell.experiment.expect) for cell in plan.cells] == [0, 1]


def test_it_cannot_be_set_beside(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(HEAD + MODES, "utf-8")
    with pytest.raises(
        BadInput, match=r"the matrix varies workload\.producers\.acks; choose among its cases"
    ):
        load(tmp_path / "e.yaml", ["workload.producers.acks=0"])


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ("  workload.producers: [‸1, {acks: 1}]\n", "expected settings that go together"),
        ("  workload.producers: [{‸akcs: 1}]\n", "has no field 'akcs' (did you mean 'workload.producers.acks'?)"),
        ("  workload.producers: [{acks: ‸[1]}]\n", "expected a single value, not a list"),
        ("  workload.producers: [{name: ‸a b, acks: 1}]\n", "expected a name of letters"),
        ("  workload.producers: [{acks: 1}, {acks: ‸2}]\n", "expected 0, 1 or all"),
        ("  workload.producers: [{acks: 1}, ‸{acks: 1}]\n", "'acks=1' is the name of another case already"),
        ("  a:\n  - {name: x, workload.producers.acks: 1}\n  - ‸{name: x, workload.producers.acks: 0}\n",
         "'x' is the name of another case already"),
        ("  modes: [{‸acks: 1}]\n", "did you mean 'workload.producers.acks'?"),
        ("  ‸work.producers: [{acks: 1}]\n", "expected a group of settings such as workload.producers, or a name"),
        ("  ‸workload.producers: [{acks: 1}]\n  workload.producers.acks: [0]\n", "is varied twice"),
        ("  workload.producers: [{name: bad, acks: 1, idempotence: ‸true}, {acks: all}]\n", "needs acks: all"),
        ("  workload.producers.acks: [1]\n  exclude: [‸{acks: 0}]\n", "no combination has all of these"),
        ("  workload.producers.acks: [1]\n  ‸exclude: [{acks: 1}]\n", "nothing is left"),
        ("  workload.producers.acks: [1]\n  exclude: [{‸linger: 1s}]\n", "did you mean 'workload.producers.linger'?"),
        ("  workload.producers: [{name: plain, acks: 1}]\n  exclude: [{workload.producers: ‸plan}]\n",
         "'workload.producers' has no item of that name, but plain (did you mean 'plain'?)"),
        ("  workload.producers.acks: [1]\n  include: ‸{acks: 0}\n", "expected a list"),
        ("  workload.producers.acks: [1]\n  include: [‸0]\n", "expected settings that go together"),
    ],
)  # fmt: skip
def test_what_is_wrong(load_text: Load, matrix: str, said: str) -> None:
    before, after = (HEAD + matrix).split("‸")
    with pytest.raises(InvalidExperiment) as refused:
        load_text(before + after)
    (problem,) = refused.value.problems
    if "varied twice" not in said:
        assert (problem.line, problem.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert said in str(problem)


def test_a_problem_of_some_is_shown_at_what_brings_it_about(load_text: Load) -> None:
    """Where no field of the item is to blame alone, the item is."""
    matrix = "  cluster: [{name: few, brokers: 2}, {name: many, brokers: 3}]\n" + SIZES
    with pytest.raises(InvalidExperiment) as refused:
        load_text(HEAD + matrix)
    (problem,) = refused.value.problems
    assert (problem.line, problem.column) == (4, 13)
    assert problem.message.endswith("(with few)")


def test_an_expectation_names_settings_that_go_together(load_text: Load) -> None:
    expect = "expect:\n  - {given: {workload.producers: %s, min.insync.replicas: 2}, lost: 0}\n"
    plan = load_text(HEAD + MODES + SIZES + expect % "safe")
    assert [cell.name for cell in plan.cells if cell.experiment.expect] == ["safe,min.insync.replicas=2"]
    for case in cases(plan):
        assert case_from_json(case_to_json(case)) == case
    with pytest.raises(
        InvalidExperiment, match=r"no item of that name, but plain, safe \(did you mean 'safe'"
    ):
        load_text(HEAD + MODES + SIZES + expect % "save")


def test_assignments_are_varied(load_text: Load) -> None:
    matrix = "  topics.t.assignment: [[[1, 2, 3]], [[2, 3], [3, 1]]]\n  workload.producers.acks: [1, all]\n"
    matrix += "  exclude: [{assignment: [[1, 2, 3]], acks: 1}]\n"
    plan = load_text(HEAD + matrix + "expect:\n  - {given: {assignment: 2-3+3-1}, lost: 0}\n")
    found = {cell.name: (cell.experiment.topics["t"], bool(cell.experiment.expect)) for cell in plan.cells}
    assert {name: (topic.partitions, topic.replication_factor, e) for name, (topic, e) in found.items()} == {
        "assignment=1-2-3,acks=all": (1, 3, False),
        "assignment=2-3+3-1,acks=1": (2, 2, True),
        "assignment=2-3+3-1,acks=all": (2, 2, True),
    }
    for case in cases(plan):
        assert case_from_json(case_to_json(case)) == case
    together = "  layouts: [{name: one, topics.t.assignment: [[1, 2]]}, {name: two, topics.t.assignment: [[2], [3]]}]\n"
    assert [cell.name for cell in load_text(HEAD + together).cells] == ["one", "two"]


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ("  topics.t.assignment: [[[1, 9, 3]]]\n", "broker 9 does not exist"),
        ("  topics.t.partitions: [[1, 2]]\n", "expected a single value, not a list"),
        ("  topics.t.assignment: [[1, 2]]\n", "expected a list"),
    ],
)
def test_what_is_no_assignment(load_text: Load, matrix: str, said: str) -> None:
    with pytest.raises(InvalidExperiment, match=said):
        load_text(HEAD + matrix)
