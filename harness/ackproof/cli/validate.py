"""`ackproof validate`: what is wrong or doubtful in experiment files. Thin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof.cli.options import FILES, examples, over_the_files

if TYPE_CHECKING:
    from ackproof.experiment.case import Case
    from ackproof.experiment.problems import Problem


@click.command(
    epilog=examples(
        "ackproof validate experiments/storm.yaml",
        "ackproof validate experiments/acks-matrix.yaml first.yaml --json",
    )
)
@click.argument("files", nargs=-1, required=True, type=FILES)
@over_the_files
@click.option(
    "--json", "machine", is_flag=True, help="All errors and warnings as a JSON list on standard output."
)
def validate(files: tuple[Path, ...], settings: tuple[str, ...], machine: bool) -> int:
    """Check experiment files: all errors at once, with line and column; and what is expected and cannot be.

    Exit code 254 when there is an error; a warning changes nothing.
    """
    from ackproof.base.errors import BadInput
    from ackproof.console import Console
    from ackproof.experiment.problems import InvalidExperiment, Problem, Severity
    from ackproof.plan.cases import cases, load
    from ackproof.plan.schedule import describe_timing
    from ackproof.rundir.outcome import ExitCode, cases_text

    console = Console(machine=machine)
    told: list[Problem] = []
    for file in files:
        try:
            plan = load(file, settings)
        except InvalidExperiment as error:
            told += error.told
            console.error(str(error))
            continue
        except BadInput as error:
            told.append(Problem(str(file), 0, 0, "", str(error).removeprefix(f"{file}: ")))
            console.error(str(error))
            continue
        found = cases(plan)
        impossible, rest = _held_against_the_prediction(found)
        errors = [plan.file.problem(("expect",), text) for text in impossible]
        for problem in plan.warnings:
            console.warning(str(problem))
        for problem in errors:
            console.error(str(problem))
        if not errors:
            console.line(f"{file}: valid, {cases_text(case.id for case in found)}{rest}")
            if any(case.experiment.cluster.settings_from for case in found):
                console.lines(describe_timing(found))
        told += sorted([*plan.warnings, *errors])
    if machine:
        console.document([problem.as_json() for problem in told])
    bad = any(problem.severity is Severity.ERROR for problem in told)
    return int(ExitCode.BAD_INPUT) if bad else 0


def _held_against_the_prediction(found: Sequence[Case]) -> tuple[Sequence[str], str]:
    """What is expected and cannot be, and what was not looked at."""
    if not any(case.demands_a_finding for case in found):
        return (), ""
    # Loading it takes as long as all the rest, and most files ask nothing of it.
    from ackproof.judge.demands import demands

    said = demands(found)
    return said.impossible, said.rest
