"""The command `ackproof check-client`: checks a user's program against the contract of docs/clients.md."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ackproof.base.errors import BadInput
from ackproof.cli.options import examples
from ackproof.rundir.outcome import ExitCode

if TYPE_CHECKING:
    from ackproof.clients.command.check import Report
    from ackproof.console import Console


@click.command(
    "check-client",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "ackproof check-client ./copier '{settings}'",
        "ackproof check-client --role producer node client.js '{settings}'",
    ),
)
@click.option(
    "--role",
    type=click.Choice(["service", "producer", "reader"]),
    default="service",
    show_default=True,
    help="What the program is: a service copies from a topic to another.",
)
@click.option("--kafka", metavar="VERSION", help="Kafka release of the cluster.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the lines and logs in this new folder.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def check_client(role: str, kafka: str | None, keep: Path | None, command: tuple[str, ...]) -> int:
    """Run a program on a healthy cluster, kill one instance and stop another. Print how often each event came, and what
    cannot be judged without those that are missing. Print the level of a service (0 to 3: which events it prints) and
    each way in which the program breaks the contract of docs/clients.md.

    Takes half a minute. Exits with 1 if the contract is broken.
    """
    from ackproof.clients.command.check import Role, check_client
    from ackproof.console import Console
    from ackproof.experiment.kafka import DEFAULT, KafkaBuild, not_a_version

    if kafka is not None and (why := not_a_version(kafka)) is not None:
        raise BadInput(why)
    if shutil.which(command[0]) is None:
        raise BadInput(f"no program {command[0]} is found from {Path.cwd()}")
    if keep is not None and keep.exists():
        raise BadInput(f"{keep} exists: name a new folder")
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ackproof-check-")))
        folder.mkdir(parents=True, exist_ok=True)
        report = check_client(command, Role(role), folder.resolve(), KafkaBuild(kafka or DEFAULT))
    _print(Console(), report)
    return int(ExitCode.FAIL if report.breaches else ExitCode.PASS)


def _print(console: Console, report: Report) -> None:
    from ackproof.clients.command.check import Role, events_of

    for name in events_of(report.role):
        count = report.counts.get(name, 0)
        without = dict(report.missing).get(name)
        console.line(
            f"{name:10} {count:>9,}" + (f"  missing; not known without it: {without}" if without else "")
        )
    seen: set[tuple[str, str]] = set()
    for instance, breach in report.breaches:
        if (instance, breach.kind) not in seen:  # one example of each
            seen.add((instance, breach.kind))
            console.line(f"BREACH {instance + ': ' if instance else ''}{breach}")
    level = f"level {report.level}, " if report.role is Role.SERVICE else ""
    number = len(report.breaches)
    console.line(f"{level}{f'{number:,} breaches of the contract' if number else 'the contract is kept'}")
