"""A small local runner of `action.yml`: its inputs, expressions, conditions and environment files, without GitHub.

`run` steps run in bash as on GitHub. `uses` steps are only recorded with their inputs; a test sets their outputs. An
expression, input or step that does not exist raises ValueError, whereas GitHub would use an empty text."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_OUTPUT = re.compile(r"([\w-]+)(?:=(.*)|<<(.+)\n((?:.*\n)*?)\3)\n")
Contexts = dict[str, str]


def document(action: Path) -> dict[str, Any]:
    """Return the content of `action.yml` in a folder."""
    found: dict[str, Any] = YAML(typ="safe").load((action / "action.yml").read_text("utf-8"))
    return found


@dataclass
class Step:
    """Result of one step. `uses`: the action that it uses, '' for a script; `given`: the inputs that this action got.
    `code`: exit code of the script; None for a step that was skipped, or that `uses` an action."""

    name: str
    uses: str = ""
    given: dict[str, str] = field(default_factory=dict)
    skipped: bool = False
    code: int | None = None
    log: str = ""
    outputs: dict[str, str] = field(default_factory=dict)

    @property
    def commands(self) -> list[str]:
        """Workflow commands in the step's output, such as `::error …`."""
        return [line for line in self.log.splitlines() if re.match(r"::[a-z-]+[ :]", line)]


@dataclass
class Job:
    """Result of a run of the action. `steps`: by id. `code`: its exit code."""

    steps: dict[str, Step]
    outputs: dict[str, str]
    summary: str
    code: int


@dataclass
class LocalAction:
    """The action in the folder `path`. `workspace`: folder in which its scripts run. `temp`: folder for scripts, their
    logs and their environment files. `github`: values of contexts by name, such as `github.token`. `used`: outputs of
    the steps that use an action, by the step's id. `environment`: additional environment variables of the scripts."""

    path: Path
    workspace: Path
    temp: Path
    github: Mapping[str, str] = field(default_factory=dict)
    used: Mapping[str, dict[str, str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, **given: str) -> Job:
        """Run the steps with these inputs (`fail_on` is the input fail-on); return the result. Raises ValueError if an
        input is missing or does not exist."""
        action = document(self.path)
        contexts = {"runner.os": "Linux", "runner.arch": "X64", "github.action_path": str(self.path)}
        contexts |= {"github.token": "token", "github.event.pull_request.number": "", **self.github}
        asked = {name.replace("_", "-"): value for name, value in given.items()}
        for name, declared in action["inputs"].items():
            if declared.get("required") and name not in asked:
                raise ValueError(f"the input {name} is required")
            contexts[f"inputs.{name}"] = _filled(asked.pop(name, declared.get("default", "")), contexts)
        if asked:
            raise ValueError(f"no such input: {', '.join(asked)}")
        steps: dict[str, Step] = {}
        code, summary = 0, self.temp / "summary.md"
        summary.write_text("", "utf-8")
        for raw in action["runs"]["steps"]:
            name = raw.get("id") or raw.get("name") or raw["uses"]
            steps[name] = step = Step(name, raw.get("uses", ""))
            step.skipped = not _holds(raw.get("if", "success()"), contexts, failed=code != 0)
            if not step.skipped and step.uses:
                step.given = {key: _filled(value, contexts) for key, value in raw.get("with", {}).items()}
                step.outputs = self.used.get(name, {})
            elif not step.skipped:
                self._bash(step, raw, contexts, summary)
                code = code or step.code or 0
            contexts[f"steps.{raw.get('id')}"] = ""
            contexts |= {f"steps.{raw.get('id')}.outputs.{key}": value for key, value in step.outputs.items()}
        outputs = {name: _filled(one["value"], contexts) for name, one in action["outputs"].items()}
        return Job(steps, outputs, summary.read_text("utf-8"), code)

    def _bash(self, step: Step, raw: Mapping[str, Any], contexts: Contexts, summary: Path) -> None:
        if raw["shell"] != "bash" or "${{" in raw["run"]:
            raise ValueError(f"{step.name}: a script is bash, and takes inputs from the environment")
        script, outputs = self.temp / "step.sh", self.temp / "outputs"
        script.write_text(raw["run"], "utf-8")
        outputs.write_text("", "utf-8")
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "RUNNER_"))
        }
        environment |= {
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "shop/orders",
            "RUNNER_TEMP": str(self.temp),
        }
        environment |= {"GITHUB_WORKSPACE": str(self.workspace), "GITHUB_OUTPUT": str(outputs)}
        environment |= {"GITHUB_STEP_SUMMARY": str(summary), **self.environment}
        environment |= {name: _filled(value, contexts) for name, value in raw.get("env", {}).items()}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        with (self.temp / "log").open("w+", encoding="utf-8") as log:
            done = subprocess.run(
                words, cwd=self.workspace, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
            )
            log.seek(0)
            step.code, step.log = done.returncode, log.read()
        step.outputs = read_outputs(outputs.read_text("utf-8"))


def read_outputs(text: str) -> dict[str, str]:
    """Parse the file GITHUB_OUTPUT: `name=value`, or `name<<delimiter` and lines up to the delimiter. Of several values
    of a name the last counts. Raises ValueError for other text."""
    if rest := _OUTPUT.sub("", text):
        raise ValueError(f"GITHUB_OUTPUT: neither name=value nor name<<delimiter: {rest}")
    return {name: plain or lines.removesuffix("\n") for name, plain, _, lines in _OUTPUT.findall(text)}


def _value(word: str, contexts: Contexts) -> str:
    step = re.match(r"(steps\.[\w-]+)\.outputs\.[\w-]+\Z", word)
    if word not in contexts and (step is None or step[1] not in contexts):
        raise ValueError(f"nothing is called {word}")
    return contexts.get(word, "")


def _filled(text: object, contexts: Contexts) -> str:
    return _EXPRESSION.sub(lambda found: _value(found[1], contexts), str(text))


def _holds(condition: str, contexts: Contexts, *, failed: bool) -> bool:
    terms = condition.split(" && ")
    holds = not failed or "always()" in terms
    for word, sign, text in (term.split(" ") for term in terms if not term.endswith("()")):
        holds &= (_value(word, contexts) == text.strip("'")) == {"==": True, "!=": False}[sign]
    return holds
