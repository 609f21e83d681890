"""`ackproof image`: images of Kafka for the backend docker. Thin, as `ackproof.cli.main` is."""

from __future__ import annotations

import click


@click.group()
def image() -> None:
    """Images of Kafka for the backend docker."""


@image.command()
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
    from ackproof.provision.releases import DEFAULT_VERSION, lock

    console = Console()
    wanted = versions or (DEFAULT_VERSION,)
    for version in wanted:
        lock(version)
    engine = connect()
    try:
        for version in wanted:
            made = make(engine, version, lambda progress: console.line(f"… {progress.message}"), anew=anew)
            console.line(f"{made.reference} ({made.identity}, Java {made.java})")
    finally:
        engine.close()
    return 0
