"""Rules against the classes of real releases: Byteman's checker with jars from Maven."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackproof.cluster.install import Installation
from ackproof.provision.byteman import Misfit, byteman_install_jar, check_rules

from .conftest import NEWEST

pytestmark = pytest.mark.cluster

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
