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


@pytest.mark.parametrize(
    ("metrics", "asked", "said"),
    [
        ("false", f"metric({URP}) > 0", "write observe: {metrics: true}"),
        ("true", f"metric({URP}, node 9) > 0", "there is no node 9 of Kafka's; there are 1, 2, 3, 101"),
        ("true", "metric(under_replicated_partition) > 0", f"(did you mean 'metric({URP})'?)"),
    ],
)
def test_a_trigger_waits_for_no_metric_that_nobody_will_see(
    load_text: Load, metrics: str, asked: str, said: str
) -> None:
    fault = f'faults:\n  - pause: broker(1)\n    when: "{asked}"\n    for: 1s\n'
    with pytest.raises(InvalidExperiment) as raised:
        cases(load_text(text(metrics=metrics) + fault))
    (problem,) = raised.value.problems
    assert problem.path == "faults[1].when"
    assert said in problem.message


def test_the_settings_of_a_matrix_may_vary_it(load_text: Load) -> None:
    varied = text().replace("expect:", "matrix: {observe.metrics: [true, false]}\nexpect:")
    assert [bool(case.needs) for case in cases(load_text(varied))] == [True, False]


ASKED = """\
name: x
backend: {backend}
cluster: {cluster}
topics: {{orders: {{}}}}
workload: {{consumers: {{live: {live}}}, duration: 5s}}
observe: {{brokers: {asked}}}
expect:
  - {{"{name}": {bound}}}
"""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"asked": "false"}, "write observe: {brokers: true}"),
        ({"name": "said(leader, by node 4)"}, "node 4 is no broker; there are 1, 2, 3"),
        ({"name": "said(leader, by znodes)"}, "there are no znodes without ZooKeeper"),
        ({"name": "served(fetch, node 101)", "bound": 0}, "node 101 is no broker"),
        ({"name": "reads(node 1)", "bound": 0, "live": 0}, "not seen without live readers"),
        ({"backend": "model"}, "its brokers answer no questions"),
        ({"backend": "attach"}, "brokers that someone else runs are not asked"),
        ({"cluster": "{start_order: [2, 2]}"}, "a broker starts once"),
        ({"cluster": "{start_order: 4}"}, "broker 4 does not exist"),
        ({"cluster": "{start_order: 1, combined: true}"}, "takes part only once others do"),
    ],
)
def test_brokers_are_asked_where_they_can_be(load_text: Load, given: dict[str, object], said: str) -> None:
    usual = {"backend": "process", "cluster": "{}", "live": 1, "asked": "true"}
    usual |= {"name": "said(leader, by node 1)", "bound": "always == 1"}
    cases(load_text(ASKED.format(**usual)))
    with pytest.raises(InvalidExperiment) as raised:
        cases(load_text(ASKED.format(**{**usual, **given})))
    assert any(said in problem.message for problem in raised.value.problems)


def test_a_rack_and_a_first_broker_need_no_brackets(load_text: Load) -> None:
    text_ = ASKED.format(
        backend="process", cluster="{start_order: 2}", live="2, racks: b", asked="true", name="lost", bound=0
    )
    (case,) = cases(load_text(text_))
    assert case.experiment.cluster.start_order == (2,)
    assert case.experiment.workload.consumers.config_of(1) == {"client.rack": "b"}
