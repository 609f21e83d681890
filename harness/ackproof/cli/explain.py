"""`ackproof explain`: the story of one record. Thin, as `ackproof.cli.main` is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof.cli.options import PLACES, examples

if TYPE_CHECKING:
    from ackproof.rundir.batch import BatchCase
    from ackproof.rundir.layout import CaseDir


@click.command(
    epilog=examples(
        "ackproof explain runs/latest", "ackproof explain runs/latest --case acks=1 --record 0:2217"
    )
)
@click.argument("directory", type=PLACES)
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

    DIRECTORY is a case, or a batch such as runs/latest. Without a record: the first of the class for which a case
    failed; where none did, the first that was lost, or whatever the audit found that weighs most.
    """
    from ackproof.base.errors import BadInput
    from ackproof.console import Console
    from ackproof.rundir.anomalies import LIVENESS
    from ackproof.rundir.documents import VerdictFile
    from ackproof.rundir.outcome import Verdict
    from ackproof_reports.one_record import RecordId, Spot, at, first_found, story_of
    from ackproof_reports.unrecovered import tell_unrecovered

    if sum(map(bool, (records, spot, anomaly))) > 1:
        raise BadInput("--record, --at and --class each name records: give one of them")
    run = _case(directory, case, anomaly)
    judged = VerdictFile.load(run.verdict_json) if run.verdict_json.exists() else None
    if judged is not None and not (records or spot or anomaly):
        anomaly = next((one.anomaly for one in judged.classes if one.forbidden and one.count), None)
    console = Console()
    if anomaly in LIVENESS:
        console.lines([f"{run.path}", *tell_unrecovered(run, anomaly)])
        return 0
    if records:
        wanted = [RecordId.parse(text) for text in records]
    else:
        found = Spot.parse(spot) if spot else first_found(run, anomaly)
        wanted = [found] if isinstance(found, RecordId) else at(run, found)
    console.line(f"{run.path}")
    if judged is not None and judged.verdict is not Verdict.PASS:
        console.lines(f"{judged.verdict}: {reason}" for reason in judged.reasons)
    for number, who in enumerate(wanted):
        console.lines([*([""] if number else []), *story_of(run, who).lines()])
    return 0


def _case(directory: Path, wanted: str | None, anomaly: str | None) -> CaseDir:
    """The case that is meant: the folder itself; of a batch the one that is named, its only one, or of those in which
    the class (without one: anything, a loss before all else) was found the first that failed, else the first."""
    from ackproof.base.errors import BadInput
    from ackproof.experiment.case import find_cases
    from ackproof.rundir.anomalies import Anomaly
    from ackproof.rundir.batch import BatchFile
    from ackproof.rundir.layout import BatchDir, CaseDir
    from ackproof.rundir.outcome import Verdict

    if CaseDir(directory).case_json.exists():
        return CaseDir(directory)
    if not BatchDir(directory).batch_json.exists():
        raise BadInput(f"{directory}: neither a case nor a batch; give one such as runs/latest")
    entries = BatchFile.load(BatchDir(directory).batch_json).cases
    names = ", ".join(entry.title for entry in entries)
    if wanted is not None:
        titled = any(one.title == wanted for one in entries)
        chosen = set(find_cases(wanted, [one.title if titled else one.case for one in entries]))
        meant = [one for one in entries if (one.title if titled else one.case) in chosen]
        if len(meant) > 1:
            raise BadInput(
                f"{directory}: --case {wanted}: name one of {', '.join(one.title for one in meant)}"
            )
        return CaseDir(directory / meant[0].run)
    found = [one for one in entries if _finds(one, anomaly)]
    found.sort(key=lambda one: (one.verdict is not Verdict.FAIL, not one.counts.get(Anomaly.LOST)))
    entry = next(iter(found or (entries if len(entries) == 1 else ())), None)
    if entry is None:
        what = f"no {anomaly}" if anomaly else "nothing"
        raise BadInput(f"{directory}: {what} was found in any case; name one with --case: {names}")
    return CaseDir(directory / entry.run)


def _finds(entry: BatchCase, anomaly: str | None) -> bool:
    """Whether the audit found this class in a case, or any."""
    from ackproof.rundir.anomalies import Anomaly

    return any(entry.counts.get(name) for name in ([anomaly] if anomaly else Anomaly))
