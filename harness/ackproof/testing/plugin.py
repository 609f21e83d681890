"""The pytest plugin: hooks and fixtures, implemented by the other modules of `testing`.

Loading this imports pytest and the standard library alone; the harness is imported when an experiment is collected or a
fixture is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from ackproof.testing.cluster import KafkaCluster
    from ackproof.testing.ledger import Ledger

_REPORTS: Final = pytest.StashKey[list[str]]()
_WORKER_SAYS: Final = "ackproof_reports"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options for experiments and clusters."""
    group = parser.getgroup("ackproof", "experiments and clusters of ackproof")
    group.addoption(
        "--ackproof-seed", type=int, metavar="N", help="Seed of every random choice, instead of the files'."
    )
    group.addoption(
        "--ackproof-out",
        metavar="DIR",
        help="Folder of batches and runs of kafka_cluster. All are kept (default: runs, failed ones are kept).",
    )
    group.addoption("--ackproof-keep-data", action="store_true", help="Keep the brokers' data.")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers `ackproof` and `kafka`."""
    config.addinivalue_line("markers", "ackproof: a case of an experiment file (set by the plugin)")
    config.addinivalue_line(
        "markers",
        "kafka(brokers=3, controllers=1, kafka='4.3.1', config={}, topics={}, faults=[]): the cluster that the fixture "
        "kafka_cluster starts",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector for an experiment file, None for any other file."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    from ackproof.testing.current import is_experiment

    if not is_experiment(file_path):
        return None
    from ackproof.testing.items import ExperimentFile

    return ExperimentFile.from_parent(parent, path=file_path)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A real Kafka cluster of this test's own, as the marker `kafka` says; 3 brokers by default.

    `with kafka_cluster.fault("pause", "leader(orders/0)"):` injects a fault, confirms it, and heals it at the end of
    the block. Faults of links, disks or clocks must be named in the marker, which prepares the cluster for them:
    faults=["isolate"].
    """
    from ackproof.testing.fixtures import cluster_of

    yield from cluster_of(request)


@pytest.fixture
def ledger(request: pytest.FixtureRequest, kafka_cluster: KafkaCluster) -> Iterator[Ledger]:
    """Audits your own clients of `kafka_cluster`: `ledger.producer(Producer({…}))`, `ledger.assert_durable()`."""
    from ackproof.testing.fixtures import ledger_of

    yield from ledger_of(request, kafka_cluster)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asyncio test function that uses a cluster, in a new event loop, and return True; return None for any other
    function. Another plugin that runs such functions (pytest-asyncio, anyio) has precedence."""
    if "kafka_cluster" not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    import asyncio

    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the nodes' warnings to the report of a failed test that used a cluster."""
    report = yield
    if "kafka_cluster" in getattr(item, "fixturenames", ()):
        from ackproof.testing.fixtures import note_end

        note_end(item, report, call.excinfo.value if call.excinfo else None)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    """Write the report of the experiments that ran, and end Spark."""
    if not hasattr(session.config, "stash"):
        return
    from ackproof.testing.current import session_if_any

    ours = session_if_any(session.config)
    if ours is None:
        return
    report = ours.finish(interrupted=exitstatus == pytest.ExitCode.INTERRUPTED)
    if report is None:
        return
    told: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[_WORKER_SAYS] = str(report)
    else:
        session.config.stash.setdefault(_REPORTS, []).append(str(report))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ANN401 — xdist's WorkerController
    """Take over the path of the report that an ended xdist worker wrote."""
    report = getattr(node, "workeroutput", {}).get(_WORKER_SAYS)
    if report:
        node.config.stash.setdefault(_REPORTS, []).append(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the paths of the experiments' reports."""
    reports = config.stash.get(_REPORTS, [])
    if not reports:
        return
    from ackproof.testing.current import display_path

    terminalreporter.section("ackproof", "-")
    for report in reports:
        terminalreporter.write_line(f"report: {display_path(Path(report))}")
