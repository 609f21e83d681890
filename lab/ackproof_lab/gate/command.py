"""`ackproof gate`: experiments as a step of CI, on the current Kafka version and on candidates to follow it."""

from __future__ import annotations

from pathlib import Path

import click

from ackproof.cli.options import (
    FILES,
    backend_option,
    case_option,
    examples,
    repeat_option,
    seed_option,
    setting_options,
)


@click.command(
    epilog=examples(
        "ackproof gate experiments/storm.yaml --kafka 4.3.1 --kafka newest",
        "ackproof gate first.yaml --kafka '{path: ../kafka}' --repeat 5",
        codes=True,
    )
)
@click.argument("files", nargs=-1, type=FILES)
@click.option(
    "--kafka", multiple=True, metavar="VALUE", help="A release, newest, or '{path: ../kafka}' (repeatable)."
)
@setting_options
@backend_option
@repeat_option
@seed_option
@case_option
@click.option(
    "--fail-on", metavar="slower:20%", help="FAIL if a candidate is slower by more than this with certainty."
)
@click.option(
    "--out",
    type=FILES,
    default=Path("runs/gate"),
    show_default=True,
    help="Folder of batches and summary.md.",
)
def gate(
    files: tuple[Path, ...],
    kafka: tuple[str, ...],
    settings: tuple[str, ...],
    backend: str | None,
    repeat: int | None,
    seed: int | None,
    only: tuple[str, ...],
    fail_on: str | None,
    out: Path,
) -> int:
    """Run experiments on each --kafka (default: the version in each file), compare with the first, exit with the worst
    verdict.

    In GitHub Actions it also writes the job summary, annotations, and the outputs verdict, report, lost and exit-code.
    """
    from ackproof.console import Console
    from ackproof.run.options import BatchOptions
    from ackproof_lab.gate.gating import publish, run_gate

    console = Console()
    options = BatchOptions(files, backend, seed, repeat, only, settings, out=out)
    result = run_gate(options, kafka, fail_on, console)
    publish(result, out, console)
    return result.exit_code
