"""Commands on experiment files before anything runs: `ackproof init`, `validate`, `plan`, `schema`."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof.base.errors import BadInput
from ackproof.cli.options import (
    FILES,
    case_option,
    examples,
    read_soak,
    repeat_option,
    seed_option,
    setting_options,
    shard_option,
    soak_options,
)
from ackproof.rundir.outcome import ExitCode

if TYPE_CHECKING:
    from ackproof.experiment.case import Case
    from ackproof.experiment.problems import Problem


@contextmanager
def _fewer_collections() -> Iterator[None]:
    """Collect garbage less often during a short command: what it loads stays, and to visit it again and again takes an
    eighth of the time of `validate`."""
    kept = gc.get_threshold()
    gc.set_threshold(100_000, *kept[1:])
    try:
        yield
    finally:
        gc.set_threshold(*kept)


@click.command(epilog=examples("ackproof init", "ackproof init leader-kill"))
@click.argument("name", default="first")
def init(name: str) -> int:
    """Write NAME.yaml, a commented experiment to start from.

    NAME is the file and the name of the experiment: any name, with or without .yaml. It selects no template. An
    existing file is left as it is, with exit code 254.
    """
    from importlib.resources import files

    from ackproof.console import Console

    path = Path(name if name.endswith(".yaml") else f"{name}.yaml")
    template = (files("ackproof.cli") / "first.yaml").read_text(encoding="utf-8")
    text = template.replace("name: NAME", f"name: {path.stem}").replace("FILE", str(path))
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent}: no such folder")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadInput(f"{path} exists already, and is left as it is") from None
    Console().line(f"wrote {path}; next: ackproof validate {path}, then plan, predict and run")
    return 0


@click.command(
    epilog=examples(
        "ackproof validate experiments/storm.yaml",
        "ackproof validate experiments/acks-matrix.yaml first.yaml --json",
    )
)
@click.argument("files", nargs=-1, required=True, type=FILES)
@setting_options
@click.option("--json", "machine", is_flag=True, help="Print all errors and warnings as a JSON list.")
@_fewer_collections()
def validate(files: tuple[Path, ...], settings: tuple[str, ...], machine: bool) -> int:
    """Check experiment files: every error with line and column, and expectations that no run can meet.

    Exit code 254 if there is an error. Warnings leave it at 0.
    """
    from ackproof.base.advice import advice_of
    from ackproof.console import Console
    from ackproof.experiment.problems import InvalidExperiment, Problem
    from ackproof.plan.cases import cases, load
    from ackproof.plan.schedule import describe_timing
    from ackproof.rundir.outcome import cases_text

    console = Console(machine=machine)
    problems: list[Problem] = []
    for file in files:
        try:
            plan = load(file, settings)
        except InvalidExperiment as error:
            problems += error.listed
            console.error(str(error))
            continue
        except BadInput as error:
            problems.append(Problem(str(file), 0, 0, "", advice_of(error)))
            console.error(str(error))
            continue
        found = cases(plan)
        impossible, unchecked = _find_impossible(found)
        errors = [plan.file.problem(("expect",), text) for text in impossible]
        for problem in plan.warnings:
            console.warning(str(problem))
        for problem in errors:
            console.error(str(problem))
        if not errors:
            console.line(f"{file}: valid, {cases_text(case.id for case in found)}{unchecked}")
            if any(case.experiment.cluster.settings_from for case in found):
                console.lines(describe_timing(found))
        problems += sorted([*plan.warnings, *errors])
    if machine:
        console.document([problem.as_json() for problem in problems])
    invalid = any(problem.severity == "error" for problem in problems)
    return int(ExitCode.BAD_INPUT) if invalid else 0


def _find_impossible(found: Sequence[Case]) -> tuple[Sequence[str], str]:
    """Return the expectations that no run can meet, and a note on cases that were not checked ('' if all were)."""
    if not any(case.demands_a_finding for case in found):
        return (), ""
    # Import the prediction only here: it takes as long to load as all the rest, and most files expect no finding.
    from ackproof.judge.demands import demands

    said = demands(found)
    return said.impossible, said.rest


@click.command(
    epilog=examples(
        "ackproof plan experiments/storm.yaml",
        "ackproof plan experiments/acks-matrix.yaml --case acks=all --seed 3",
    )
)
@click.argument("files", nargs=-1, required=True, type=FILES)
@seed_option
@repeat_option
@soak_options
@setting_options
@case_option
@shard_option
@_fewer_collections()
def plan(
    files: tuple[Path, ...],
    seed: int | None,
    repeat: int | None,
    soak: str | None,
    keep: int | None,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    shard: tuple[int, int] | None,
) -> int:
    """Show the timeline of each case with every random choice drawn. Nothing is started."""
    from ackproof.console import Console
    from ackproof.plan.doubts import estimate
    from ackproof.plan.schedule import describe, describe_timing
    from ackproof.run.machine import describe_limits
    from ackproof.run.options import BatchOptions, plan_batch

    console = Console()
    options = BatchOptions(
        files, seed=seed, repeat=repeat, only=only, shard=shard, settings=settings, soak=read_soak(soak, keep)
    )
    planned = plan_batch(options, console.warning)
    for _, case in planned.cases:
        console.lines(describe(case))
        console.line("")
    console.lines(planned.describe())
    found = [case for _, case in planned.cases]
    console.lines((*describe_timing(found), *estimate(found), *describe_limits(found)))
    return 0


@click.command(epilog=examples("ackproof schema", "ackproof schema > experiment.schema.json"))
@_fewer_collections()
def schema() -> int:
    """Print the JSON Schema of experiment files, for editors."""
    from ackproof.console import Console
    from ackproof.plan.schema import schema_text

    Console().raw(schema_text())
    return 0
