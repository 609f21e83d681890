"""`ackproof audit`, `judge`, `report`: what is worked out of runs on disk, again. Thin, as `ackproof.cli.main` is."""

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
    spark_options,
    spark_settings,
)

if TYPE_CHECKING:
    from ackproof.audit.results import AuditResult
    from ackproof.rundir.documents import ExpectationJudged


@click.command(
    epilog=examples(
        "ackproof audit runs/latest",
        "ackproof audit s3://bucket/ledgers --master spark://host:7077 --json",
        codes=True,
    )
)
@click.argument("directories", nargs=-1, required=True, type=PLACES)
@spark_options
@click.option("--json", "machine", is_flag=True, help="What was counted on standard output, as JSON.")
def audit(
    directories: tuple[Path, ...],
    master: str | None,
    remote: str | None,
    conf: tuple[str, ...],
    machine: bool,
) -> int:
    """Count what became of every record, in batches, cases, or any directories that hold ledger/produced and
    ledger/consumed.

    The exit code says whether it could count (0, 2 incomplete, 254 not a ledger), not what it found.
    """
    from ackproof import audit as room
    from ackproof.console import Console
    from ackproof.judge import work_out_removals

    settings = spark_settings(master, remote, conf)
    console = Console(machine=machine)
    ledgers = [one for directory in directories for one in _ledgers(directory)]
    work_out_removals(ledgers)
    with console.telling("auditing") as tell:
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
    """What was counted in one folder, which batch and report it belongs to, and what its experiment expects."""
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
        reasons.append(f"what the experiment expects cannot be measured: {error}")
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
    """The folders that are meant: of a batch those of its cases that came to a ledger. Raises `BadInput` for none."""
    from ackproof.rundir.batch import BatchFile
    from ackproof.rundir.layout import BatchDir, CaseDir

    if not BatchDir(directory).batch_json.exists():
        yield directory
        return
    runs = [directory / case.run for case in BatchFile.load(BatchDir(directory).batch_json).cases]
    found = [run for run in runs if CaseDir(run).ledger.exists()]
    if not found:
        raise BadInput(f"{directory}: no case of this batch came to a ledger")
    yield from found


@click.command(
    epilog=examples("ackproof judge runs/latest", "ackproof judge runs/latest/acks=1_1 --json", codes=True)
)
@click.argument("directories", nargs=-1, required=True, type=PLACES)
@click.option("--json", "machine", is_flag=True, help="batch.json or verdict.json on standard output.")
def judge(directories: tuple[Path, ...], machine: bool) -> int:
    """Judge audited batches or cases anew, from what is on disk."""
    from ackproof.console import Console
    from ackproof.run.conclude import conclude_again, run_stages
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
            told: object = batch_with_paths(batch, BatchDir(directory.resolve()))
        elif not (CaseDir(directory).case_json.exists() or CaseDir(directory).seal.exists()):
            raise BadInput(_no_batch(directory, "judge"))
        elif not CaseDir(directory).audit_json.exists():
            raise BadInput(f"{directory}: its ledgers were never counted; first: ackproof audit {directory}")
        else:
            run_stages(CaseDir(directory))
            verdict = VerdictFile.load(CaseDir(directory).verdict_json)
            console.lines(
                [f"{directory}: {verdict.verdict}", *(f"    {reason}" for reason in verdict.reasons)]
            )
            codes.append(int(verdict.verdict.exit_code))
            told = verdict.model_dump(mode="json")
        if machine:
            console.document(told)
    return worst_exit_code(codes)


def _no_batch(directory: Path, command: str) -> str:
    """What to give instead of a folder without a batch: people give `runs`, one too high, or a case, one too low."""
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
    """Write report.html, junit.xml and summary.md of batches anew."""
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
