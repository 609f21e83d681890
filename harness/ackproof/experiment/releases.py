"""The releases of Kafka that this version of ackproof knows.

`releases.json` has a row for each line: its releases, and the feature levels that a broker of the line supports
(ApiVersions). `python tools/new_release.py VERSION` writes the row and the lock of the jars. Any other
release runs too (`ackproof.experiment.kafka`), with the rules of the newest known line that is not newer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

ELR: Final = "eligible.leader.replicas.version"
"""1: the controller remembers who was in sync last (eligible leader replicas, KIP-966)."""
KRAFT: Final = "kraft.version"
METADATA: Final = "metadata.version"
ELR_NEEDS: Final = 23
"""The metadata.version below which no cluster is formatted with eligible leader replicas (4.0-IV1)."""
ROWS: Final = Path(__file__).with_name("releases.json")

Levels: TypeAlias = tuple[int, int]
"""Lowest and highest level."""


class Line(NamedTuple):
    """A line of releases, such as 4.3."""

    number: tuple[int, int]
    releases: tuple[str, ...]
    """Oldest first."""
    features: Mapping[str, Levels]

    @property
    def zookeeper(self) -> bool:
        """Whether it has the ZooKeeper mode: 3.9 was the last line with it."""
        return self.number < (4, 0)

    def __str__(self) -> str:
        return ".".join(map(str, self.number))


def numbers(version: str) -> tuple[int, ...]:
    """`4.3.1` → (4, 3, 1): versions compare by these."""
    return tuple(int(part) for part in version.split("."))


def _read_lines() -> tuple[Line, ...]:
    lines = [
        Line(
            (numbers(name)[0], numbers(name)[1]),
            tuple(sorted(row["releases"], key=numbers)),
            {feature: (low, high) for feature, (low, high) in row["features"].items()},
        )
        for name, row in json.loads(ROWS.read_text(encoding="utf-8")).items()
    ]
    return tuple(sorted(lines))


LINES: Final = _read_lines()
"""Oldest first."""

RELEASES: Final = tuple(release for line in LINES for release in line.releases)
"""Every known release, oldest first."""
NEWEST: Final = tuple(line.releases[-1] for line in LINES)
"""The newest release of each line."""
DEFAULT: Final = RELEASES[-1]
"""What an experiment has that names none."""
LAST_WITH_ZOOKEEPER: Final = next(line.releases[-1] for line in reversed(LINES) if line.zookeeper)
KNOWN_FEATURES: Final = tuple(dict.fromkeys(name for line in LINES for name in line.features))
"""Every feature that any release has."""


def too_old(version: str) -> str | None:
    """Why no experiment can have this version; None if it is not older than the oldest known line."""
    if numbers(version)[:2] >= LINES[0].number:
        return None
    return f"Kafka {version} is not supported: {LINES[0]} is the oldest line that is"


def line_of(version: str) -> Line:
    """The line of this version, or the newest known one before it."""
    return next((line for line in reversed(LINES) if line.number <= numbers(version)[:2]), LINES[0])


def features_of(version: str) -> Mapping[str, Levels]:
    """The features of this version's line, or of the newest known one before it."""
    return line_of(version).features


def first_with(feature: str) -> str:
    """The first release line that has a feature, such as `4.0`."""
    return str(next(line for line in LINES if feature in line.features))
