"""Tests of reading the output of Byteman's checker: one problem per rule, and none for a rule that fits one
overload."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.provision import byteman
from ackproof.provision.byteman import Misfit, check_rules
from ackproof.provision.progress import ProvisionFailed

from .conftest import script

OUTPUT = """\
Checking rule good against class kafka.cluster.Partition
Parsed rule "good" for class kafka.cluster.Partition
Type checked rule "good"

ERROR : Could not load class kafka.Nowhere declared in rule "no class" loaded from r.btm line 12
Checking rule no method against class kafka.cluster.Partition
WARNING : Unable to transform class kafka.cluster.Partition using rule "no method" loaded from r.btm line 19

Checking rule no place against class kafka.cluster.Partition
WARNING : Problem type checking rule "no place" loaded from r.btm line 26 against method makeLeader(int) boolean
org.jboss.byteman.rule.exception.TypeWarningException: no matching injection point for method makeLeader(int) boolean
WARNING : Problem type checking rule "no place" loaded from r.btm line 26
org.jboss.byteman.rule.exception.TypeWarningException: failed to find any matching trigger method in class x

Checking rule one overload against class x.UnifiedLog
WARNING : Problem type checking rule "one overload" loaded from r.btm line 31 against method flush(long) void
org.jboss.byteman.rule.exception.TypeWarningException: no matching injection point for method flush(long) void
Parsed rule "one overload" for class x.UnifiedLog
Type checked rule "one overload"

Checking rule types against class kafka.cluster.Partition
Parsed rule "types" for class kafka.cluster.Partition
ERROR : Failed to type check rule "types" loaded from r.btm line 33 against method makeLeader(int) boolean
org.jboss.byteman.rule.exception.TypeException: MethodExpression.typeCheck : invalid method topicx  file r.btm line 33

Checking rule grammar against class kafka.cluster.Partition
ERROR : Failed to parse rule "grammar" loaded from r.btm line 40
org.jboss.byteman.rule.exception.ParseException: rule grammar
r.btm line 40 : invalid expression
"""


@pytest.fixture
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a Java on the PATH that prints the file `said`, and return the path of that file."""
    said = tmp_path / "said"
    java = script(
        tmp_path / "bin" / "java",
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; else cat {said}; fi\n',
    )
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(byteman, "byteman_jar", lambda: Path("byteman.jar"))
    return said


def test_each_rule_that_does_not_fit_is_one_problem(checker: Path) -> None:
    checker.write_text(OUTPUT)
    found = {problem.rule: problem for problem in check_rules("RULE x", ())}
    assert {rule: problem.misfit for rule, problem in found.items()} == {
        "no class": Misfit.CLASS,
        "types": Misfit.TYPES,
        "grammar": Misfit.PARSE,
        "no method": Misfit.METHOD,
        "no place": Misfit.PLACE,
    }
    assert str(found["types"]).startswith(
        "types: type error: MethodExpression.typeCheck : invalid method topicx"
    )


def test_a_text_that_is_no_script_is_a_problem(checker: Path) -> None:
    checker.write_text(
        "ERROR : Could not process rule file t.btm : \njava.lang.Exception: no matching ENDRULE\n"
    )
    (problem,) = check_rules("RULE x", ())
    assert (problem.rule, problem.misfit, problem.said) == ("", Misfit.PARSE, "no matching ENDRULE")


def test_a_checker_that_says_nothing_has_not_checked(checker: Path) -> None:
    checker.write_text("")
    with pytest.raises(ProvisionFailed, match="checker failed"):
        check_rules("RULE x", ())
