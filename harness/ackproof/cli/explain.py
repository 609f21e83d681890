"""`ackproof explain`: the story of one record. Thin, as `ackproof.cli.main` is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ackproof.rundir.layout import CaseDir


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--record", "records", metavar="PRODUCER:SEQ", multiple=True, help="This record (may be given again)."
)
@click.option("--at", "spot", metavar="TOPIC/PARTITION@OFFSET", help="Who was acknowledged or read there.")
@click.option("--class", "anomaly", metavar="CLASS", help="The first finding of this class, such as lost.")
@click.option("--case", "case", metavar="ID", help="Which case, if DIRECTORY is a batch of several.")
def explain(
    directory: Path, records: tuple[str, ...], spot: str | None, anomaly: str | None, case: str | None
) -> int:
    """Tell what became of one record: sent, acknowledged, read, which faults and elections, what took it.

    DIRECTORY is a case, or a batch such as runs/latest. Without a record: the first that was lost, or whatever the
    audit found that weighs most.
    """
    from ackproof.base.errors import BadInput
    from ackproof.console import Console
    from ackproof_reports.one_record import RecordId, Spot, at, first_found, story_of

    if sum(map(bool, (records, spot, anomaly))) > 1:
        raise BadInput("--record, --at and --class each name records: give one of them")
    run = _case(directory, case)
    if records:
        wanted = [RecordId.parse(text) for text in records]
    else:
        found = Spot.parse(spot) if spot else first_found(run, anomaly)
        wanted = [found] if isinstance(found, RecordId) else at(run, found)
    console = Console()
    console.line(f"{run.path}")
    for number, who in enumerate(wanted):
        console.lines([*([""] if number else []), *story_of(run, who).lines()])
    return 0


def _case(directory: Path, wanted: str | None) -> CaseDir:
    """The case that is meant: the folder itself; of a batch the one that is named, its only one, or the first that
    lost something."""
    from ackproof.base.errors import BadInput
    from ackproof.rundir.documents import BatchFile
    from ackproof.rundir.layout import BatchDir, CaseDir

    if CaseDir(directory).case_json.exists():
        return CaseDir(directory)
    if not BatchDir(directory).batch_json.exists():
        raise BadInput(f"{directory}: neither a case nor a batch; give one such as runs/latest")
    entries = BatchFile.load(BatchDir(directory).batch_json).cases
    names = ", ".join(entry.case for entry in entries)
    if wanted is not None:
        entry = next((entry for entry in entries if entry.case == wanted), None)
        if entry is None:
            raise BadInput(f"{directory}: no case {wanted!r}; there are {names}")
    else:
        entry = next((entry for entry in entries if entry.counts.get("lost")), None)
        if entry is None and len(entries) == 1:
            entry = entries[0]
        if entry is None:
            raise BadInput(f"{directory}: nothing was lost in any case; name one with --case: {names}")
    return CaseDir(directory / entry.run)
