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
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof import __version__
from ackproof.base.errors import AckproofError, BadInput
from ackproof.base.extensions import load_commands
from ackproof.base.interrupts import sigterm_as_interrupt
from ackproof.base.locales import begin_anew_in_utf8
from ackproof.cli.explain import explain
from ackproof.cli.image import image, releases
from ackproof.cli.options import (
    FILES,
    examples,
    only_cases,
    over_the_files,
    shard_option,
    soak_of,
    soak_options,
)
from ackproof.cli.pairs import pairs
from ackproof.cli.results import audit, judge, report
from ackproof.cli.run import replay, run
from ackproof.cli.validate import validate

if TYPE_CHECKING:
    from ackproof.console import Console

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


class _Commands(click.Group):
    """Refuses an option that is given twice and of which one value alone could count."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            own = click.Context(command, info_name=name, parent=ctx, **command.context_settings)
            _, _, order = command.make_parser(own).parse_args(list(rest))
            for one, times in Counter(order).items():
                if times > 1 and isinstance(one, click.Option) and not one.multiple:
                    if one.is_flag and not one.secondary_opts:
                        continue  # it says the same again
                    raise click.UsageError(f"{one.opts[0]} is given {times} times; it takes one value", own)
        return name, command, rest


@click.group(
    cls=_Commands,
    epilog=examples("ackproof run experiments/acks-matrix.yaml", "ackproof explain runs/latest", codes=True),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="ackproof")
def main() -> None:
    """Is what your Kafka acknowledged what it kept? Chaos experiments on real clusters, with a verdict."""


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
@soak_options
@over_the_files
@only_cases
@shard_option
def plan(
    files: tuple[Path, ...],
    seed: int | None,
    repeat: int | None,
    soak: str | None,
    keep: int | None,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    shard: tuple[int, int] | None,
) -> int:
    """Show the full timeline of each case, every random choice drawn, before anything starts."""
    from ackproof.plan.doubts import estimate
    from ackproof.plan.schedule import describe, describe_timing
    from ackproof.run.machine import describe_limits
    from ackproof.run.options import BatchOptions, plan_batch

    console = _console()
    options = BatchOptions(
        files, seed=seed, repeat=repeat, only=only, shard=shard, settings=settings, soak=soak_of(soak, keep)
    )
    planned = plan_batch(options, console.warning)
    for _, case in planned.cases:
        console.lines(describe(case))
        console.line("")
    console.lines(planned.describe())
    found = [case for _, case in planned.cases]
    console.lines((*describe_timing(found), *estimate(found), *describe_limits(found)))
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
            {"batches": [asdict(batch) for batch in found], "running": [asdict(one) for one in alive]}
        )
        return 0
    if found:
        console.table(("batch", "runs", "verdict"), [(b.batch, str(b.cases), b.verdict) for b in found])
    else:
        console.line(f"{out}: no batch is here")
    for one in alive:
        left = ", left behind" if one.left_behind else ""
        console.line(f"running: {one.directory} ({one.processes} processes{left})")
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
    *(run, replay, audit, judge, report, explain, pairs, image, releases, validate),
    *load_commands(),
):
    main.add_command(command)
