"""Cases: ids, order, seeds, random draws, expectations, schedule, and the restoration from JSON."""

from __future__ import annotations

import json

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.backends import Need
from ackproof.experiment.timing import recovery_bounds
from ackproof.plan import InvalidExperiment, cases, describe
from ackproof.plan.cases import case_from_json, case_to_json
from ackproof.plan.schedule import describe_fault
from ackproof.rundir.bounds import Bound
from ackproof.rundir.layout import safe_name

from .conftest import Load

SMALL = "name: small\ntopics: {t: {}}\n"


def test_a_case_is_a_whole_experiment(load_text: Load, good: str) -> None:
    every = cases(load_text(good))
    assert len(every) == 12
    case = every[-1]
    assert case.id == "acks=all,min.insync.replicas=2#2"
    assert case.repeat == 2
    assert case.settings == {
        "workload.producers.acks": "all",
        "topics.orders.config[min.insync.replicas]": 2,
    }
    assert case.experiment.workload.producers.acks == "all"
    assert case.experiment.topics["orders"].config == {"min.insync.replicas": "2"}
    assert case.experiment.matrix == {}
    (expected,) = case.experiment.expect
    assert expected.given == {"workload.producers.acks": "all"}
    assert expected.bounds == {"lost": Bound("==", 0)}
    assert every[0].experiment.expect == ()


def test_folders_differ(load_text: Load) -> None:
    with pytest.raises(InvalidExperiment, match="same name"):
        load_text(SMALL + "matrix:\n  workload.producers.config[client.id]: ['a b', a/b]\n")
    every = cases(load_text(SMALL + "repeat: 11\nmatrix: {topics.t.partitions: [1, 11]}\n"))
    assert len({safe_name(case.id) for case in every}) == 22


def test_seeds_follow_from_seed_and_id_alone(load_text: Load, good: str) -> None:
    spec = load_text(good)
    every = {case.id: case for case in cases(spec)}
    assert len({case.seed for case in every.values()}) == 12
    alone = cases(spec, only="acks=1,min.insync.replicas=2#2")
    assert alone == [every["acks=1,min.insync.replicas=2#2"]]
    fewer = load_text(good.replace("[0, 1, all]", "[1, all]"))
    assert all(case == every[case.id] for case in cases(fewer))
    other = {case.id: case.seed for case in cases(spec, seed=8)}
    assert all(other[name] != case.seed for name, case in every.items())
    assert cases(spec, seed=8)[0].experiment.seed == 8
    # A number written down: the draw of an old report must stay what it was.
    assert every["acks=all,min.insync.replicas=2#1"].seed == 586709390012574368


def test_draws(load_text: Load) -> None:
    text = SMALL + "cluster: {brokers: 5}\nfaults:\n  - {kill: {target: broker}, at: 1s}\n"
    more = text + "  - {pause: {target: minority}, at: 2s}\n"
    few, many = cases(load_text(text), repeat=20), cases(load_text(more), repeat=20)
    orders = [case.order(case.experiment.faults[0]) for case in few]
    assert all(sorted(order) == [1, 2, 3, 4, 5] for order in orders)
    assert len(set(orders)) > 10
    # A further fault changes no draw of those before it.
    assert [case.orders[1] for case in many] == orders
    assert many[0].orders[1] != many[0].orders[2] or many[1].orders[1] != many[1].orders[2]


def test_only(load_text: Load, good: str) -> None:
    spec = load_text(good)
    assert len(cases(spec, only="acks=0,min.insync.replicas=1")) == 2
    two = ["acks=0,min.insync.replicas=1#1", "acks=all,min.insync.replicas=2#2"]
    assert [case.id for case in cases(spec, only=two)] == two
    with pytest.raises(BadInput, match=r"did you mean 'acks=all,min.insync.replicas=2#1'"):
        cases(spec, only="acks=al,min.insync.replicas=2#1")
    with pytest.raises(BadInput, match="no case is called"):
        cases(spec, only=["acks=0,min.insync.replicas=1", "x"])


def test_only_by_the_beginning_of_one_cell(load_text: Load, good: str) -> None:
    spec = load_text(good)
    wanted = ["acks=all,min.insync.replicas=2#1", "acks=all,min.insync.replicas=2#2"]
    for name in (
        "acks=all,min.insync.replicas=2",
        "acks=all,min.insync.replicas=2#",
        "acks=all,min.insync.replicas=2#2",
    ):
        assert [case.id for case in cases(spec, only=name)] == [one for one in wanted if name in one]
    with pytest.raises(
        BadInput, match=r"'acks=all' is the beginning of 2 cases: acks=all,min.insync.replicas=1, "
    ):
        cases(spec, only="acks=all")
    with pytest.raises(BadInput, match="no case is called ''"):
        cases(spec, only="")


def test_repeat_and_too_many(load_text: Load) -> None:
    spec = load_text(SMALL + f"matrix: {{topics.t.partitions: {list(range(1, 21))}}}\n")
    assert len(cases(spec, repeat=3)) == 60
    with pytest.raises(BadInput, match="more than 10000 runs"):
        cases(spec, repeat=501)
    with pytest.raises(BadInput, match="repeat"):
        cases(spec, repeat=0)
    with pytest.raises(InvalidExperiment, match="more than 10000 runs"):
        load_text(SMALL + f"repeat: 501\nmatrix: {{topics.t.partitions: {list(range(1, 21))}}}\n")


def test_schedule(load_text: Load) -> None:
    text = SMALL + """\
cluster: {brokers: 5}
seed: 3
faults:
  - {pause: {target: followers(t/0)}, when: acked >= 20, at_latest: 8s, for: 1500ms}
  - {kill: {target: leader(t/0)}, after: {fault: 1}}
  - {stop: {target: follower(t/0)}, when: isr(t/0) == 1, restart_after: 1m}
  - {restart: {target: broker}, at: 0s}
  - {pause: {target: minority}, at: 250us}
expect: [{lost: "<= 2"}]
"""  # fmt: skip
    (case,) = cases(load_text(text))
    third, fourth, fifth = (case.orders[number] for number in (3, 4, 5))
    assert [describe_fault(case, fault) for fault in case.faults] == [
        "1. pause followers(t/0): when acked >= 20, at 8s at the latest; resume 1500ms later",
        "2. kill leader(t/0): 0s after fault 1 is confirmed; start again when all else is over",
        f"3. stop follower(t/0) [drawn: the first of {', '.join(map(str, third))} that is one]: "
        "when isr(t/0) == 1; start again 60s later",
        f"4. restart broker [drawn: {fourth[0]}]: 0s after the start of the workload; ends by itself",
        f"5. pause minority [drawn: {', '.join(map(str, sorted(fifth[:2])))}]: "
        "250us after the start of the workload; resume when all else is over",
    ]
    lines = describe(case)
    assert lines[0] == f"small case#1  seed {case.seed}"
    assert lines[-2] == "  expected: lost <= 2"
    assert lines[-1].startswith("  stuck after: leaderless ")
    assert sum(line.startswith("  fault ") for line in lines) == 5


@pytest.mark.parametrize(
    ("of", "name", "config", "more_s"),
    [
        ("consumers", "stuck-reader", "{socket.timeout.ms: 100000}", 40),
        ("producers", "stuck-producer", "{socket.timeout.ms: 100000}", 70),
        ("producers", "stuck-producer", "{socket.timeout.ms: 10000}", 0),
    ],
)
def test_a_client_recovers_within_its_own_time_outs(
    load_text: Load, of: str, name: str, config: str, more_s: float
) -> None:
    default, own = (
        cases(load_text(SMALL + f"workload: {{{of}: {{config: {told}}}}}\n"))[0].experiment
        for told in ("{}", config)
    )
    assert recovery_bounds(own)[name] == recovery_bounds(default)[name] + more_s


def test_back_from_json(load_text: Load, good_files: dict[str, str]) -> None:
    for text in good_files.values():
        for case in cases(load_text(text), seed=1):
            assert case_from_json(json.loads(json.dumps(case_to_json(case)))) == case


def test_a_resolved_experiment_is_a_file(load_text: Load, good: str) -> None:
    case = cases(load_text(good))[0]
    resolved = case_to_json(case)
    assert isinstance(resolved, dict)
    again = load_text(json.dumps(resolved["experiment"])).spec
    assert again == case.experiment


@pytest.mark.parametrize(
    "change",
    [{"repeat": 0}, {"format": 2}, {"experiment": {"name": "x"}}, {"experiment": 3}, {"orders": {"x": [1]}}],
)
def test_not_a_resolved_case(load_text: Load, change: dict[str, object]) -> None:
    resolved = case_to_json(cases(load_text(SMALL))[0])
    assert isinstance(resolved, dict)
    with pytest.raises(BadInput):
        case_from_json({**resolved, **change})  # type: ignore[dict-item]
    with pytest.raises(BadInput):
        case_from_json([])


@pytest.mark.parametrize("backend", ["process", "docker", "auto"])
@pytest.mark.parametrize(("observe", "needs"), [("{metrics: true}", {Need.METRICS}), ("{}", set())])
def test_a_case_that_observes_metrics_needs_exporters(
    load_text: Load, backend: str, observe: str, needs: set[Need]
) -> None:
    (case,) = cases(load_text(SMALL + f"backend: {backend}\nobserve: {observe}\n"))
    assert case.needs == needs


def test_a_text_has_at_most_ten_thousand_characters(load_text: Load) -> None:
    assert load_text(SMALL + f"description: {'x' * 10_000}\n")
    with pytest.raises(BadInput, match="at most 10000 characters"):
        load_text(SMALL + f"description: {'x' * 10_001}\n")


def test_a_setting_that_an_item_of_the_matrix_leaves_out(load_text: Load) -> None:
    matrix = (
        "matrix:\n  modes:\n    - {workload.producers.acks: 1, topics.t.config.min.insync.replicas: 1}\n"
        "    - {workload.producers.acks: all}\n"
    )
    first, second = cases(load_text(SMALL + matrix))
    assert first.settings.keys() == second.settings.keys()
    assert second.cell == "acks=all"
    assert "  topics.t.config[min.insync.replicas] = not set" in describe(second)


def test_a_rack_of_readers_needs_no_brackets(load_text: Load) -> None:
    (case,) = cases(load_text(SMALL + "workload: {consumers: {live: 2, racks: b}}\n"))
    assert case.experiment.workload.consumers.config_of(1) == {"client.rack": "b"}
