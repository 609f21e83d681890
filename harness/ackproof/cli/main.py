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
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof import __version__
from ackproof.base.errors import AckproofError, BadInput
from ackproof.base.interrupts import sigterm_as_interrupt
from ackproof.base.locales import begin_anew_in_utf8
from ackproof.cli.claims import claims
from ackproof.cli.explain import explain
from ackproof.cli.image import image, releases
from ackproof.cli.model import explore, predict
from ackproof.cli.options import (
    FILES,
    PLACES,
    examples,
    from_here,
    json_option,
    keep_data_option,
    only_cases,
    out_option,
    over_the_files,
)
from ackproof.cli.results import audit, judge, report
from ackproof.cli.simulate import simulate
from ackproof.cli.sql import sql
from ackproof.cli.validate import validate
from ackproof.experiment.backends import BACKENDS

if TYPE_CHECKING:
    from ackproof.console import Console
    from ackproof.experiment.case import Case
    from ackproof.run.options import BatchOptions

HARNESS_FAILED, BAD_INPUT = 255, 254


class _NoPandas(MetaPathFinder):
    """pyarrow imports pandas where it is installed, as soon as anything is compared: 0.5 s, which
    only Spark Connect needs to spend."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas" and "pyspark.sql.connect" not in sys.modules:
            raise ModuleNotFoundError("not for this command", name=name)


def entry() -> None:
    """The command, once it is loaded: every way out goes through the exit codes of docs/architecture.md."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a CI job that knows no arrows must not end a run (an ASCII locale, PYTHONIOENCODING).
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.meta_path.insert(0, _NoPandas())
    code = main_code(sys.argv[1:], _begin)
    # The answer is given: Ctrl-C while Python takes itself down must not make another exit code of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _begin() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `cli.start` left it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    begin_anew_in_utf8()


def main_code(arguments: list[str], begin: Callable[[], None] = lambda: None) -> int:
    """Run one command and return its exit code. Never raises. `begin` comes before it."""
    try:
        begin()
        with sigterm_as_interrupt():
            code = main.main(args=arguments, prog_name="ackproof", standalone_mode=False)
    except click.ClickException as error:
        text = io.StringIO()
        error.show(text)
        _console().error(text.getvalue().replace("\n\n", "\n"))
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


@click.group(
    epilog=examples("ackproof run experiments/acks-matrix.yaml", "ackproof explain runs/latest", codes=True),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="ackproof")
def main() -> None:
    """Is what your Kafka acknowledged what it kept? Chaos experiments on real clusters, with a verdict."""


@main.command(
    epilog=examples(
        "ackproof run experiments/acks-matrix.yaml --case acks=all --repeat 3",
        "ackproof run first.yaml --backend docker --set cluster.kafka=4.2.1",
        codes=True,
    )
)
@click.argument("files", nargs=-1, required=True, type=FILES)
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
    type=FILES,
    help="File of key=value lines with librdkafka's security settings for --bootstrap; nothing of it is kept.",
)
@click.option("-X", "client_settings", multiple=True, metavar="KEY=VALUE", help="One more of these settings.")
@click.option("--seed", type=click.IntRange(0), help="Seed of every random choice, over what the files say.")
@click.option("--repeat", type=click.IntRange(1), help="How often each case runs, over what the files say.")
@over_the_files
@only_cases
@out_option
@keep_data_option
@click.option(
    "--simulate/--no-simulate",
    default=False,
    show_default=True,
    help="Simulate each case too, for the report (1.5 s a case).",
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
    from ackproof.run.batch import same_names
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
    return _brought(options, planned, console)


def _brought(options: BatchOptions, planned: Sequence[tuple[Path, Case]], console: Console) -> int:
    """Run these cases, and tell what they came to."""
    from ackproof.run.batch import run_batch

    with console.show(len(planned)) as view:
        batch = run_batch(options, view, planned)
    document = batch.document()
    console.batch(document, from_here(batch.kept.report_html))
    if console.machine:
        console.raw(document.model_dump_json(indent=1))
    return document.exit_code


@main.command(
    epilog=examples("ackproof replay runs/latest", "ackproof replay runs/latest --case acks=1#1 --out again")
)
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=PLACES)
@only_cases
@out_option
@keep_data_option
@json_option
def replay(
    directories: tuple[Path, ...], only: tuple[str, ...], out: Path, keep_data: bool, machine: bool
) -> int:
    """Run stored cases again, each with its seed and every choice as it was drawn then.

    RUN is a case, or a batch such as runs/latest. The experiment file may be gone, or may say something else by now.
    """
    from ackproof.run.options import BatchOptions, stored_cases

    planned = stored_cases(directories, only)
    options = BatchOptions(directories, only=only, out=out, keep_data=keep_data, stored=True)
    return _brought(options, planned, _console(machine))


@main.command(epilog=examples("ackproof init", "ackproof init leader-kill"))
@click.argument("name", default="first")
def init(name: str) -> int:
    """Write NAME.yaml, a commented experiment that validates and runs, to begin with."""
    from importlib.resources import files

    path = Path(name if name.endswith(".yaml") else f"{name}.yaml")
    template = (files("ackproof.cli") / "first.yaml").read_text(encoding="utf-8")
    text = template.replace("name: NAME", f"name: {path.stem}").replace("FILE", str(path))
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent}: no such folder")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadInput(f"{path} is there already, and stays as it is") from None
    _console().line(f"{path} is written; next: ackproof validate {path}, then plan, predict and run")
    return 0


@main.command(
    epilog=examples(
        "ackproof plan experiments/storm.yaml",
        "ackproof plan experiments/acks-matrix.yaml --case acks=all --seed 3",
    )
)
@click.argument("files", nargs=-1, required=True, type=FILES)
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


@main.command(epilog=examples("ackproof schema", "ackproof schema > experiment.schema.json"))
def schema() -> int:
    """Print the JSON Schema of experiment files, for editors."""
    from ackproof.plan.schema import schema_text

    _console().raw(schema_text())
    return 0


@main.command(epilog=examples("ackproof doctor", "ackproof doctor | grep MISSING"))
def doctor() -> int:
    """Say what this machine has, what it lacks, and how to get it. Starts a one-node cluster to be sure."""
    from ackproof.cluster import doctor as room
    from ackproof.cluster.containers.images import look
    from ackproof.cluster.disks.file_systems import found as disks
    from ackproof.provision.progress import in_words

    console = _console()
    good = True
    checks = room.doctor(in_words(lambda text: console.line(f"… {text}")))
    for check in (*checks, room.Check("disks", True, disks()), room.Check("containers", True, look())):
        good &= check.ok
        console.line(
            f"{'ok     ' if check.ok else 'MISSING'}  {check.name}: {check.found}", "" if check.ok else "red"
        )
        if not check.ok:
            console.line(f"         {check.advice}")
    return 0 if good else BAD_INPUT


@main.command("list", epilog=examples("ackproof list", "ackproof list --out elsewhere --json"))
@click.option("--out", type=FILES, default=Path("runs"), show_default=True, help="Where batches are kept.")
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
    if found:
        console.table(("batch", "cases", "verdict"), [(b.batch, str(b.cases), b.verdict) for b in found])
    else:
        console.line(f"{out}: no batch is here")
    for run in alive:
        console.line(
            f"running: {run.directory} ({run.processes} processes{', left behind' if run.left_behind else ''})"
        )
    return 0


@main.command(epilog=examples("ackproof clean", "ackproof clean --json"))
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


for command in (
    audit,
    judge,
    report,
    explain,
    sql,
    image,
    releases,
    simulate,
    predict,
    explore,
    validate,
    claims,
):
    main.add_command(command)
