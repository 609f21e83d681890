"""Extensions of the core: packages that are found by their entry points (pyproject.toml), never by name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

ORACLE: Final = "ackproof.oracle"
"""Model of Kafka that predicts and replays runs: see `ackproof.judge.oracle`."""
SIMULATOR: Final = "ackproof.simulator"
"""What `backend: model` and `--simulate` take: see `ackproof.run.extensions`."""
SOAK: Final = "ackproof.soak"
"""What `--soak` takes: see `ackproof.run.extensions`."""
COMMANDS: Final = "ackproof.commands"
"""Commands that packages add to the command line."""
VIEWS: Final = "ackproof.views"
"""Run directories as views of a Spark session: see `ackproof.api`."""


def load_extension(group: str) -> Any | None:  # noqa: ANN401 — the caller names the protocol that it expects
    """Import what an installed package offers in a group, the first by name. None if no package does."""
    found = _sorted_points(group)
    return found[0].load() if found else None


def find_packages(group: str) -> list[Path]:
    """Return the folders of the packages that offer something in a group; nothing is imported."""
    names = {point.module.partition(".")[0] for point in entry_points(group=group)}
    specs = [find_spec(name) for name in sorted(names)]
    return [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]


def load_commands() -> Iterator[Any]:
    """Import the commands that installed packages add to the command line, by name."""
    return (point.load() for point in _sorted_points(COMMANDS))


def _sorted_points(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda point: point.name)
