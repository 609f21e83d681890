"""Options that several commands share: a setting over what the files say, and which cases."""

from __future__ import annotations

import click

over_the_files = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Over what the files say: cluster.kafka=4.2.1 (may be given again).",
)
only_cases = click.option(
    "--case", "only", multiple=True, metavar="ID", help="Only this case (may be given again)."
)
