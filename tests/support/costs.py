"""What the tests cost, file by file (`--costs`): processor of the worker and of the children that ended meanwhile.

Seconds on the clock say little where several workers share the processors; seconds of processor add up to what `make
test` takes at least. Containers are nobody's children and do not count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from typing import NamedTuple

import pytest

KEY = "costs"
"""Under it a worker tells its files and their costs."""
MOST = 30
"""So many files are told."""


class Cost(NamedTuple):
    """Of one file: how many tests, seconds of processor, seconds on the clock."""

    tests: int = 0
    cpu: float = 0.0
    wall: float = 0.0

    def plus(self, other: Cost) -> Cost:
        return Cost(self.tests + other.tests, self.cpu + other.cpu, self.wall + other.wall)


class Costs:
    """A plugin: in a worker it counts, in xdist's controller it takes over what the workers counted."""

    def __init__(self) -> None:
        self.files: dict[str, Cost] = {}

    def add(self, file: str, cost: Cost) -> None:
        self.files[file] = self.files.get(file, Cost()).plus(cost)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        cpu, wall = _used(), time.monotonic()
        try:
            return (yield)
        finally:
            cost = Cost(1, _used() - cpu, time.monotonic() - wall)
            self.add(item.nodeid.partition("::")[0], cost)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[KEY] = {file: [*cost] for file, cost in self.files.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        for file, cost in getattr(node, "workeroutput", {}).get(KEY, {}).items():
            self.add(file, Cost(*cost))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("what the tests cost: seconds of processor, seconds on the clock, tests")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        """The dearest files, and what each folder comes to."""
        folders: dict[str, Cost] = {}
        for file, cost in self.files.items():
            folder = "/".join(file.split("/")[:2]) + "/"
            folders[folder] = folders.get(folder, Cost()).plus(cost)
        dearest = sorted(self.files.items(), key=lambda one: -one[1].cpu)[:MOST]
        yield from map(_line, dearest)
        yield from map(_line, sorted(folders.items(), key=lambda one: -one[1].cpu))


def _line(one: tuple[str, Cost]) -> str:
    name, cost = one
    return f"{cost.cpu:8.1f} {cost.wall:8.1f} {cost.tests:6} {name}"


def _used() -> float:
    """Seconds of processor of this process and of its children that have ended."""
    return sum(os.times()[:4])
