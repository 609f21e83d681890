"""The command `ackproof`: its groups, its exit codes, and its error messages.

Exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE, 254 bad input, 255 the harness itself failed (or was interrupted). Each
command imports inside its function what it needs, so that `ackproof --help` loads nothing heavy.
"""

from __future__ import annotations

import errno
import io
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from importlib.abc import MetaPathFinder

import click

from ackproof import __version__
from ackproof.base.environment import restart_in_utf8
from ackproof.base.errors import AckproofError, BadInput
from ackproof.base.wait import sigterm_as_interrupt
from ackproof.cli.client import check_client
from ackproof.cli.experiments import init, plan, schema, validate
from ackproof.cli.machine import clean, doctor, image, list_, releases
from ackproof.cli.options import examples
from ackproof.cli.results import audit, explain, judge, pairs, report
from ackproof.cli.run import replay, run
from ackproof.rundir.outcome import ExitCode


class _NoPandas(MetaPathFinder):
    """Import hook that hides pandas until Spark Connect, which needs it, is imported. Else pyarrow would import pandas
    at its first comparison, which takes 0.5 s."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas" and "pyspark.sql.connect" not in sys.modules:
            raise ModuleNotFoundError("not for this command", name=name)


def entry() -> None:
    """Run the command of this process, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # Output in a terminal or CI job without Unicode must not fail (an ASCII locale, PYTHONIOENCODING).
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.meta_path.insert(0, _NoPandas())
    code = main_code(sys.argv[1:], _begin)
    # The result is printed: Ctrl-C while Python shuts down must not change the exit code.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _begin() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # still the handler that `cli.start` has set
        signal.signal(signal.SIGINT, signal.default_int_handler)
    restart_in_utf8()


def main_code(arguments: list[str], begin: Callable[[], None] = lambda: None) -> int:
    """Run one command and return its exit code. Print errors instead of raising them.

    The code is 254 for wrong usage, `BadInput` and a missing Python package, 255 for an interrupt and any other error.
    `begin` is called first; its errors are handled in the same way.
    """
    try:
        begin()
        with sigterm_as_interrupt():
            code = main.main(args=arguments, prog_name="ackproof", standalone_mode=False)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitCode.HARNESS_FAILED)
    except (click.ClickException, BadInput, ModuleNotFoundError) as error:
        _print_error(_error_text(error))
        return int(ExitCode.BAD_INPUT)
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 — a crash is 255 and is shown, whatever it was
        _print_error(_error_text(error))
        return int(ExitCode.HARNESS_FAILED)
    return code if isinstance(code, int) else 0


def _error_text(error: BaseException) -> str:
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        interrupt = error.__cause__ or error  # click turns a KeyboardInterrupt into an Abort
        where = "".join(f" {note}" for note in getattr(interrupt, "__notes__", ()))
        return f"interrupted: everything was stopped, what was recorded is kept{where}"
    if isinstance(error, click.ClickException):
        text = io.StringIO()
        error.show(text)
        return text.getvalue().replace("\n\n", "\n")
    if isinstance(error, AckproofError):
        return str(error)
    if isinstance(error, OSError):
        full = error.errno == errno.ENOSPC
        where = error.filename or ("a disk is full" if full else "the machine")
        advice = ". df -h shows which disk; --out writes runs elsewhere" if full else ""
        return f"{where}: {error.strerror or error}{advice}"
    if isinstance(error, ModuleNotFoundError):
        return (
            f"the Python package {error.name} is missing: this environment is older than ackproof. Update it: "
            "make setup, or pip install --upgrade ackproof"
        )
    return f"the harness failed: {type(error).__name__}: {error}\n{traceback.format_exc()}"


def _print_error(text: str) -> None:
    from ackproof.console import Console

    Console().error(text)


class _Commands(click.Group):
    """Click group of the core's commands, and of those of other packages, which are loaded if a command is none of the
    core's. It refuses an option given twice if that option takes one value."""

    def _add_others(self) -> None:
        from ackproof.base.extensions import load_commands

        for command in load_commands():
            self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._add_others()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            self._add_others()
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            own = click.Context(command, info_name=name, parent=ctx, **command.context_settings)
            _, _, order = command.make_parser(own).parse_args(list(rest))
            for option, times in Counter(order).items():
                if times > 1 and isinstance(option, click.Option) and not option.multiple:
                    if option.is_flag and not option.secondary_opts:
                        continue  # a repeated flag has no further effect
                    raise click.UsageError(
                        f"{option.opts[0]} is given {times} times; it takes one value", own
                    )
        return name, command, rest


@click.group(
    cls=_Commands,
    epilog=examples("ackproof run experiments/acks-matrix.yaml", "ackproof explain runs/latest", codes=True),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="ackproof")
def main() -> None:
    """Does your Kafka keep what it acknowledged? Chaos experiments on real clusters, with a verdict."""


for command in (
    *(init, validate, plan, schema, run, replay, audit, judge, report, explain, pairs),
    *(doctor, list_, clean, image, releases, check_client),
):
    main.add_command(command)
