"""Extensions of the core: packages that are found by their entry points (pyproject.toml), never by their names."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

ORACLE: Final = "ackproof.oracle"
"""Entry-point group of the model of Kafka that predicts and replays runs: see `ackproof.judge.oracle`."""
SIMULATOR: Final = "ackproof.simulator"
"""Entry-point group of the simulator for `backend: model` and `--simulate`: see `ackproof.run.extensions`."""
SOAK: Final = "ackproof.soak"
"""Entry-point group of the auditor of windows for `--soak`: see `ackproof.run.extensions`."""
COMMANDS: Final = "ackproof.commands"
"""Entry-point group of commands that packages add to the command line."""
VIEWS: Final = "ackproof.views"
"""Entry-point group of the views of run directories in a Spark session: see `ackproof.api`."""


def load_extension(group: str) -> Any | None:  # noqa: ANN401 — the caller names the protocol that it expects
    """Import and return the object that an installed package offers in a group of entry points, such as
    `ackproof.oracle`. Of several entry points, the alphabetically first counts. Return None if the group has none."""
    found = _sorted_points(group)
    return found[0].load() if found else None


def find_packages(group: str) -> list[Path]:
    """Return the folders of the top-level packages that have an entry point in a group, sorted by package name. Nothing
    is imported."""
    names = {point.module.partition(".")[0] for point in entry_points(group=group)}
    specs = [find_spec(name) for name in sorted(names)]
    return [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]


def load_commands() -> Iterator[Any]:
    """Yield the command objects that installed packages add to the command line, sorted by name. Each is imported when
    the iterator reaches it."""
    return (point.load() for point in _sorted_points(COMMANDS))


def _sorted_points(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda point: point.name)
