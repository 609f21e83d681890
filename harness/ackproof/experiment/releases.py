"""Which releases of Kafka an experiment may name, and the feature levels that each has.

Seen at a broker of each release (ApiVersions: supported features). The locks of `ackproof.provision` name the same
releases; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

RELEASES: Final = (
    *("3.9.0", "3.9.1", "3.9.2"),
    *("4.0.0", "4.0.1", "4.0.2"),
    *("4.1.0", "4.1.1", "4.1.2"),
    *("4.2.0", "4.2.1"),
    *("4.3.0", "4.3.1"),
)
"""Oldest first."""

ELR: Final = "eligible.leader.replicas.version"
"""1: the controller remembers who was in sync last (eligible leader replicas, KIP-966)."""
KRAFT: Final = "kraft.version"
METADATA: Final = "metadata.version"

Levels: TypeAlias = tuple[int, int]
"""Lowest and highest level."""

_SINCE_4_0: Final[dict[str, Levels]] = {ELR: (0, 1), "group.version": (0, 1), "transaction.version": (0, 2)}
_SINCE_4_1: Final[dict[str, Levels]] = {**_SINCE_4_0, "share.version": (0, 1)}
_SINCE_4_2: Final[dict[str, Levels]] = {**_SINCE_4_1, "streams.version": (0, 1)}

_FEATURES: Final[Mapping[tuple[int, ...], Mapping[str, Levels]]] = {
    (3, 9): {METADATA: (1, 21)},
    (4, 0): {METADATA: (7, 25), **_SINCE_4_0},
    (4, 1): {METADATA: (7, 27), **_SINCE_4_1},
    (4, 2): {METADATA: (7, 29), **_SINCE_4_2},
    (4, 3): {METADATA: (7, 30), **_SINCE_4_2},
}
KNOWN_FEATURES: Final = tuple(dict.fromkeys(name for levels in _FEATURES.values() for name in levels))
"""Every feature that any release has."""


def numbers(version: str) -> tuple[int, ...]:
    """`4.3.1` → (4, 3, 1): versions compare by these."""
    return tuple(int(part) for part in version.split("."))


def features_of(version: str) -> Mapping[str, Levels]:
    """The features of this release; those of the newest known one for a release that is not known."""
    return _FEATURES.get(numbers(version)[:2], _FEATURES[max(_FEATURES)])


def first_with(feature: str) -> str:
    """The first release line that has a feature, such as `4.0`."""
    return ".".join(map(str, min(line for line, levels in _FEATURES.items() if feature in levels)))
