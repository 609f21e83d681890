"""What is to be looked at: metrics where a backend has them, quantities of them where they are scraped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.backends import Need
from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import Plan, cases

Load = Callable[[str], Plan]

TEXT = """\
name: x
backend: {backend}
topics: {{orders: {{}}}}
workload: {{duration: 5s}}
observe: {{metrics: {metrics}}}
expect:
  - {expect}
"""
URP = "under_replicated_partitions"


def text(backend: str = "process", metrics: str = "true", expect: str = "lost: 0") -> str:
    return TEXT.format(backend=backend, metrics=metrics, expect=expect)


@pytest.mark.parametrize("backend", ["process", "docker", "auto"])
def test_a_case_that_observes_metrics_needs_exporters(load_text: Load, backend: str) -> None:
    (case,) = cases(load_text(text(backend)))
    assert case.needs == {Need.METRICS}
    (case,) = cases(load_text(text(backend, "false")))
    assert case.needs == set()


@pytest.mark.parametrize(
    ("backend", "why"),
    [("attach", "no exporter can be put into brokers"), ("model", "its brokers are no processes")],
)
def test_who_has_no_metrics_is_refused(load_text: Load, backend: str, why: str) -> None:
    load_text(text(backend, "false"))
    with pytest.raises(InvalidExperiment) as raised:
        load_text(text(backend))
    (problem,) = raised.value.problems
    assert problem.path == "observe.metrics"
    assert f"not possible on the backend {backend}, because {why}" in problem.message


@pytest.mark.parametrize(
    ("metrics", "expect", "said"),
    [
        ("false", f"metric({URP}): never > 0", "write observe: {metrics: true}"),
        (
            "true",
            f"metric({URP}, node 9): never > 0",
            "there is no node 9 of Kafka's; there are 1, 2, 3, 101",
        ),
        ("true", f'"time_to(metric {URP} > 0, fault 1)": "< 5s"', "fault 1 does not exist"),
    ],
)
def test_what_no_run_can_give_is_refused(load_text: Load, metrics: str, expect: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as raised:
        cases(load_text(text(metrics=metrics, expect=expect)))
    assert any(said in problem.message for problem in raised.value.problems)


def test_the_settings_of_a_matrix_may_vary_it(load_text: Load) -> None:
    varied = text().replace("expect:", "matrix: {observe.metrics: [true, false]}\nexpect:")
    assert [bool(case.needs) for case in cases(load_text(varied))] == [True, False]
