"""The pytest plugin: hooks and fixtures, implemented by the other modules of `testing`; its session and stash keys in a
pytest process; and a check whether a YAML file is an experiment.

Loading this imports pytest and the standard library alone; the harness is imported when an experiment is collected or a
fixture is used.
"""

from __future__ import annotations

import inspect
import re
import shlex
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from ackproof.testing.cluster import KafkaCluster
    from ackproof.testing.items import PluginSession
    from ackproof.testing.ledger import Ledger

_SESSION: Final = pytest.StashKey["PluginSession"]()
CLUSTERS: Final = pytest.StashKey[list["KafkaCluster"]]()
"""Stash key of the clusters that the fixtures of a test have started."""
PASSED: Final = pytest.StashKey[bool]()
"""Stash key of a test: True if its last phase (setup, call or teardown) did not fail."""
_REPORTS: Final = pytest.StashKey[list[str]]()
_WORKER_SAYS: Final = "ackproof_reports"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--ackproof-seed`, `--ackproof-out` and `--ackproof-keep-data`."""
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
    """Add the nodes' warnings to the report of a failed test that used a cluster. Do not add them for an error of the
    test's own code, such as NameError (`fixtures.note_end`)."""
    report = yield
    if "kafka_cluster" in getattr(item, "fixturenames", ()):
        from ackproof.testing.fixtures import note_end

        note_end(item, report, call.excinfo.value if call.excinfo else None)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    """Write the report of the experiments that ran, and end Spark."""
    if not hasattr(session.config, "stash"):
        return
    if (ours := session.config.stash.get(_SESSION, None)) is None:
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
    """Print the paths of the experiments' reports; nothing if no experiment ran."""
    reports = config.stash.get(_REPORTS, [])
    if not reports:
        return
    terminalreporter.section("ackproof", "-")
    for report in reports:
        terminalreporter.write_line(f"report: {display_path(Path(report))}")


def session_of(config: pytest.Config) -> PluginSession:
    """Return the plugin's session of this pytest process, which the first call creates. Raises `BadInput` if this
    machine has no UTF-8 locale, and the current folder or an argument is not ASCII."""
    if _SESSION not in config.stash:
        from ackproof.base.environment import use_utf8_in_children
        from ackproof.testing.items import PluginSession

        use_utf8_in_children()
        out: str | None = config.getoption("ackproof_out")
        worker: dict[str, str] = getattr(config, "workerinput", {})
        config.stash[_SESSION] = PluginSession(
            out=config.rootpath / "runs" if out is None else config.invocation_params.dir / out,
            seed=config.getoption("ackproof_seed"),
            keep_data=config.getoption("ackproof_keep_data"),
            worker=worker.get("workerid", ""),
            command=shlex.join(["pytest", *map(str, config.invocation_params.args)]),
        )
    return config.stash[_SESSION]


def display_path(path: Path) -> str:
    """Return the path as a user would type it: relative if it is below the current folder, else absolute."""
    here, whole = Path.cwd(), path.absolute()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


@contextmanager
def own_warnings() -> Iterator[None]:
    """Suppress warnings of the harness's libraries within the block, because tests may turn every warning into an
    error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_MOST_BYTES: Final = 1 << 20
"""Files above this size are not taken for experiments."""
_TOP_LEVEL: Final = re.compile(rb"""^["']?([A-Za-z_][\w.-]*)["']?[ \t]*:(?=[ \t\r\n]|$)""", re.MULTILINE)
_SCHEMA: Final = re.compile(rb"^#[^\n]*\$schema=\S*experiment\.schema\.json", re.MULTILINE)
_FIELDS: Final = frozenset(
    b"name description claims backend cluster topics workload matrix faults expect evidence repeat seed".split()
)
_TELLING: Final = frozenset({b"workload", b"faults"})


def is_experiment(path: Path) -> bool:
    """Return True if the file is meant to be an experiment, valid or not; False if it cannot be read or is larger than
    `_MOST_BYTES`.

    An experiment names the schema of experiments; or its top level has `topics` and one of `cluster`, `workload`,
    `faults`, and more fields of an experiment than other fields. `cluster` and `topics` alone are not enough: any
    service that uses Kafka may have them.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            return False
        text = path.read_bytes()
    except OSError:
        return False
    if _SCHEMA.search(text):
        return True
    if b"topics" not in text:
        return False
    keys = set(_TOP_LEVEL.findall(text))
    known = keys & _FIELDS
    if b"topics" not in keys or len(known) <= len(keys - _FIELDS):
        return False
    return bool(keys & _TELLING) or (b"cluster" in keys and len(known) > 2)
