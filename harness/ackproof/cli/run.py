"""`ackproof run` and `ackproof replay`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof.cli.options import (
    FILES,
    PLACES,
    backend_option,
    batch_with_paths,
    case_option,
    examples,
    from_here,
    json_option,
    keep_data_option,
    out_option,
    read_soak,
    repeat_option,
    seed_option,
    setting_options,
    shard_option,
    soak_options,
)

if TYPE_CHECKING:
    from ackproof.console import Console
    from ackproof.run.options import PlannedBatch


@click.command(
    epilog=examples(
        "ackproof run experiments/acks-matrix.yaml --case acks=all --repeat 3",
        "ackproof run first.yaml --backend docker --set cluster.kafka=4.2.1",
        codes=True,
    )
)
@click.argument("files", nargs=-1, required=True, type=FILES)
@backend_option
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,…",
    help="Run on this existing cluster. Topics are created for the run and deleted at its end.",
)
@click.option(
    "--client-config",
    type=FILES,
    help="Security settings for --bootstrap: a file with librdkafka's or Java's names. It is not copied.",
)
@click.option(
    "-X",
    "client_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="One more security setting (repeatable).",
)
@seed_option
@repeat_option
@click.option(
    "--until-decided",
    is_flag=True,
    help="Run further repeats until every expectation over repeats is decided.",
)
@click.option(
    "--at-most",
    type=click.IntRange(2, 1000),
    default=60,
    show_default=True,
    help="With --until-decided: repeats of each case at most.",
)
@soak_options
@setting_options
@case_option
@shard_option
@out_option
@keep_data_option
@click.option(
    "--simulate/--no-simulate",
    default=False,
    show_default=True,
    help="Also simulate each case, for the report (1.5 s a case).",
)
@json_option
def run(
    files: tuple[Path, ...],
    backend: str | None,
    bootstrap: str | None,
    client_config: Path | None,
    client_settings: tuple[str, ...],
    seed: int | None,
    repeat: int | None,
    until_decided: bool,
    at_most: int,
    soak: str | None,
    keep: int | None,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    shard: tuple[int, int] | None,
    out: Path,
    keep_data: bool,
    simulate: bool,
    machine: bool,
) -> int:
    """Run experiments on real clusters; audit, judge and report them."""
    from ackproof.cluster.backends.attach.options import attachment
    from ackproof.console import Console
    from ackproof.judge.demands import demands
    from ackproof.run.batch_state import warn_of_same_names
    from ackproof.run.options import BatchOptions, plan_batch

    console = Console(machine=machine)
    attached = attachment(bootstrap, client_config, client_settings, backend)
    options = BatchOptions(
        files,
        backend=backend if attached is None else "attach",
        seed=seed,
        repeat=repeat,
        only=only,
        shard=shard,
        settings=settings,
        attachment=attached,
        out=out,
        keep_data=keep_data,
        simulate=simulate,
        soak=read_soak(soak, keep),
        at_most=at_most if until_decided else None,
    )
    planned = plan_batch(options, console.warning)
    for text in warn_of_same_names(planned.cases):
        console.warning(text)
    for text in demands(case for _, case in planned.cases).impossible:
        console.warning(text)
    return _run_planned(planned, console)


def _run_planned(planned: PlannedBatch, console: Console) -> int:
    from ackproof.plan.schedule import describe_timing
    from ackproof.run.batch import run_batch

    console.lines(describe_timing(case for _, case in planned.cases))
    foreign = planned.options.attachment is not None
    with console.show(len(planned.cases), foreign=foreign) as view:
        batch = run_batch(planned, view)
    document = batch.document()
    console.batch(document, from_here(batch.location.report_html))
    if console.machine:
        console.document(batch_with_paths(document, batch.location))
    return document.exit_code


@click.command(
    epilog=examples("ackproof replay runs/latest", "ackproof replay runs/latest --case acks=1#1 --out again")
)
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=PLACES)
@case_option
@out_option
@keep_data_option
@json_option
def replay(
    directories: tuple[Path, ...], only: tuple[str, ...], out: Path, keep_data: bool, machine: bool
) -> int:
    """Run stored cases again, with the same seeds and random choices.

    RUN is a case, or a batch such as runs/latest. The experiment file is not needed: the case is in the run directory.
    """
    from ackproof.console import Console
    from ackproof.run.options import BatchOptions, PlannedBatch, expected_then, stored_cases

    console = Console(machine=machine)
    options = BatchOptions(directories, only=only, out=out, keep_data=keep_data, stored=True)
    planned = PlannedBatch(options, stored_cases(directories, only))
    for text in expected_then(directories):
        console.warning(f"replay judges each case by itself; not checked over repeats: {text}")
    return _run_planned(planned, console)
