"""Planned work as a file says it: what there is, and what is refused with its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import Plan

Load = Callable[[str], Plan]

FRAME = """\
name: x
cluster: {{kafka: "4.2.1", brokers: 4}}
topics: {{t: {{partitions: 2}}}}
faults:
  - {fault}
    at: 1s
"""


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("elect_preferred: {partition: t/1}", "elect_preferred t/1"),
        ("elect_unclean: {partition: t/0}", "elect_unclean t/0"),
        ("reassign: {partition: t/0, to: [4, 1]}", "reassign t/0 to 4, 1"),
        ("cancel_reassign: {partition: t/0, to: [4], throttle: 1KB}", "cancel_reassign t/0 to 4"),
        ("set: {topic: t, config: {min.insync.replicas: 1}}", "set min.insync.replicas=1 of t"),
        ("set: {config: {background.threads: 3}}", "set background.threads=3 of all brokers"),
        ("set: {broker: 2, config: {background.threads: 3}}", "set background.threads=3 of broker 2"),
        ("rolling_restart: {target: brokers, await_isr: false, rest: 1s}", "rolling_restart brokers"),
        ('upgrade: {to: "4.3.1"}', "upgrade to 4.3.1"),
        ("recreate: {topic: t}", "recreate t"),
        ("decommission: {target: broker(2), drain: false}", "decommission broker(2)"),
    ],
)
def test_what_there_is(load_text: Load, fault: str, text: str) -> None:
    assert str(load_text(FRAME.format(fault=fault)).spec.faults[0]) == text


@pytest.mark.parametrize(
    ("fault", "where", "said"),
    [
        ("elect_preferred: {}", "faults[1].elect_preferred.partition", "missing"),
        ("elect_preferred: {partition: t/2}", "faults[1].elect_preferred.partition", "0 to 1"),
        ("elect_preferred: {partition: u/0}", "faults[1].elect_preferred.partition", "does not exist"),
        ("elect_preferred: {partition: t}", "faults[1].elect_preferred.partition", "a partition such as"),
        ("elect_preferred: {partition: t/0, target: t/0}", "faults[1].elect_preferred.target", "unknown field"),
        ("reassign: {partition: t/0, to: []}", "faults[1].reassign.to", "at least 1"),
        ("reassign: {partition: t/0, to: [5]}", "faults[1].reassign.to[1]", "brokers of this cluster are 1 to 4"),
        ("reassign: {partition: t/0, to: [1, 1]}", "faults[1].reassign.to", "one replica of a partition"),
        ("reassign: {partition: t/0, to: [1], throttle: 5}", "faults[1].reassign.throttle", "lacks a unit"),
        ("rolling_restart: {target: broker(5)}", "faults[1].rolling_restart.target", "does not exist"),
        ("upgrade: {to: 4.3}", "faults[1].upgrade.to", "without quotes"),
        ('upgrade: {to: "4.2.1"}', "faults[1].upgrade.to", "not newer than 4.2.1"),
        ('upgrade: {to: "3.8.0"}', "faults[1].upgrade.to", "not newer than 4.2.1"),
        ("upgrade: {to: {path: nowhere}}", "faults[1].upgrade.to", "no such folder"),
        ("decommission: {target: controller}", "faults[1].decommission.target", "holds no partitions"),
        ("move_log_dir: {partition: t/0, target: leader(t/0)}", "faults[1].move_log_dir.target", "one log dir"),
        ("recreate: {topic: u}", "faults[1].recreate.topic", "u"),
        ("recreate: {}", "faults[1].recreate.topic", "missing"),
        ("set: {config: {}}", "faults[1].set.config", "at least 1"),
        ("set: {topic: u, config: {retention.ms: 1}}", "faults[1].set.topic", "u"),
        ("set: {topic: t, broker: 1, config: {retention.ms: 1}}", "faults[1].set.broker", "not of both"),
        ("set: {broker: 9, config: {a: 1}}", "faults[1].set.broker", "broker 9 does not exist"),
        ("set: {config: {node.id: 1}}", "faults[1].set.config[node.id]", "itself"),
        ("set: {topic: t, config: {retention.m: 1}}", "faults[1].set.config[retention.m]", "no topic setting"),
    ],
)  # fmt: skip
def test_what_is_refused(load_text: Load, fault: str, where: str, said: str) -> None:
    with pytest.raises(InvalidExperiment) as refused:
        load_text(FRAME.format(fault=fault))
    (problem,) = refused.value.problems
    assert problem.path == where
    assert said in problem.message


def test_a_broker_whose_replicas_nobody_could_take_stays(load_text: Load) -> None:
    text = FRAME.format(fault="decommission: {target: leader(t/0)}").replace("brokers: 4", "brokers: 3")
    with pytest.raises(InvalidExperiment, match="nobody could take its replicas of t: 3 brokers"):
        load_text(text)
    text = FRAME.format(fault="decommission: {target: [broker(1), broker(2)]}")
    with pytest.raises(InvalidExperiment, match="replicas of t: 4 brokers of which 2 leave"):
        load_text(text)


def test_an_upgrade_takes_another_release(load_text: Load) -> None:
    (fault,) = load_text(FRAME.format(fault='upgrade: {to: "4.3.1"}')).spec.faults
    assert [build.version for build in fault.builds] == ["4.3.1"]
