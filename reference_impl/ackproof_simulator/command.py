"""The command `ackproof simulate`: many seeds of each case in virtual time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof.cli.options import FILES, case_option, examples, setting_options

if TYPE_CHECKING:
    from ackproof.console import Console
    from ackproof.experiment.case import Case
    from ackproof.rundir.model import SimulationFile
    from ackproof_simulator.sweep import Mapper

_TELL_EVERY_S = 5.0
_SHOWN = ("lost", "duplicate", "unavailable_ms")


@click.command(
    epilog=examples(
        "ackproof simulate experiments/acks-matrix.yaml",
        "ackproof simulate first.yaml --seeds 10000 --master local[2]",
    )
)
@click.argument("files", nargs=-1, required=True, type=FILES)
@click.option("--seeds", type=click.IntRange(1, 10_000_000), default=200, show_default=True, help="How many.")
@click.option(
    "--seed", "first", type=click.IntRange(0), default=0, show_default=True, help="The first of them."
)
@click.option("--master", metavar="URL", help="Spread the seeds over Spark: local[2], spark://host:7077.")
@click.option(
    "--batches",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="About so many batches a run: more are finer and slower.",
)
@setting_options
@case_option
@click.option("--no-shrink", is_flag=True, help="Do not look for the fewest faults that show a finding.")
@click.option("--out", type=FILES, help="Write a folder with simulation.json for each case there.")
@click.option(
    "--json", "machine", is_flag=True, help="The result as JSON on standard output, all else on stderr."
)
def simulate(
    files: tuple[Path, ...],
    seeds: int,
    first: int,
    master: str | None,
    batches: int,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    no_shrink: bool,
    out: Path | None,
    machine: bool,
) -> int:
    """Simulate each case at many seeds, in the reference implementation and virtual time. Print how often and how many
    records are lost or duplicated, and how long a partition is unavailable.

    \b
    Exit codes: 0 each upper bound of `expect` holds at every seed, each lower bound at one or more;
    1 an upper bound was broken at some seed; 2 a lower bound was met at no seed, or no run was
    complete; 254 bad input; 255 interrupted.
    """
    from ackproof.console import Console
    from ackproof.run.options import BatchOptions, command_of, plan_cases
    from ackproof.rundir.layout import BatchDir
    from ackproof.rundir.model import SweepFile
    from ackproof_simulator.sweep import FEW, in_processes, linger_for, sweep, with_linger

    console = Console(machine=machine)
    every = plan_cases(BatchOptions(files, backend="model", only=only, settings=settings))
    # Its repeats are alike but for their seeds, and the seeds are those of the sweep.
    first_ones = {(file, case.id.rpartition("#")[0]): (file, case) for file, case in reversed(every)}
    planned = list(reversed(first_ones.values()))
    found, codes = [], []
    with ExitStack() as stack:
        mapper: Mapper | None = None
        if master is not None:
            from ackproof_simulator.sweep import over_spark

            mapper = stack.enter_context(over_spark(master))
        elif seeds > FEW:
            mapper = in_processes
        for file, case in planned:
            linger = linger_for(case.experiment, batches)
            words = (*settings, f"workload.producers.linger={linger * 1000:g}ms")
            again = BatchOptions((file,), backend="model", settings=words)

            def command(seed: int, again: BatchOptions = again, case: Case = case) -> str:
                return command_of(again, seed, only=case.id.rpartition("#")[0])

            chosen, told = range(first, first + seeds), _progress(console)
            result = sweep(with_linger(case, linger), chosen, command, mapper, told, shrinks=not no_shrink)
            _tell(console, result)
            codes.append(_code(case, result))
            found.append(result)
            if out is not None:
                result.save(BatchDir(out).case(case.id).simulation_json)
    code = 1 if 1 in codes else max(codes, default=0)
    if machine:
        console.document(SweepFile(cases=tuple(found), exit_code=code).model_dump(mode="json"))
    return code


def _progress(console: Console) -> Callable[[int, int], None]:
    told = time.monotonic()

    def progress(done: int, of: int) -> None:
        nonlocal told
        if time.monotonic() - told >= _TELL_EVERY_S:
            told = time.monotonic()
            console.line(f"… {done} of {of} runs")

    return progress


def _tell(console: Console, result: SimulationFile) -> None:
    rate = result.runs / result.seconds if result.seconds else 0
    console.line(
        f"{result.case}: {result.runs} runs in {result.seconds:.1f} s ({rate:.0f} a second), batches of "
        f"{result.linger_ms:g} ms"
        + (f"; {result.incomplete} were incomplete and do not count" if result.incomplete else "")
    )
    rows = []
    for name in _SHOWN:
        one = result.spread(name)
        if one is not None and one.runs:
            rows.append(
                (
                    name,
                    f"{one.seen / one.runs:.1%} ({one.share_low:.1%} – {one.share_high:.1%})",
                    f"{one.mean:.1f} ({one.mean_low:.1f} – {one.mean_high:.1f})",
                    f"{one.p50:.0f}",
                    f"{one.p95:.0f}",
                    f"{one.most:.0f}",
                )
            )
    console.table(
        ("", "share of runs (95 %, Wilson)", "mean (95 %, bootstrap)", "median", "95th", "most"), rows
    )
    console.lines(
        f"  {worst.what} {worst.value:.0f} at seed {worst.seed}: {worst.command}" for worst in result.worst
    )
    if result.shrunk is not None:
        shrunk = result.shrunk
        console.line(
            f"  seed {shrunk.seed} shows {shrunk.what} {shrunk.value:.0f} with {len(shrunk.faults)} of "
            f"{shrunk.before} faults ({shrunk.runs} schedules tried):"
        )
        console.lines(f"    {fault}" for fault in shrunk.faults)
    console.line("")


def _code(case: Case, result: SimulationFile) -> int:
    """Return the exit code for one case. 2: no run was complete with all its faults confirmed, or a lower bound was met
    at no seed. 1: an upper bound was broken at a seed. 0: otherwise. Bounds of classes that are not simulated have no
    effect."""
    if result.incomplete == result.runs:
        return 2
    bounds: Sequence[tuple[str, float, float | None]] = [
        (name, bound.lowest, bound.highest)
        for expect in case.experiment.expect
        for name, bound in expect.counts.items()
    ]
    code = 0
    for name, lowest, highest in bounds:
        spread = result.spread(name)
        if spread is None or not spread.runs:
            continue
        if highest is not None and spread.most > highest:
            return 1
        if spread.most < lowest:
            code = 2
    return code
