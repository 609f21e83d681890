"""Tests of the rules of code points against the classes of real releases, by Byteman's checker and jars from Maven."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.cluster.install import Installation
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.code.at_code import AtCode, rule_text
from ackproof.faults.code.points import POINTS
from ackproof.provision.byteman import Misfit, byteman_install_jar, check_rules
from ackproof.provision.jars import kafka_jars

from .conftest import NEWEST, OLDER

pytestmark = pytest.mark.cluster
BEFORE = (OLDER, "4.0.2", "4.1.2", "4.2.1", "4.3.1")

_RULE = """\
RULE {name}
CLASS kafka.cluster.{of}
METHOD {method}
AT ENTRY
IF {condition}
DO traceln("passed")
ENDRULE
"""


def test_rules_are_held_against_the_classes_of_a_release(installs: Callable[[str], Installation]) -> None:
    rules = [
        ("fits", "Partition", "makeLeader", '$0.topic().equals("orders")'),
        ("class", "Partitions", "makeLeader", "TRUE"),
        ("method", "Partition", "makeLeaders", "TRUE"),
        ("types", "Partition", "makeLeader", "$0.topics() == 1"),
    ]
    text = "".join(_RULE.format(name=a, of=b, method=c, condition=d) for a, b, c, d in rules)
    assert {
        problem.rule: problem.misfit for problem in check_rules(text, installs(NEWEST).jars.classpath)
    } == {
        "class": Misfit.CLASS,
        "method": Misfit.METHOD,
        "types": Misfit.TYPES,
    }
    assert byteman_install_jar().exists()


@pytest.mark.parametrize("version", [*(pytest.param(v, marks=pytest.mark.nightly) for v in BEFORE), NEWEST])
def test_each_named_point_fits_the_classes_of_each_line(version: str) -> None:
    jars = kafka_jars(version).classpath
    modes = ("kraft", "zookeeper") if version == OLDER else ("kraft",)
    texts = []
    for mode in modes:
        for name, point in POINTS.items():
            place = point.place(version, mode)
            assert place is not None
            for does in ("halt", "pause_thread", "delay", "throw"):
                fault = AtCode.model_validate(
                    {
                        "number": 1,
                        "trigger": TimeTrigger(at=0.0),
                        "target": "broker(1)",
                        "point": name,
                        "do": does,
                    }
                )
                texts.append(rule_text(fault, place, f"{name} {does} {mode}"))
    assert check_rules("".join(texts), jars) == ()


def test_a_rule_of_another_line_does_not_fit() -> None:
    older = POINTS["leader-appended"].places["3.9"]
    fault = AtCode.model_validate(
        {
            "number": 1,
            "trigger": TimeTrigger(at=0.0),
            "target": "broker(1)",
            "point": "leader-appended",
            "do": "halt",
        }
    )
    (problem,) = check_rules(rule_text(fault, older, "old"), kafka_jars(NEWEST).classpath)
    assert problem.misfit is Misfit.CLASS
