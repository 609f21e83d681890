"""The releases of Kafka that an experiment may name: the one list of them.

A new line of Kafka is one row of `LINES`, and a lock for each of its releases (`ackproof.provision.lock` writes it).
Feature levels as a broker of each line says them (ApiVersions: supported features).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

from ackproof.base.units import wrong

ELR: Final = "eligible.leader.replicas.version"
"""1: the controller remembers who was in sync last (eligible leader replicas, KIP-966)."""
KRAFT: Final = "kraft.version"
METADATA: Final = "metadata.version"
ELR_NEEDS: Final = 23
"""The metadata.version below which no cluster is formatted with eligible leader replicas (4.0-IV1)."""

Levels: TypeAlias = tuple[int, int]
"""Lowest and highest level."""


class Line(NamedTuple):
    """A line of releases, such as 4.3: all that ackproof knows of it."""

    number: tuple[int, int]
    newest: int
    """Its newest patch; it has every one from 0."""
    features: Mapping[str, Levels]
    zookeeper: bool = False
    """Whether it has the ZooKeeper mode."""

    @property
    def releases(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(f"{self}.{patch}" for patch in range(self.newest + 1))

    def __str__(self) -> str:
        return ".".join(map(str, self.number))


_SINCE_4_0: Final[dict[str, Levels]] = {ELR: (0, 1), "group.version": (0, 1), "transaction.version": (0, 2)}
_SINCE_4_1: Final[dict[str, Levels]] = {**_SINCE_4_0, "share.version": (0, 1)}
_SINCE_4_2: Final[dict[str, Levels]] = {**_SINCE_4_1, "streams.version": (0, 1)}

LINES: Final = (
    Line((3, 9), 2, {METADATA: (1, 21)}, zookeeper=True),
    Line((4, 0), 2, {METADATA: (7, 25), **_SINCE_4_0}),
    Line((4, 1), 2, {METADATA: (7, 27), **_SINCE_4_1}),
    Line((4, 2), 1, {METADATA: (7, 29), **_SINCE_4_2}),
    Line((4, 3), 1, {METADATA: (7, 30), **_SINCE_4_2}),
)
"""Oldest first."""

RELEASES: Final = tuple(release for line in LINES for release in line.releases)
"""Every release, oldest first."""
NEWEST: Final = tuple(line.releases[-1] for line in LINES)
"""The newest release of each line."""
DEFAULT: Final = RELEASES[-1]
"""What an experiment has that names none."""
WITH_ZOOKEEPER: Final = tuple(release for line in LINES if line.zookeeper for release in line.releases)
KNOWN_FEATURES: Final = tuple(dict.fromkeys(name for line in LINES for name in line.features))
"""Every feature that any release has."""


def unsupported(version: str) -> tuple[str, str | None] | None:
    """Why no experiment can have this release, and which one may be meant; None where one can."""
    if version in RELEASES:
        return None
    near = next((line.releases[-1] for line in LINES if line.number == numbers(version)[:2]), None)
    there = ", ".join(f"{line.releases[0]} to {line.releases[-1]}" for line in LINES)
    return f"Kafka {version} is not supported; there is {there}", near


def numbers(version: str) -> tuple[int, ...]:
    """`4.3.1` → (4, 3, 1): versions compare by these."""
    return tuple(int(part) for part in version.split("."))


def features_of(version: str) -> Mapping[str, Levels]:
    """The features of this release; those of the newest known one for a release that is not known."""
    return next((line.features for line in LINES if line.number == numbers(version)[:2]), LINES[-1].features)


def first_with(feature: str) -> str:
    """The first release line that has a feature, such as `4.0`."""
    return str(next(line for line in LINES if feature in line.features))


_VERSION: Final = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\Z")


def _read_version(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise wrong(
            f'a version is a text: without quotes this is the number {value}; write it as "{DEFAULT}"'
        )
    if not isinstance(value, str) or not _VERSION.match(value):
        raise wrong(f'expected a full version in quotes, such as "{DEFAULT}"')
    return value


Version: TypeAlias = Annotated[
    str,
    BeforeValidator(_read_version),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$",
            "examples": [DEFAULT, WITH_ZOOKEEPER[-1]],
        }
    ),
]
"""A version of Kafka as a file names it: a text, in quotes."""
