"""`ackproof pairs`: which pairs of fault kinds several batches had in force together. Thin."""

from __future__ import annotations

from pathlib import Path

import click

from ackproof.cli.options import PLACES, examples


@click.command(epilog=examples("ackproof pairs runs/latest", "ackproof pairs runs/*-pairs --json"))
@click.argument("directories", metavar="BATCH...", nargs=-1, required=True, type=PLACES)
@click.option("--json", "machine", is_flag=True, help="The merged tables as JSON on standard output.")
def pairs(directories: tuple[Path, ...], machine: bool) -> int:
    """Merge the pairs of several batches, such as the shards of a sweep: what was covered, what not, and why.

    Exit code 0 when every pair was covered or refused, else 2.
    """
    from ackproof.base.errors import BadInput
    from ackproof.console import Console
    from ackproof.rundir.batch import PairOutcome, PairsFile, merge_pairs
    from ackproof.rundir.layout import BatchDir

    there = [BatchDir(directory).pairs_json for directory in directories]
    for path in there:
        if not path.exists():
            raise BadInput(f"{path.parent}: no storm of pairs ran here; run experiments/pairs.yaml")
    merged = merge_pairs(map(PairsFile.load, there))
    console = Console(machine=machine)
    for table in merged.tables:
        console.line(f"{table.title}: {table.tally}")
        for pair in table.having(PairOutcome.NOT_BITTEN):
            console.line(f"  {' + '.join(pair.kinds)}: {pair.case}: {pair.why}")
    if machine:
        console.raw(merged.model_dump_json(indent=1))
    left = (PairOutcome.NOT_BITTEN, PairOutcome.NOT_RUN)
    return 2 if any(table.having(outcome) for table in merged.tables for outcome in left) else 0
