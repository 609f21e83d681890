"""How the tests are spread over the workers of pytest-xdist: file by file, the long ones first.

Most slow tests wait for brokers, so a worker more than there are processors pays. Files that bring up what is shared
(a cluster, a browser) stay whole. Tests that may not run side by side are one piece of work: those of one Spark
session, and those that leave orphans behind and those that sweep them up, whoever made them (`ackproof clean`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

FIRST = ("tests/audit/", "tests/cluster/", "tests/docker/", "tests/browser/", "tests/repo/")
"""Whose tests are long; the quick ones fill what these leave of the processors."""
ORPHANS = (
    "tests/cluster/test_links_left_behind.py",
    "tests/cluster/test_provision.py",
    "tests/cluster/test_runs.py",
    "tests/cluster/test_topologies.py",
    "tests/docker/test_runs.py",
    "tests/unit/night/test_night.py",
    "tests/unit/test_processes.py",
)
"""Who leaves children of a dead process behind for a moment, or sweeps."""


def piece_of(nodeid: str) -> str:
    """The piece of work that a test belongs to: the same worker does all of it."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/audit/"):
        return "Spark"
    return "orphans" if file in ORPHANS else file


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Long pieces first, and then those with most tests."""
    sizes: dict[str, int] = {}
    for item in items:
        piece = piece_of(item.nodeid)
        sizes[piece] = sizes.get(piece, 0) + 1

    def rank(item: pytest.Item) -> tuple[bool, int]:
        piece = piece_of(item.nodeid)
        return piece != "orphans" and not item.nodeid.startswith(FIRST), -sizes[piece]

    return sorted(items, key=rank)


class Spread(LoadScopeScheduling):
    """Hands out pieces in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)
