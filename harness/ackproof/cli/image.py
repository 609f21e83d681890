"""`ackproof image`: images of Kafka for the backend docker; `ackproof releases`. Thin, as `ackproof.cli.main` is."""

from __future__ import annotations

import click

from ackproof.base.errors import BadInput
from ackproof.cli.options import examples


@click.group(epilog=examples("ackproof image build", "ackproof image build --anew"))
def image() -> None:
    """Images of Kafka for the backend docker."""


@click.command(epilog=examples("ackproof releases", "ackproof releases --available"))
@click.option("--newest", "which", flag_value="newest", help="Only the newest of each line.")
@click.option(
    "--default", "which", flag_value="default", help="Only the one that experiments have by default."
)
@click.option(
    "--available",
    "which",
    flag_value="available",
    help="What Maven's repositories offer now, beside what is known (2 s).",
)
def releases(which: str | None) -> int:
    """List the releases of Kafka whose rules are known, oldest first.

    Any other that Maven offers runs too, with the rules of the nearest older line.
    """
    from ackproof.console import Console
    from ackproof.experiment.kafka import DEFAULT, NEWEST, RELEASES

    if which == "available":
        from ackproof.experiment.kafka import line_of
        from ackproof.provision.releases import list_offered_releases

        for version in list_offered_releases():
            told = "known" if version in RELEASES else f"the rules of {line_of(version)} are assumed"
            Console().line(f"{version:8} {told}")
        return 0
    Console().lines({"newest": NEWEST, "default": (DEFAULT,)}.get(which or "", RELEASES))
    return 0


@image.command(epilog=examples("ackproof image build", "ackproof image build 4.2.1 3.9.2 --anew"))
@click.argument("versions", nargs=-1, metavar="[VERSION]…")
@click.option("--anew", is_flag=True, help="Make it even if it is there.")
def build(versions: tuple[str, ...], anew: bool) -> int:
    """Make ackproof/kafka:VERSION without an image registry: Debian's packages, Kafka's jars, a class-data archive.

    Takes about a minute, the first time two more for Debian; nothing if the image is there and up to date. Where a
    registry answers it is not needed: apache/kafka:VERSION is used.
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
            made = make(engine, version, in_words(lambda text: console.line(f"… {text}")), anew=anew)
            console.line(f"{made.reference} ({made.identity}, Java {made.java})")
    finally:
        engine.close()
    return 0
