"""Test that the rules of all planted bugs fit the classes of their release."""

from __future__ import annotations

import pytest

from ackproof.provision.byteman import check_rules
from ackproof.provision.jars import kafka_jars
from planted.bugs import BUGS

pytestmark = pytest.mark.cluster


def test_every_rule_fits_its_release() -> None:
    for release in sorted({bug.release for bug in BUGS}):
        rules = "\n".join(bug.rules.read_text("utf-8") for bug in BUGS if bug.release == release)
        assert [str(problem) for problem in check_rules(rules, kafka_jars(release).classpath)] == []


def test_a_rule_that_does_not_fit_is_noticed() -> None:
    rules = BUGS[0].rules.read_text("utf-8").replace("METHOD ", "METHOD no")
    assert check_rules(rules, kafka_jars(BUGS[0].release).classpath)
