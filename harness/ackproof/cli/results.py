"""Commands on finished runs: `ackproof audit`, `judge`, `report`, `explain`, `pairs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof.base.errors import BadInput
from ackproof.cli.options import (
    PLACES,
    batch_with_paths,
    examples,
    from_here,
    read_spark_settings,
    spark_options,
)

if TYPE_CHECKING:
    from ackproof.audit.results import AuditResult
    from ackproof.rundir.documents import ExpectationJudged
    from ackproof.rundir.layout import CaseDir


@click.command(
    epilog=examples(
        "ackproof audit runs/latest",
        "ackproof audit s3://bucket/ledgers --master spark://host:7077 --json",
        codes=True,
    )
)
@click.argument("directories", nargs=-1, required=True, type=PLACES)
@spark_options
@click.option("--json", "machine", is_flag=True, help="Print the counts as JSON on standard output.")
def audit(
    directories: tuple[Path, ...],
    master: str | None,
    remote: str | None,
    conf: tuple[str, ...],
    machine: bool,
) -> int:
    """Count what became of every record in batches, cases, or any folders with ledger/produced and ledger/consumed.

    The exit code says whether it could count (0 yes, 2 incomplete, 254 not a ledger), not what it found.
    """
    from ackproof import audit as room
    from ackproof.console import Console
    from ackproof.judge import prepare_audit

    settings = read_spark_settings(master, remote, conf)
    console = Console(machine=machine)
    ledgers = [one for directory in directories for one in _ledgers(directory)]
    prepare_audit(ledgers)
    with console.show_progress("auditing") as tell:
        results = room.run(ledgers, master=master, remote=remote, conf=settings, progress=tell)
    for result in results:
        if result.file is None:
            why, whole = "; ".join(result.reasons), str(result.directory.absolute())
            console.error(why if why.startswith(whole) else f"{result.directory}: {why}")
            continue
        state = "counted" if result.code == 0 else "; ".join(result.reasons)
        console.line(f"{result.directory}: {state}")
        found = ", ".join(f"{name} {count}" for name, count in result.file.counts.items() if count)
        console.line(f"    {result.file.audited.acked} acked; {found or 'nothing found'}")
    if machine:
        console.document([_result_with_paths(result) for result in results])
    return room.exit_code(results)


def _result_with_paths(result: AuditResult) -> object:
    """Return the audit of one folder as an object for JSON. It has the exit code, the reasons, the content of
    `audit.json` and the measured expectations of the experiment. It also has the paths of the folder, of its batch and
    of the batch's report (None outside a batch)."""
    from ackproof.judge import measure_expected
    from ackproof.rundir.layout import BatchDir, CaseDir

    path = result.directory.absolute()
    batch = BatchDir(path.parent)
    of_batch = batch.batch_json.exists()
    expected: Sequence[ExpectationJudged] = ()
    reasons = list(result.reasons)
    try:
        expected = measure_expected(CaseDir(path)) if result.file else ()
    except BadInput as error:
        reasons.append(f"the experiment's expectations cannot be measured: {error}")
    return {
        "directory": str(path),
        "batch": str(batch.path) if of_batch else None,
        "report": str(batch.report_html) if of_batch else None,
        "exit_code": result.code,
        "reasons": reasons,
        "audit": result.file.model_dump(mode="json") if result.file else None,
        "expected": [one.model_dump(mode="json") for one in expected],
    }


def _ledgers(directory: Path) -> Iterator[Path]:
    """Yield the folder itself, or for a batch each of its cases that has a ledger. Raises `BadInput` for a batch
    without such a case."""
    from ackproof.rundir.batch import BatchFile
    from ackproof.rundir.layout import BatchDir, CaseDir

    if not BatchDir(directory).batch_json.exists():
        yield directory
        return
    runs = [directory / case.run for case in BatchFile.load(BatchDir(directory).batch_json).cases]
    found = [run for run in runs if CaseDir(run).ledger.exists()]
    if not found:
        raise BadInput(f"{directory}: no case of this batch has a ledger")
    yield from found


@click.command(
    epilog=examples("ackproof judge runs/latest", "ackproof judge runs/latest/acks=1_1 --json", codes=True)
)
@click.argument("directories", nargs=-1, required=True, type=PLACES)
@click.option("--json", "machine", is_flag=True, help="Print batch.json or verdict.json on standard output.")
def judge(directories: tuple[Path, ...], machine: bool) -> int:
    """Judge batches or audited cases again, from their files.

    Cases of a batch that were not audited yet are audited first.
    """
    from ackproof.console import Console
    from ackproof.run.conclude import conclude_again, judge_run
    from ackproof.rundir.documents import VerdictFile
    from ackproof.rundir.layout import BatchDir, CaseDir
    from ackproof.rundir.outcome import worst_exit_code

    console = Console(machine=machine)
    codes: list[int] = []
    for directory in directories:
        if BatchDir(directory).batch_json.exists():
            batch = conclude_again(BatchDir(directory.resolve()), console.line)
            console.batch(batch, from_here(BatchDir(directory).report_html))
            codes.append(batch.exit_code)
            document: object = batch_with_paths(batch, BatchDir(directory.resolve()))
        elif not (CaseDir(directory).case_json.exists() or CaseDir(directory).seal.exists()):
            raise BadInput(_no_batch(directory, "judge"))
        elif not CaseDir(directory).audit_json.exists():
            raise BadInput(
                f"{directory}: its ledgers were not audited yet. Run first: ackproof audit {directory}"
            )
        else:
            judge_run(CaseDir(directory))
            verdict = VerdictFile.load(CaseDir(directory).verdict_json)
            console.lines(
                [f"{directory}: {verdict.verdict}", *(f"    {reason}" for reason in verdict.reasons)]
            )
            codes.append(int(verdict.verdict.exit_code))
            document = verdict.model_dump(mode="json")
        if machine:
            console.document(document)
    return worst_exit_code(codes)


def _no_batch(directory: Path, command: str) -> str:
    """Return the error text for a folder without `batch.json`. It suggests the call `ackproof COMMAND` with a batch
    near the folder, if there is one. That is its subfolder `latest` or, if the folder may be a case, its parent."""
    for near, what in ((directory / "latest", "latest batch"), (directory.parent, "batch of this case")):
        if (near / "batch.json").exists():
            return f"{directory}: no batch.json there; the {what}: ackproof {command} {near}"
    what = "no batch.json there" if directory.is_dir() else "no such folder"
    return f"{directory}: {what}; give a batch such as runs/latest"


@click.command(
    epilog=examples("ackproof report runs/latest", "ackproof report runs/20260101T000000Z-first runs/latest")
)
@click.argument("directories", nargs=-1, required=True, type=PLACES)
def report(directories: tuple[Path, ...]) -> int:
    """Write report.html, junit.xml and summary.md of batches again."""
    from ackproof.console import Console
    from ackproof.rundir.batch import BatchFile
    from ackproof.rundir.layout import BatchDir
    from ackproof_reports import render_batch

    console = Console()
    for directory in directories:
        if not BatchDir(directory).batch_json.exists():
            raise BadInput(_no_batch(directory, "report"))
        BatchFile.load(BatchDir(directory).batch_json)
        render_batch(directory)
        console.line(f"report: {BatchDir(directory).report_html}")
    return 0


@click.command(
    epilog=examples(
        "ackproof explain runs/latest", "ackproof explain runs/latest --case acks=1 --record 0:2217"
    )
)
@click.argument("directory", type=PLACES)
@click.option("--record", "records", metavar="PRODUCER:SEQ", multiple=True, help="This record (repeatable).")
@click.option(
    "--at", "spot", metavar="TOPIC/PARTITION@OFFSET", help="The records acknowledged or read at this offset."
)
@click.option("--class", "anomaly", metavar="CLASS", help="The first finding of this class, such as lost.")
@click.option("--case", "case", metavar="ID", help="Case of the batch.")
def explain(
    directory: Path, records: tuple[str, ...], spot: str | None, anomaly: str | None, case: str | None
) -> int:
    """Tell the story of one record: sent, acknowledged, read, and the faults, elections or truncations between.

    DIRECTORY is a case, or a batch such as runs/latest. Without an option: the first record of the class for which a
    case failed; if none failed, the first lost record, else the gravest finding.
    """
    from ackproof.console import Console
    from ackproof.rundir.anomalies import LIVENESS
    from ackproof.rundir.documents import VerdictFile
    from ackproof.rundir.outcome import Verdict
    from ackproof_reports.group_story import is_commit_class, tell_commit
    from ackproof_reports.one_record import RecordId, Spot, find_records, first_found, story_of
    from ackproof_reports.recovery import tell_unrecovered

    if sum(map(bool, (records, spot, anomaly))) > 1:
        raise BadInput("give one of --record, --at and --class")
    run = _case(directory, case, anomaly)
    judged = VerdictFile.load(run.verdict_json) if run.verdict_json.exists() else None
    if judged is not None and not (records or spot or anomaly):
        anomaly = next((one.anomaly for one in judged.classes if one.forbidden and one.count), None)
    console = Console()
    if anomaly in LIVENESS:
        console.lines([f"{run.path}", *tell_unrecovered(run, anomaly)])
        return 0
    if anomaly is not None and is_commit_class(anomaly):
        console.lines([f"{run.path}", *tell_commit(run, anomaly)])
        return 0
    if records:
        wanted = [RecordId.parse(text) for text in records]
    else:
        found = Spot.parse(spot) if spot else first_found(run, anomaly)
        wanted = [found] if isinstance(found, RecordId) else find_records(run, found)
    console.line(f"{run.path}")
    if judged is not None and judged.verdict is not Verdict.PASS:
        console.lines(f"{judged.verdict}: {reason}" for reason in judged.reasons)
    for number, who in enumerate(wanted):
        console.lines([*([""] if number else []), *story_of(run, who).lines()])
    return 0


def _case(directory: Path, wanted: str | None, anomaly: str | None) -> CaseDir:
    """Return the case to explain. `directory`: this case, or a batch. `wanted`: name of the case in the batch.

    Without `wanted`, choose among the cases with findings of class `anomaly` (None: of any class). FAIL comes first,
    then cases with lost records, then the order of the batch. If no case has such findings, choose the only case of the
    batch. Raises `BadInput` if there is no such case, if `wanted` names none or several, and if the folder is neither a
    case nor a batch.
    """
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
                f"{directory}: --case {wanted} matches several: {', '.join(one.title for one in meant)}"
            )
        return CaseDir(directory / meant[0].run)
    found = [
        one for one in entries if any(one.counts.get(name) for name in ([anomaly] if anomaly else Anomaly))
    ]
    found.sort(key=lambda one: (one.verdict is not Verdict.FAIL, not one.counts.get(Anomaly.LOST)))
    entry = next(iter(found or (entries if len(entries) == 1 else ())), None)
    if entry is None:
        what = f"no {anomaly}" if anomaly else "nothing"
        raise BadInput(f"{directory}: {what} was found in any case. Choose one with --case: {names}")
    return CaseDir(directory / entry.run)


@click.command(epilog=examples("ackproof pairs runs/latest", "ackproof pairs runs/*-pairs --json"))
@click.argument("directories", metavar="BATCH...", nargs=-1, required=True, type=PLACES)
@click.option("--json", "machine", is_flag=True, help="Print the merged tables as JSON on standard output.")
def pairs(directories: tuple[Path, ...], machine: bool) -> int:
    """Merge the results of storms of pairs (`pairs: all`) from several batches, such as shards of a sweep. Print the
    number of pairs with each result, and why a pair was not covered although it ran.

    A pair of fault kinds is covered if both faults were confirmed and in force at the same time. It is refused if the
    two kinds cannot be combined. Exit code 0 if every pair was covered or refused, else 2.
    """
    from ackproof.console import Console
    from ackproof.rundir.batch import PairOutcome, PairsFile, merge_pairs
    from ackproof.rundir.layout import BatchDir

    there = [BatchDir(directory).pairs_json for directory in directories]
    for path in there:
        if not path.exists():
            raise BadInput(
                f"{path.parent}: this batch had no storm of pairs. Run one: experiments/pairs.yaml"
            )
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
