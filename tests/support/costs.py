"""Measures the CPU time of the tests by file (`--costs`): of the worker, and of its children that ended meanwhile.

Wall time says little if several workers share the cores; CPU time adds up to the least that `make test` can take.
Containers are no children of the worker, and do not count."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from typing import NamedTuple

import pytest

KEY = "costs"
"""Key under which a worker reports its files and their costs."""
MOST = 30
"""Number of files in the report."""


class Cost(NamedTuple):
    """Cost of the tests of one file: their number, CPU seconds and wall seconds."""

    tests: int = 0
    cpu: float = 0.0
    wall: float = 0.0

    def plus(self, other: Cost) -> Cost:
        return Cost(self.tests + other.tests, self.cpu + other.cpu, self.wall + other.wall)


class Costs:
    """Plugin of pytest: a worker measures, and xdist's controller collects the workers' measurements."""

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
        """Yield a line for each of the `MOST` most expensive files, then one for each folder (such as `tests/unit/`).
        Both are sorted by CPU time, greatest first."""
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
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])
