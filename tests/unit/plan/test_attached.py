"""Cases on a cluster that someone else runs: topics renamed wherever a file names them, and commands as faults."""

from __future__ import annotations

import json

import pytest

from ackproof.experiment.case import Case
from ackproof.experiment.problems import InvalidExperiment
from ackproof.experiment.spec import LONGEST_TOPIC
from ackproof.experiment.triggers import StateTrigger
from ackproof.faults.command import CommandFault
from ackproof.plan import cases
from ackproof.plan.cases import case_from_json, case_to_json, on_foreign_ground
from ackproof.plan.schedule import describe

from .conftest import Load

TEXT = """\
name: x
backend: attach
topics:
  orders: {partitions: 2}
  orders.eu: {}
workload: {producers: {topics: [orders.eu, orders]}}
matrix:
  topics.orders.config[min.insync.replicas]: [1, 2]
faults:
  - command:
      target: leader(orders/1)
      inject: [move, --topic, orders, "orders.eu/0"]
      check: [looks, myorders/0]
      heal: [back]
    when: acked(orders.eu/0) >= 10
  - elect_preferred: {partition: orders/1}
    after: {fault: 1}
expect:
  - {given: {min.insync.replicas: 2}, lost: 0}
"""


def own(load_text: Load) -> tuple[Case, Case]:
    before = cases(load_text(TEXT))[1]
    return before, on_foreign_ground(before, "0123456789abcdef")


def test_every_topic_has_a_name_that_nobody_else_has(load_text: Load) -> None:
    before, after = own(load_text)
    spec = after.experiment
    assert list(spec.topics) == ["ackproof-0123456789-orders", "ackproof-0123456789-orders.eu"]
    assert spec.topic_names() == ("ackproof-0123456789-orders.eu", "ackproof-0123456789-orders")
    assert spec.topics["ackproof-0123456789-orders"].config == {"min.insync.replicas": "2"}
    assert (after.id, after.seed, after.settings) == (before.id, before.seed, before.settings)
    assert spec.cluster.timing == "kafka", "nobody shortened its time-outs"


def test_faults_triggers_and_expectations_speak_of_them(load_text: Load) -> None:
    _, after = own(load_text)
    command, elect = after.experiment.faults
    assert isinstance(command, CommandFault)
    assert str(command.target) == "leader(ackproof-0123456789-orders/1)"
    assert command.inject[2:] == ("ackproof-0123456789-orders", "ackproof-0123456789-orders.eu/0")
    assert command.looks == ("looks", "myorders/0"), "what only ends like a topic is none"
    assert isinstance(command.trigger, StateTrigger)
    assert str(command.trigger.condition) == "acked(ackproof-0123456789-orders.eu/0) >= 10"
    assert str(elect) == "elect_preferred ackproof-0123456789-orders/1"
    (expectation,) = after.experiment.expect
    assert list(expectation.given) == ["topics.ackproof-0123456789-orders.config[min.insync.replicas]"]
    assert case_from_json(case_to_json(after)) == after


def test_a_name_that_leaves_no_room_is_refused(load_text: Load) -> None:
    with pytest.raises(InvalidExperiment, match="at most 229 characters"):
        load_text(f"name: x\nbackend: attach\ntopics: {{{'t' * 230}: {{}}}}\n" + VALUE)
    case = cases(load_text(f"name: x\nbackend: attach\ntopics: {{{'t' * 229}: {{}}}}\n" + VALUE))[0]
    (own,) = on_foreign_ground(case, "0123456789abcdef").experiment.topics
    assert len(own) == LONGEST_TOPIC


VALUE = "workload: {producers: {value_size: 1kB}}\n"
FAULT = """\
name: x
backend: {backend}
topics: {{t: {{}}}}
faults:
  - {fault}
    at: 1s
"""


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("kafka-{node}", "{nodes}"),
        ("kafka-{Nodes}", "{nodes}"),
        ("kafka-{broker}", "{nodes}"),
        ("{bootstap}", "{bootstrap}"),
        ("{nodes} {bootstrap}", None),
        # a shell's, a template's of Docker's, a program's of jq's or awk's
        ("${node} ${NODES}", None),
        ("{{node}} {{.Name}}", None),
        ("{name} {print}", None),
        ("{node,nodes}", None),
    ],
)
@pytest.mark.parametrize("command", ["inject", "check", "heal", "heal_check"])
def test_braces_that_were_meant_for_ours(load_text: Load, command: str, word: str, meant: str | None) -> None:
    words = {name: ["a"] for name in ("inject", "check", "heal")} | {command: ["ssh", word]}
    text = FAULT.format(backend="attach", fault=f"command: {json.dumps({**words, 'target': 'leader(t/0)'})}")
    if meant is None:
        load_text(text)
        return
    with pytest.raises(InvalidExperiment) as caught:
        load_text(text)
    (problem,) = caught.value.problems
    assert problem.path == f"faults[1].command.{command}[2]"
    assert "nothing is filled in for {" in problem.message
    assert problem.message.suggestion == meant


def test_a_plan_claims_nothing_of_a_cluster_that_it_has_not_asked(load_text: Load) -> None:
    told = "\n".join(describe(cases(load_text(TEXT))[0]))
    assert "cluster: someone else's, 3 broker(s) expected; the run asks what it is" in told
    assert "Kafka" not in told
    assert "controller(s)" not in told
    assert "1. command leader(orders/1): when acked(orders.eu/0) >= 10" in told
    assert "    inject: move --topic orders orders.eu/0\n    check: looks myorders/0\n    heal: back" in told
