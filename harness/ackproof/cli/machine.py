"""Commands on this machine: `ackproof doctor`, `list`, `clean`, `releases`, `image build`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ackproof.base.errors import BadInput
from ackproof.cli.options import FILES, examples
from ackproof.rundir.outcome import ExitCode


@click.group(epilog=examples("ackproof image build", "ackproof image build --anew"))
def image() -> None:
    """Build images of Kafka for backend docker."""


@click.command(epilog=examples("ackproof releases", "ackproof releases --available"))
@click.option("--newest", "which", flag_value="newest", help="Only the newest release of each line.")
@click.option("--default", "which", flag_value="default", help="Only the default of experiments.")
@click.option(
    "--available",
    "which",
    flag_value="available",
    help="All releases that Maven's repositories offer now (2 s).",
)
def releases(which: str | None) -> int:
    """List the Kafka releases whose protocol rules are known, oldest first.

    Any other release that Maven offers runs, too, with the rules of the nearest older line.
    """
    from ackproof.console import Console
    from ackproof.experiment.kafka import DEFAULT, NEWEST, RELEASES

    if which == "available":
        from ackproof.experiment.kafka import line_of
        from ackproof.provision.releases import list_offered_releases

        for version in list_offered_releases():
            rules = "known" if version in RELEASES else f"the rules of {line_of(version)} are assumed"
            Console().line(f"{version:8} {rules}")
        return 0
    Console().lines({"newest": NEWEST, "default": (DEFAULT,)}.get(which or "", RELEASES))
    return 0


@image.command(epilog=examples("ackproof image build", "ackproof image build 4.2.1 3.9.2 --anew"))
@click.argument("versions", nargs=-1, metavar="[VERSION]…")
@click.option("--anew", is_flag=True, help="Rebuild an image that exists.")
def build(versions: tuple[str, ...], anew: bool) -> int:
    """Build ackproof/kafka:VERSION without an image registry: Debian's packages, Kafka's jars, a class-data archive.

    Takes about a minute, and two more the first time, for Debian's packages; no time if the image is up to date. Not
    needed where an image registry answers: backend docker then uses apache/kafka:VERSION.
    """
    from ackproof.cluster.containers.build import build as make
    from ackproof.cluster.containers.engine import connect
    from ackproof.console import Console
    from ackproof.experiment.kafka import DEFAULT, not_a_version
    from ackproof.provision.progress import in_words

    console = Console()
    wanted = versions or (DEFAULT,)
    for version in wanted:
        if why := not_a_version(version):
            raise BadInput(why)
    engine = connect()
    try:
        for version in wanted:
            made = make(engine, version, in_words(lambda text: console.line(f"… {text}")), again=anew)
            console.line(f"{made.reference} ({made.identity}, Java {made.java})")
    finally:
        engine.close()
    return 0


@click.command(epilog=examples("ackproof doctor", "ackproof doctor | grep MISSING"))
def doctor() -> int:
    """Check what ackproof needs on this machine, and say how to get what is missing. Starts a one-node cluster."""
    from ackproof.cluster import doctor as room
    from ackproof.cluster.containers.images import look
    from ackproof.console import Console
    from ackproof.provision.progress import in_words

    console = Console()
    healthy = True
    checks = room.doctor(in_words(lambda text: console.line(f"… {text}")))
    for check in (*checks, room.Check("containers", True, look())):
        healthy &= check.ok
        console.line(
            f"{'ok     ' if check.ok else 'MISSING'}  {check.name}: {check.found}", "" if check.ok else "red"
        )
        if not check.ok:
            console.line(f"         {check.advice}")
    return 0 if healthy else int(ExitCode.BAD_INPUT)


@click.command("list", epilog=examples("ackproof list", "ackproof list --out elsewhere --json"))
@click.option("--out", type=FILES, default=Path("runs"), show_default=True, help="Folder of batches.")
@click.option("--json", "machine", is_flag=True, help="Print JSON on standard output.")
def list_(out: Path, machine: bool) -> int:
    """List batches with their verdicts, and runs that are running now."""
    from ackproof.console import Console
    from ackproof.run.housekeeping import batches, running

    console = Console(machine=machine)
    found, alive = batches(out), running()
    if machine:
        console.document(
            {"batches": [asdict(batch) for batch in found], "running": [asdict(one) for one in alive]}
        )
        return 0
    if found:
        console.table(("batch", "runs", "verdict"), [(b.batch, str(b.cases), b.verdict) for b in found])
    else:
        console.line(f"{out}: no batches here")
    for one in alive:
        left = ", left behind" if one.left_behind else ""
        console.line(f"running: {one.directory} ({one.processes} processes{left})")
    return 0


@click.command(epilog=examples("ackproof clean", "ackproof clean --json"))
@click.option("--json", "machine", is_flag=True, help="Print what was done as JSON on standard output.")
def clean(machine: bool) -> int:
    """End processes that dead runs left behind, and remove their broker data. Ledgers and logs are kept."""
    from ackproof.console import Console
    from ackproof.run.housekeeping import sweep

    console = Console(machine=machine)
    swept = sweep()
    console.lines(swept.lines())
    if machine:
        console.document(swept.as_json())
    return int(ExitCode.HARNESS_FAILED) if swept.stuck or swept.failed else 0
