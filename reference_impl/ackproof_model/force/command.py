"""The command `ackproof force`: leads real brokers through a counterexample of the explorer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ackproof.cli.options import FILES, examples, out_option
from ackproof.experiment.backends import BACKENDS

if TYPE_CHECKING:
    from ackproof.console import Console
    from ackproof_model.force.experiment import Outcome
    from ackproof_model.force.story import Story

_REPEAT: Final = click.option(
    "--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="How often a story is forced."
)
_KAFKA: Final = click.option(
    "--kafka",
    metavar="RELEASE",
    help="Force it on this release, not on the newest of the line that the rules name.",
)
_BACKEND: Final = click.option(
    "--backend",
    type=click.Choice([name for name, row in BACKENDS.items() if row.prepares]),
    help="Force it on this backend, not on processes.",
)


@dataclass(frozen=True)
class Forcing:
    """Command-line options for forcing counterexamples on real brokers.

    `kafka`: release, None for the newest of the release line that the rules describe. `backend`: None for `process`.
    `repeat`: number of runs. `out`: folder for the run directories.
    """

    kafka: str | None
    backend: str | None
    repeat: int
    out: Path


def force_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options `--force`, `--kafka`, `--backend`, `--repeat` and `--out` to a command that finds a
    counterexample.

    The command gets them as one parameter `forcing`; None without `--force`. It raises `BadInput` if one of the other
    options is given without `--force`.
    """

    @wraps(command)
    def with_forcing(force: bool, *args: object, **options: object) -> int:
        from ackproof.base.errors import BadInput

        names = ("kafka", "backend", "repeat", "out")
        source = click.get_current_context().get_parameter_source
        for name in () if force else names:
            if source(name) is click.core.ParameterSource.COMMANDLINE:
                raise BadInput(f"--{name} says how a story is forced; it goes with --force")
        how = {name: options.pop(name) for name in names}
        return command(*args, **options, forcing=Forcing(**how) if force else None)  # type: ignore[arg-type]

    flag = click.option("--force", is_flag=True, help="Walk real brokers through each story that is found.")
    return flag(_KAFKA(_BACKEND(_REPEAT(out_option(with_forcing)))))


@click.command(
    epilog=examples("ackproof force story.json", "ackproof force story.json --kafka 3.9.2 --repeat 5")
)
@click.argument("file", metavar="STORY.json", type=FILES)
@click.option("--find", "wanted", metavar="CLASS", help="Which story, where the file holds several.")
@_KAFKA
@_BACKEND
@_REPEAT
@out_option
def force(
    file: Path, wanted: str | None, kafka: str | None, backend: str | None, repeat: int, out: Path
) -> int:
    """Walk real brokers through a story that `ackproof explore --json` found, and compare each step.

    Exit code 0: it HAPPENED each time. 1: it DIVERGED, and the output shows what Kafka did instead. 2: no script can
    do one of its steps, or a run was INCONCLUSIVE.
    """
    from ackproof.console import Console
    from ackproof_model.force.story import read_story

    story, rules = read_story(file, wanted)
    return forced(story, rules, Console(), Forcing(kafka, backend, repeat, out))


def forced(story: Story, rules: str, console: Console, forcing: Forcing) -> int:
    """Write the experiment file of a counterexample to `forcing.out`, run it `forcing.repeat` times, print the
    outcomes, and return the exit code.

    0: each run followed it. 1: one diverged, and none was inconclusive. 2: no script can do a step (nothing is
    written), or a run was inconclusive. `rules`: release of the model's rules. Raises `BadInput` if the runs cannot
    be started, or their files cannot be read.
    """
    from ackproof.run.batch import run_batch
    from ackproof.run.options import BatchOptions, plan_batch
    from ackproof.rundir.document import write_atomically
    from ackproof_model.force.experiment import ForcedVerdict, Ground, Outcome, file_text, outcome_of
    from ackproof_model.force.translate import NotForceable, translated

    ground, out = Ground.from_rules(rules, forcing.kafka, forcing.backend), forcing.out
    try:
        steps = translated(story)
    except NotForceable as error:
        _tell(console, [Outcome(ForcedVerdict.NOT_FORCEABLE, str(error))])
        return 2
    file = out / f"forced-{story.kind.replace(' ', '-')}.yaml"
    write_atomically(file, file_text(story, steps, ground, repeat=forcing.repeat))
    console.line(f"{len(story.way)} steps of the model, {len(steps)} of the script: {file}")
    planned = plan_batch(BatchOptions((file,), out=out), console.warning)
    with console.show(len(planned.cases)) as view:
        batch = run_batch(planned, view)
    found = [outcome_of(story, steps, one.run) for one in batch.planned]
    _tell(console, found)
    verdicts = {one.verdict for one in found}
    if verdicts == {ForcedVerdict.HAPPENED}:
        return 0
    return 1 if verdicts <= {ForcedVerdict.HAPPENED, ForcedVerdict.DIVERGED} else 2


def _tell(console: Console, found: list[Outcome]) -> None:
    for one in found:
        console.line(str(one))
        if one.number:
            console.line(f"    the model: {one.model}")
            console.line(f"    Kafka:     {one.kafka}")
