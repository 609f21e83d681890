"""Byteman (LGPL 2.1): its agent puts rules into the methods of a running JVM; its checker compares rules with jars.

The jars are fetched unmodified by Maven at run time. `org.jboss.byteman.check.TestScript` is in the agent's jar.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from ackproof.provision.java import find_java
from ackproof.provision.progress import ProgressSink, ProvisionFailed, ignore
from ackproof.provision.tools import single_jar

BYTEMAN_VERSION: Final = "4.0.27"
BYTEMAN_SHA256: Final = "979274834c1880bd2fb3a8a225d9a21350701a6bbea25a48631eb9b8d2e4cc00"
INSTALL_SHA256: Final = "5e9a4befd69288648cb0811fb28b35a31fddfbedbd0eb39c9ad36b0745e0615f"

_GROUP: Final = "org.jboss.byteman"
_CHECK_WITHIN_S: Final = 60.0
_CHECKER: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


def byteman_jar(progress: ProgressSink = ignore) -> Path:
    """Return the path of Byteman's jar (Java agent and rule checker): from the cache, else fetched with Maven. Raises
    `MissingTool` without mvn or Java, `ProvisionFailed` for a failed download or wrong SHA-256, `WaitTimeout` if it
    takes too long."""
    return single_jar("byteman", "Byteman", (_GROUP, "byteman", BYTEMAN_VERSION), BYTEMAN_SHA256, progress)


def byteman_install_jar(progress: ProgressSink = ignore) -> Path:
    """Return the jar of the program that attaches Byteman's agent to a running JVM: from the cache, else from Maven.
    Raises `MissingTool` without mvn or Java, `ProvisionFailed` for a failed download or wrong SHA-256, `WaitTimeout` if
    it takes too long."""
    artifact = (_GROUP, "byteman-install", BYTEMAN_VERSION)
    return single_jar("byteman-install", "Byteman's installer", artifact, INSTALL_SHA256, progress)


class Misfit(Enum):
    """Reason why a Byteman rule cannot be applied to the classes of some jars."""

    CLASS = "class not found"
    METHOD = "method not found"
    PLACE = "no such place in the method"
    TYPES = "type error"
    PARSE = "parse error"
    OTHER = "not accepted"


@dataclass(frozen=True)
class RuleProblem:
    """A Byteman rule that does not fit the classes of a Kafka release. `rule`: its name, '' if Byteman's message names
    none, as for a text that is no rule script. `misfit`: the reason. `said`: Byteman's message."""

    rule: str
    misfit: Misfit
    said: str

    def __str__(self) -> str:
        return f"{self.rule or 'rules'}: {self.misfit.value}: {self.said}"


def check_rules(rules: str, classpath: Iterable[Path]) -> tuple[RuleProblem, ...]:
    """Check a Byteman rule script (its text) against the classes of these jars; return the rules that do not fit.

    Takes 0.4 s. At most one problem per rule. A rule names a method, which may have overloads, and a place in it. A
    rule without an error fits if at least one overload has that place. Raises `ProvisionFailed` if the checker fails or
    gives no answer, and as `byteman_jar` does.
    """
    jars = os.pathsep.join(map(str, (byteman_jar(), *classpath)))
    with tempfile.TemporaryDirectory(prefix="ackproof-rules-") as folder:
        script = Path(folder, "rules.btm")
        script.write_text(rules, encoding="utf-8")
        command = [str(find_java().path), *_CHECKER, "-cp", jars, f"{_GROUP}.check.TestScript", str(script)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_CHECK_WITHIN_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ProvisionFailed(f"Byteman's checker gave no answer: {error}") from error
    # its status is 0 whatever it finds; with problems, it ends with their counts
    if done.returncode != 0 or not ("Checking rule" in done.stdout or "ERROR :" in done.stdout):
        said = " ".join((done.stdout + done.stderr).split())[-300:]
        raise ProvisionFailed(f"Byteman's checker failed (exit {done.returncode}): {said}")
    return tuple(_read_problems(done.stdout))


_FITS: Final = re.compile(r'^Type checked rule "(?P<rule>.+)"$')
_ERRORS: Final = (
    (
        Misfit.CLASS,
        re.compile(r'^ERROR : Could not load class \S+ declared in rule "(?P<rule>.+)" loaded from '),
    ),
    (Misfit.PARSE, re.compile(r'^ERROR : Failed to parse rule "(?P<rule>.+)" loaded from ')),
    (Misfit.TYPES, re.compile(r'^ERROR : Failed to type check rule "(?P<rule>.+)" loaded from ')),
    (Misfit.PARSE, re.compile(r"^ERROR : Could not process rule file(?P<rule>)")),
    (Misfit.OTHER, re.compile(r"^ERROR :(?P<rule>)")),
)
_WARNINGS: Final = (
    (
        Misfit.METHOD,
        re.compile(r'^WARNING : Unable to transform class \S+ using rule "(?P<rule>.+)" loaded from '),
    ),
    (
        Misfit.PLACE,
        re.compile(r'^WARNING : Problem type checking rule "(?P<rule>.+)" loaded from \S+ line \d+ against '),
    ),
)
"""Misfit, and pattern of the checker's warning about it. A warning is about one overload of a method, so it counts only
if the rule fits no overload."""


def _read_problems(output: str) -> Iterator[RuleProblem]:
    """Yield the problems in the checker's output: the first error of each rule, else its first warning if the rule fits
    nowhere."""
    lines = output.splitlines()
    fitting = {found["rule"] for line in lines if (found := _FITS.match(line))}
    told: set[str] = set()
    for patterns, excused in ((_ERRORS, set[str]()), (_WARNINGS, fitting)):
        for position, line in enumerate(lines):
            for misfit, pattern in patterns:
                if (found := pattern.match(line)) is None:
                    continue
                rule = found["rule"]
                if rule not in told and rule not in excused:
                    told.add(rule)
                    yield RuleProblem(rule, misfit, _cause(line, lines[position + 1 :]))
                break


def _cause(line: str, after: list[str]) -> str:
    """Return what Byteman says of a finding: the messages of the exception below it, else the finding itself."""
    causes = []
    for text in after:
        if not text or text.startswith(("ERROR :", "WARNING :", "Checking rule ")):
            break
        causes.append(text.rpartition("Exception: ")[2] if "Exception: " in text else text)
    return " ".join(" ".join(causes or [line.partition(" : ")[2]]).split())
