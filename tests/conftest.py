"""Pytest hooks for all tests. They leave out the tests that run at night only, and report which faults the session
injected on which backend. In CI a session fails if it leaves anything behind on the machine or skips a test."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import tomllib
from collections.abc import Generator
from dataclasses import asdict
from importlib.metadata import distribution
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

import traces
from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from costs import Costs
from faultbench import TABLE, Bite
from spread import Spread, in_order

_LEFT: list[str] = []
_LEFT_BY_WORKER = "left to the night"
_BITES_BY_WORKER = "faults that were done"
_STATE = pytest.StashKey[Path]()
_BEFORE = pytest.StashKey[traces.Traces]()
_LEFT_BEHIND = pytest.StashKey[list[str]]()
GONE_WITHIN_S = 10.0

# How long an example takes says nothing where three workers share two cores.
settings.register_profile("push", deadline=None, max_examples=25)
settings.register_profile("night", deadline=None, max_examples=300)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="also what is too long for every push")
    parser.addoption("--costs", action="store_true", help="tell at the end what each file's tests cost")
    parser.addoption(
        "--whole-table",
        metavar="BACKEND,…",
        help="fail unless every kind of fault was seen to bite, heal and recover on each of these backends",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Give the session a state folder of its own, so that a user's leftover runs are neither swept nor counted. SIGTERM
    interrupts the session as SIGINT does, so that its fixtures end what they started. Raises as
    `_require_entry_points`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in a shell's background jobs. What the tests start, and then interrupt, would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # As `timeout` ends a session: its fixtures then end what they started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings.load_profile("night" if config.getoption("--nightly") else "push")
    if config.getoption("--costs"):
        config.pluginmanager.register(Costs())
    if hasattr(config, "workerinput"):
        return  # a worker of xdist has its controller's
    _require_entry_points()
    config.stash[_STATE] = state = Path(tempfile.mkdtemp(prefix="ackproof-tests-state-"))
    os.environ["XDG_STATE_HOME"] = str(state)


def pytest_unconfigure(config: pytest.Config) -> None:
    if state := config.stash.get(_STATE, None):
        shutil.rmtree(state)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and os.environ.get("CI"):
        _name_what_failed(reporter)


def _name_what_failed(reporter: pytest.TerminalReporter) -> None:
    """Print the failed tests again as the last lines, for readers who keep only the end of a long output."""
    for report in (*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())):
        crash = getattr(report.longrepr, "reprcrash", None)
        said = str(crash.message if crash else report.longrepr).partition("\n")[0][:200]
        reporter.write_line(f"failed: {report.nodeid} ({report.when}): {said}")
    for line in reporter.config.stash.get(_LEFT_BEHIND, []):
        reporter.write_line(f"left behind on this machine: {line}")


def _require_entry_points() -> None:
    """Raise `pytest.UsageError` if entry points of pyproject.toml are not installed: without them the core would judge
    without the model."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    declared = {
        (group, name, value)
        for group, points in project["entry-points"].items()
        for name, value in points.items()
    }
    installed = {(point.group, point.name, point.value) for point in distribution("ackproof").entry_points}
    if missing := sorted(declared - installed):
        raise pytest.UsageError(
            f"this environment lacks entry points of pyproject.toml: {missing}; run make setup-dev"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collections: what is made here stays, and they would only visit it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--nightly"):
        left = [item for item in items if item.get_closest_marker("nightly")]
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
        if left:
            config.hook.pytest_deselected(items=left)
        _LEFT.extend(item.nodeid for item in left)
    if hasattr(config, "workerinput"):
        items[:] = in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return Spread(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Add the nightly tests that an xdist worker left out, and the faults that it injected. All workers leave out the
    same tests; the controller collects none itself."""
    del error
    told = getattr(node, "workeroutput", {})
    _LEFT.extend(name for name in told.get(_LEFT_BY_WORKER, []) if name not in _LEFT)
    TABLE.rows.extend(Bite(**row) for row in told.get(_BITES_BY_WORKER, []))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Record the state of the machine before the tests. Only in CI: elsewhere other runs start and end meanwhile."""
    if os.environ.get("CI") and not hasattr(session.config, "workerinput"):
        session.config.stash[_BEFORE] = traces.look()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput[_LEFT_BY_WORKER] = _LEFT
        config.workeroutput[_BITES_BY_WORKER] = [asdict(row) for row in TABLE.rows]
        return
    config.stash[_LEFT_BEHIND] = left = _left_behind(config)
    if exitstatus == pytest.ExitCode.OK and (left or _empty_cells(config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _left_behind(config: pytest.Config) -> list[str]:
    """Return what the tests have left on the machine, a line each, after waiting up to `GONE_WITHIN_S` for it to go.
    Empty outside CI, where `pytest_sessionstart` records no state."""
    before = config.stash.get(_BEFORE, None)
    if before is None:
        return []
    try:
        # The kernel takes the links of a network namespace down a moment after the last process in it has ended.
        wait_until(
            lambda: not traces.left(before, traces.look()),
            what="nothing to be left behind",
            timeout_s=GONE_WITHIN_S,
            interval_s=0.2,
        )
    except WaitTimeout:
        return traces.left(before, traces.look())
    return []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI let a skipped test fail, because CI installs everything that a test needs. Expected failures (xfail) stay
    as they are."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.longrepr = f"nothing skips when CI is set: {said}"
    return report


def _empty_cells(config: pytest.Config) -> list[str]:
    backends: str | None = config.getoption("--whole-table")
    if not backends:
        return []
    from ackproof.faults.registry import fault_kinds

    asked = backends.split(",")
    refused = {name: {one for one in asked if kind.not_on(one)} for name, kind in fault_kinds().items()}
    return TABLE.missing(refused, asked)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TABLE.rows:
        terminalreporter.section("faults × backends: seconds until it bit, was healed, ISRs full again")
        for line in TABLE.lines():
            terminalreporter.write_line(line)
        if path := os.environ.get("ACKPROOF_FAULT_TABLE"):
            TABLE.save(Path(path))
    if cells := _empty_cells(terminalreporter.config):
        terminalreporter.section("faults that nobody saw bite, heal and recover")
        for cell in cells:
            terminalreporter.write_line(cell)
    if _LEFT and os.environ.get("CI"):
        terminalreporter.section("left to the night (make nightly)")
        for name in _LEFT:
            terminalreporter.write_line(name)
