"""Crashes, starvation and a lost quorum as a file says them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import Plan

Load = Callable[[str], Plan]

FRAME = """\
name: x
cluster: {cluster}
topics: {{t: {{}}}}
faults:
  - {fault}
    at: 1s
"""


def text(fault: str, cluster: str = "{controllers: 3}") -> str:
    return FRAME.format(fault=fault, cluster=cluster)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("crash_loop: {target: leader(t/0), times: 5, up: 1s}", "crash_loop leader(t/0)"),
        ("kill_starting: {target: controller}", "kill_starting controller"),
        ("out_of_memory: {target: broker(2)}", "out_of_memory broker(2)"),
        ("starve: {target: leader(t/0), share: 0.05}", "starve leader(t/0)"),
        ("lose_quorum: {}", "lose_quorum by kill"),
        ("lose_quorum: {by: pause}", "lose_quorum by pause"),
        ("remove_controller: {target: controller}", "remove_controller controller"),
    ],
)
def test_what_there_is(load_text: Load, fault: str, said: str) -> None:
    assert str(load_text(text(fault)).spec.faults[0]) == said


@pytest.mark.parametrize(
    ("fault", "where", "said"),
    [
        ("crash_loop: {target: leader(t/0), times: 1}", "crash_loop.times", "at least 2"),
        ("crash_loop: {target: leader(t/0), up: 1}", "crash_loop.up", "lacks a unit"),
        ("kill_starting: {}", "kill_starting.target", "missing"),
        ("out_of_memory: {target: controller}", "out_of_memory.target", "takes no requests of clients"),
        ("starve: {target: leader(t/0), share: 10}", "starve.share", "at most 0.9"),
        ("starve: {target: leader(t/0), share: 0}", "starve.share", "at least 0.01"),
        ("remove_controller: {target: controllers}", "remove_controller.target", "not one controller"),
        ("lose_quorum: {by: stop}", "lose_quorum.by", "'kill'"),
    ],
)
def test_what_is_refused(load_text: Load, fault: str, where: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as refused:
        load_text(text(fault))
    (problem,) = refused.value.problems
    assert problem.path == f"faults[1].{where}"
    assert said in problem.message


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("{combined: true}", "with combined nodes the brokers would go too"),
        ('{kafka: "3.9.2", mode: zookeeper}', "aim kill or pause at zookeeper"),
    ],
)
def test_where_there_is_no_quorum_of_controllers(load_text: Load, cluster: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as refused:
        load_text(text("lose_quorum: {}", cluster))
    (problem,) = refused.value.problems
    assert problem.path == "faults[1].lose_quorum"
    assert said in problem.message


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("{controllers: 1}", "it takes 3 controllers or more"),
        ('{kafka: "4.0.2", controllers: 3}', "it takes 4.1 or later"),
    ],
)
def test_where_no_controller_can_be_removed(load_text: Load, cluster: str, said: str) -> None:
    with pytest.raises(InvalidExperiment, match=said):
        load_text(text("remove_controller: {target: controller}", cluster))
