"""The command `ackproof`. Thin: it reads words, calls a room, and turns what came back into an exit code.

Exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE, 254 bad input, 255 the harness itself failed (or was interrupted).
Imports stand inside the commands, so that `ackproof --help` loads nothing heavy.
"""

from __future__ import annotations

import errno
import io
import signal
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof import __version__
from ackproof.base.errors import AckproofError, BadInput
from ackproof.base.interrupts import sigterm_as_interrupt
from ackproof.cli.explain import explain
from ackproof.cli.image import image, releases
from ackproof.cli.model import explore, predict
from ackproof.cli.options import only_cases, over_the_files
from ackproof.cli.simulate import simulate
from ackproof.cli.validate import validate
from ackproof.experiment.backends import BACKENDS

if TYPE_CHECKING:
    from ackproof.console import Console

EXIT_CODES = """\b
Exit codes:
  0    PASS
  1    FAIL: Kafka broke what its configuration forbids to break
  2    INCONCLUSIVE: the evidence does not carry a verdict
  254  bad input: usage, YAML, a missing tool
  255  the harness itself failed, or was interrupted
"""
HARNESS_FAILED, BAD_INPUT = 255, 254
_FILES = click.Path(path_type=Path)


def entry() -> None:
    """Entry point of the command: every way out goes through the exit codes of docs/architecture.md."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a CI job that knows no arrows must not end a run (an ASCII locale, PYTHONIOENCODING).
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = main_code(sys.argv[1:])
    # The answer is given: Ctrl-C while Python takes itself down must not make another exit code of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def main_code(arguments: list[str]) -> int:
    """Run one command and return its exit code. Never raises."""
    try:
        with sigterm_as_interrupt():
            code = main.main(args=arguments, prog_name="ackproof", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return BAD_INPUT
    except (KeyboardInterrupt, click.Abort) as error:
        interrupt = error.__cause__ or error  # click makes an Abort of it
        where = "".join(f" {note}" for note in getattr(interrupt, "__notes__", ()))
        _console().error(f"interrupted: everything was stopped, what was recorded is kept{where}")
        return HARNESS_FAILED
    except BadInput as error:
        _console().error(str(error))
        return BAD_INPUT
    except AckproofError as error:
        _console().error(str(error))
        return HARNESS_FAILED
    except BrokenPipeError:
        sys.stderr.close()
        return HARNESS_FAILED
    except OSError as error:
        where = error.filename or ("a disk is full" if error.errno == errno.ENOSPC else "the machine")
        advice = "; df -h says which, --out keeps runs elsewhere" if error.errno == errno.ENOSPC else ""
        _console().error(f"{where}: {error.strerror or error}{advice}")
        return HARNESS_FAILED
    except ModuleNotFoundError as error:
        _console().error(
            f"the Python package {error.name} is missing: this environment is older than ackproof. Install what it "
            "needs: make setup, or pip install --upgrade ackproof"
        )
        return BAD_INPUT
    except Exception as error:  # noqa: BLE001 — the last net: a crash is 255 and is shown, whatever it was
        _console().error(f"the harness failed: {type(error).__name__}: {error}\n{traceback.format_exc()}")
        return HARNESS_FAILED
    return code if isinstance(code, int) else 0


def _console(machine: bool = False) -> Console:
    from ackproof.console import Console

    return Console(machine=machine)


def _from_here(path: Path) -> str:
    """`path` as one would type it: relative where it is below the present folder."""
    here, whole = Path.cwd(), path.resolve()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ackproof")
def main() -> None:
    """Is what your Kafka acknowledged what it kept? Chaos experiments on real clusters, with a verdict."""


@main.command(epilog=EXIT_CODES)
@click.argument("files", nargs=-1, required=True, type=_FILES)
@click.option(
    "--backend",
    type=click.Choice(list(BACKENDS)),
    help="Where to run, over what the files say.",
)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,…",
    help="Run on this cluster, which someone else runs: topics of the run's own, deleted at its end.",
)
@click.option(
    "--client-config",
    type=_FILES,
    help="File of key=value lines with librdkafka's security settings for --bootstrap; nothing of it is kept.",
)
@click.option("-X", "client_settings", multiple=True, metavar="KEY=VALUE", help="One more of these settings.")
@click.option("--seed", type=click.IntRange(0), help="Seed of every random choice, over what the files say.")
@click.option("--repeat", type=click.IntRange(1), help="How often each case runs, over what the files say.")
@over_the_files
@only_cases
@click.option("--out", type=_FILES, default=Path("runs"), show_default=True, help="Where batches are kept.")
@click.option("--keep-data", is_flag=True, help="Keep the brokers' data in the run directories.")
@click.option(
    "--simulate/--no-simulate",
    default=False,
    show_default=True,
    help="Simulate each case too, for the report (1.5 s a case).",
)
@click.option(
    "--json", "machine", is_flag=True, help="batch.json on standard output, all else on standard error."
)
def run(
    files: tuple[Path, ...],
    backend: str | None,
    bootstrap: str | None,
    client_config: Path | None,
    client_settings: tuple[str, ...],
    seed: int | None,
    repeat: int | None,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    out: Path,
    keep_data: bool,
    simulate: bool,
    machine: bool,
) -> int:
    """Run experiments on real clusters, audit, judge, report."""
    from ackproof.cluster.backends.attach.options import attachment
    from ackproof.judge.demands import demands
    from ackproof.run.batch import run_batch, same_names
    from ackproof.run.options import BatchOptions, plan_cases

    console = _console(machine)
    attached = attachment(bootstrap, client_config, client_settings, backend)
    options = BatchOptions(
        files,
        backend=backend if attached is None else "attach",
        seed=seed,
        repeat=repeat,
        only=only,
        settings=settings,
        attachment=attached,
        out=out,
        keep_data=keep_data,
        simulate=simulate,
    )
    planned = plan_cases(options, lambda problem: console.warning(str(problem)))
    for text in same_names(planned):
        console.warning(text)
    for text in demands(case for _, case in planned).impossible:
        console.warning(text)
    with console.show(len(planned)) as view:
        batch = run_batch(options, view, planned)
    document = batch.document()
    console.batch(document, _from_here(batch.directory.report_html))
    if machine:
        console.raw(document.model_dump_json(indent=1))
    return document.exit_code


@main.command()
@click.argument("files", nargs=-1, required=True, type=_FILES)
@click.option("--seed", type=click.IntRange(0), help="Over what the files say.")
@click.option("--repeat", type=click.IntRange(1), help="Over what the files say.")
@over_the_files
@only_cases
def plan(
    files: tuple[Path, ...],
    seed: int | None,
    repeat: int | None,
    settings: tuple[str, ...],
    only: tuple[str, ...],
) -> int:
    """Show the full timeline of each case, every random choice drawn, before anything starts."""
    from ackproof.plan.schedule import describe
    from ackproof.run.options import BatchOptions, plan_cases

    console = _console()
    options = BatchOptions(files, seed=seed, repeat=repeat, only=only, settings=settings)
    for _, case in plan_cases(options, lambda problem: console.warning(str(problem))):
        console.lines(describe(case))
        console.line("")
    return 0


@main.command()
def schema() -> int:
    """Print the JSON Schema of experiment files, for editors."""
    from ackproof.plan.schema import schema_text

    _console().raw(schema_text())
    return 0


@main.command(epilog=EXIT_CODES)
@click.argument("directories", nargs=-1, required=True, type=_FILES)
@click.option("--master", help="Spark master, such as spark://host:7077; local by default.")
@click.option("--json", "machine", is_flag=True, help="What was counted on standard output, as JSON.")
def audit(directories: tuple[Path, ...], master: str | None, machine: bool) -> int:
    """Count what became of every record, in any directories that hold ledger/produced and ledger/consumed.

    The exit code says whether it could count (0, 2 incomplete, 254 not a ledger), not what it found.
    """
    from ackproof import audit as room

    console = _console(machine)
    results = room.run(list(directories), master=master)
    for result in results:
        state = "counted" if result.code == 0 else "; ".join(result.reasons)
        console.line(f"{result.directory}: {state}")
        if result.file is not None:
            found = ", ".join(f"{name} {count}" for name, count in result.file.counts.items() if count)
            console.line(f"    {result.file.records.acked} acked; {found or 'nothing found'}")
    if machine:
        console.document(
            [
                {
                    "directory": str(result.directory),
                    "exit_code": result.code,
                    "reasons": list(result.reasons),
                    "audit": result.file.model_dump(mode="json") if result.file else None,
                }
                for result in results
            ]
        )
    return room.exit_code(results)


@main.command(epilog=EXIT_CODES)
@click.argument("directories", nargs=-1, required=True, type=_FILES)
@click.option("--json", "machine", is_flag=True, help="batch.json or verdict.json on standard output.")
def judge(directories: tuple[Path, ...], machine: bool) -> int:
    """Judge audited batches or cases anew, from what is on disk."""
    from ackproof.base.errors import BadInput
    from ackproof.run.conclude import conclude_again, run_stages
    from ackproof.rundir.documents import VerdictFile
    from ackproof.rundir.layout import BatchDir, CaseDir
    from ackproof.rundir.outcome import worst_exit_code

    console = _console(machine)
    codes: list[int] = []
    for directory in directories:
        if BatchDir(directory).batch_json.exists():
            batch = conclude_again(BatchDir(directory.resolve()), console.line)
            console.batch(batch, _from_here(BatchDir(directory).report_html))
            codes.append(batch.exit_code)
            text = batch.model_dump_json(indent=1)
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
            text = verdict.model_dump_json(indent=1)
        if machine:
            console.raw(text)
    return worst_exit_code(codes)


def _no_batch(directory: Path, command: str) -> str:
    """What to give instead of a folder without a batch: people give `runs`, one too high, or a case, one too low."""
    for near, what in ((directory / "latest", "latest batch"), (directory.parent, "batch of this case")):
        if (near / "batch.json").exists():
            return f"{directory}: no batch.json there; the {what}: ackproof {command} {near}"
    what = "no batch.json there" if directory.is_dir() else "no such folder"
    return f"{directory}: {what}; give a batch such as runs/latest"


@main.command()
@click.argument("directories", nargs=-1, required=True, type=_FILES)
def report(directories: tuple[Path, ...]) -> int:
    """Write report.html, junit.xml and summary.md of batches anew."""
    from ackproof.base.errors import BadInput
    from ackproof.rundir.documents import BatchFile
    from ackproof.rundir.layout import BatchDir
    from ackproof_reports import render_batch

    console = _console()
    for directory in directories:
        if not BatchDir(directory).batch_json.exists():
            raise BadInput(_no_batch(directory, "report"))
        BatchFile.load(BatchDir(directory).batch_json)
        render_batch(directory)
        console.line(f"report: {BatchDir(directory).report_html}")
    return 0


@main.command()
def doctor() -> int:
    """Say what this machine has, what it lacks, and how to get it. Starts a one-node cluster to be sure."""
    from ackproof.cluster import doctor as room
    from ackproof.cluster.containers.images import look
    from ackproof.cluster.disks.file_systems import found as disks

    console = _console()
    good = True
    checks = room.doctor(lambda progress: console.line(f"… {progress.message}"))
    for check in (*checks, room.Check("disks", True, disks()), room.Check("containers", True, look())):
        good &= check.ok
        console.line(
            f"{'ok     ' if check.ok else 'MISSING'}  {check.name}: {check.found}", "" if check.ok else "red"
        )
        if not check.ok:
            console.line(f"         {check.advice}")
    return 0 if good else BAD_INPUT


@main.command("list")
@click.option("--out", type=_FILES, default=Path("runs"), show_default=True, help="Where batches are kept.")
@click.option("--json", "machine", is_flag=True, help="As JSON on standard output.")
def list_(out: Path, machine: bool) -> int:
    """List batches and their verdicts, and what is running now."""
    from ackproof.run.housekeeping import batches, running

    console = _console(machine)
    found, alive = batches(out), running()
    if machine:
        console.document(
            {"batches": [asdict(batch) for batch in found], "running": [asdict(run) for run in alive]}
        )
        return 0
    console.table(("batch", "cases", "verdict"), [(b.batch, str(b.cases), b.verdict) for b in found])
    for run in alive:
        console.line(
            f"running: {run.directory} ({run.processes} processes{', left behind' if run.left_behind else ''})"
        )
    return 0


@main.command()
@click.option("--json", "machine", is_flag=True, help="What was done, as JSON on standard output.")
def clean(machine: bool) -> int:
    """End what dead runs left behind and remove their broker data. Ledgers and logs are kept."""
    from ackproof.run.housekeeping import sweep

    console = _console(machine)
    swept = sweep()
    console.lines(swept.lines())
    if machine:
        console.document(swept.as_json())
    return HARNESS_FAILED if swept.stuck or swept.failed else 0


for command in (explain, image, releases, simulate, predict, explore, validate):
    main.add_command(command)
