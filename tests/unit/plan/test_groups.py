"""Consumer groups in a file: refused settings, broker settings that groups need, selection of members by faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.experiment.timing import configured
from ackproof.faults.clients.client import ClientSelector
from ackproof.plan import InvalidExperiment, load
from ackproof.plan.cases import case_from_json, case_to_json, cases
from ackproof.plan.schedule import describe

FILE = """\
name: x
{top}
topics: {{orders: {{}}, other: {{}}}}
workload:
  producers: {{topics: [orders]{producers}}}
  {workload}
  groups: {{{groups}}}
faults: [{faults}]
"""


def written(
    folder: Path, groups: str, *, top: str = "", producers: str = "", workload: str = "", faults: str = ""
) -> Path:
    file = folder / "x.yaml"
    file.write_text(
        FILE.format(top=top, producers=producers, workload=workload, groups=groups, faults=faults)
    )
    return file


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"groups": "b: {topics: [order]}"}, "the topic 'order'"),
        ({"groups": "b: {topics: [other]}"}, "no producer writes to other"),
        ({"groups": "b: {output: other}"}, "leave it out of topics"),
        ({"groups": "b: {output: c}, d: {output: c}"}, "c is the output of group b"),
        ({"groups": "ackproof-r0: {}"}, "those of the harness"),
        (
            {
                "groups": "b: {output: c}",
                "workload": "service: {command: [./x], input: orders, output: c}",
            },
            "c is the output of the service",
        ),
        (
            {"groups": "b: {}", "workload": "service: {command: [./x], input: orders, output: c, group: b}"},
            "b is the service's group",
        ),
        ({"groups": "b: {protocol: consumer}", "top": 'cluster: {kafka: "3.9.2"}'}, "it came with 4.0"),
        ({"groups": 'b: {protocol: consumer, client: {java: "3.9.2"}}'}, "the Java client 3.9.2"),
        (
            {"groups": "b: {protocol: consumer}, c: {protocol: consumer, session_timeout: 9s}"},
            "give them the same",
        ),
        ({"groups": 'b: {config: {session.timeout.ms: "9000"}}'}, "use the field session_timeout"),
        ({"groups": 'b: {config: {auto.offset.reset: "latest"}}'}, "a reset must be seen"),
        ({"groups": 'b: {config: {fetch.min.bytes: "x"}}'}, "librdkafka refuses it"),
        ({"groups": "b: {}", "top": "backend: model"}, "the model runs no consumer groups"),
        ({"groups": "b: {}", "top": "backend: attach"}, "on a cluster that ackproof starts"),
        (
            {"groups": "b: {output: c}", "producers": ", keys: 5, tombstone_every: 2"},
            "a tombstone has no value",
        ),
        ({"groups": "", "faults": "{at: 1s, kill_client: {client: member}}"}, "write workload.groups"),
    ],
)
def test_what_a_group_cannot_do_is_refused(tmp_path: Path, given: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load(written(tmp_path, **given))
    assert any(why in problem.message for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    "groups",
    ["b: {}", "b: {protocol: consumer, output: c, commit: transaction}, d: {members: 3, topics: [orders]}"],
)
def test_a_group_is_planned(tmp_path: Path, groups: str) -> None:
    case = cases(load(written(tmp_path, groups)))[0]
    assert case_from_json(case_to_json(case)) == case
    (line,) = [line for line in describe(case) if line.startswith("  group b")]
    assert line.startswith("  group b: 2 × librdkafka, c") and ", from orders" in line


def test_brokers_get_the_sessions_of_groups(tmp_path: Path) -> None:
    """With protocol `consumer` brokers set the session time-out of members. `cluster.config` overrides it."""
    groups = "b: {protocol: consumer, session_timeout: 9s}"
    config = configured(cases(load(written(tmp_path, groups)))[0].experiment.cluster, 1)
    given = {name: value for name, value in config.items() if name.startswith("group.")}
    assert given == {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.session.timeout.ms": "9000",
        "group.consumer.min.session.timeout.ms": "9000",
        "group.consumer.heartbeat.interval.ms": "1500",
        "group.consumer.min.heartbeat.interval.ms": "1500",
    }
    top = 'cluster: {config: {group.consumer.session.timeout.ms: "12000"}}'
    config = configured(cases(load(written(tmp_path, groups, top=top)))[0].experiment.cluster, 1)
    assert config["group.consumer.session.timeout.ms"] == "12000"


@pytest.mark.parametrize(
    ("groups", "given"),
    [
        ("b: {}", {"group.initial.rebalance.delay.ms": "0"}),
        (
            "b: {session_timeout: 3s}",
            {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "3000"},
        ),
    ],
)
def test_brokers_get_what_classic_groups_need(tmp_path: Path, groups: str, given: dict[str, str]) -> None:
    cluster = cases(load(written(tmp_path, groups, top="cluster: {timing: kafka}")))[0].experiment.cluster
    config = configured(cluster, 1)
    assert {name: value for name, value in config.items() if name.startswith("group.")} == given


def test_members_are_selected() -> None:
    running = ["p0", "g0", "g2", "r0"]
    assert ClientSelector.parse("member(2)").among(running, 0) == ("g2",)
    assert ClientSelector.parse("members").among(running, 0) == ("g0", "g2")
    assert ClientSelector.parse("member").among(running, 1) == ("g2",)
