"""The client library as an axis of the matrix, and settings that the Java client does not support."""

from __future__ import annotations

import pytest

from ackproof.plan import InvalidExperiment

from .conftest import Load

HEAD = "name: x\ntopics: {t: {}}\n"


def test_libraries_are_an_axis(load_text: Load) -> None:
    plan = load_text(f'{HEAD}matrix: {{workload.producers.client: [librdkafka, java, {{java: "3.9.2"}}]}}')
    assert [cell.name for cell in plan.cells] == ["client=librdkafka", "client=java", "client=java-3.9.2"]
    clients = [cell.experiment.workload.producers.client for cell in plan.cells]
    assert [str(client) for client in clients] == ["librdkafka", "java", "java 3.9.2"]
    assert plan.cells[2].experiment.data()["workload"]["producers"]["client"] == {"java": "3.9.2"}  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "backend: model\nworkload: {producers: {client: java}}",
            "clients of the model behave as librdkafka",
        ),
        ("observe: {brokers: true}\nworkload: {consumers: {client: java, live: 1}}", "observe.brokers asks"),
        (
            "workload: {producers: {client: java, config: {socket.timeout.ms: 9}}}",
            'no setting "socket.timeout.ms"',
        ),
        (
            "workload: {producers: {client: java, request_timeout: 40s}}",
            "together, more than delivery.timeout.ms",
        ),
        ("workload: {producers: {client: java, config: {partitioner.class: X}}}", "chooses each partition"),
    ],
)
def test_what_java_cannot_do_is_refused_with_the_reason(text: str, why: str, load_text: Load) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(f"{HEAD}{text}")
    (problem,) = caught.value.problems
    assert why in problem.message and problem.line > 2


def test_what_nobody_uses_is_not_refused(load_text: Load) -> None:
    load_text(f"{HEAD}observe: {{brokers: true}}\nworkload: {{consumers: {{client: java, live: 0}}}}")
