"""Distributes the tests over the workers of pytest-xdist: file by file, the long ones first.

Most slow tests wait for brokers, so one more worker than there are cores pays off. A file that starts a shared cluster
or browser is not split. Tests that may not run at the same time form one piece of work. These are the tests of one
Spark session; and those that leave orphans behind, with those that sweep up orphans of any run (`ackproof clean`)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

FIRST = ("tests/audit/", "tests/cluster/", "tests/docker/", "tests/browser/", "tests/repo/")
"""Folders with long tests; quick tests use the time that these leave."""
ORPHANS = (
    "tests/cluster/test_links_left_behind.py",
    "tests/cluster/test_provision.py",
    "tests/cluster/test_runs.py",
    "tests/cluster/test_topologies.py",
    "tests/docker/test_runs.py",
    "tests/unit/night/test_night.py",
    "tests/unit/test_processes.py",
)
"""Files with tests that leave children of a dead process behind for a moment, or sweep them up."""


def piece_of(nodeid: str) -> str:
    """Return the piece of work of a test; one worker runs all tests of a piece."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/audit/"):
        return "Spark"
    return "orphans" if file in ORPHANS else file


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in the order in which workers take them: first those in long folders (`FIRST`) or with orphans,
    then the others. Among each of these, the pieces with most tests come first."""
    sizes: dict[str, int] = {}
    for item in items:
        piece = piece_of(item.nodeid)
        sizes[piece] = sizes.get(piece, 0) + 1

    def rank(item: pytest.Item) -> tuple[bool, int]:
        piece = piece_of(item.nodeid)
        return piece != "orphans" and not item.nodeid.startswith(FIRST), -sizes[piece]

    return sorted(items, key=rank)


class Spread(LoadScopeScheduling):
    """Scheduler that hands out pieces of work in the order of their collection."""

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)
