"""Implementation of the fixtures `kafka_cluster` and `ledger`, which end all that they started, whatever the
test does."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from ackproof.base.errors import AckproofError, BadInput
from ackproof.base.wait import sigterm_as_interrupt
from ackproof.cluster.backends.choice import prepare
from ackproof.rundir.layout import safe_name
from ackproof.rundir.registry import read_entries
from ackproof.testing.cluster import KafkaCluster
from ackproof.testing.ledger import Ledger
from ackproof.testing.marker import read_marker
from ackproof.testing.plugin import CLUSTERS, PASSED, own_warnings, session_of

_LONGEST: Final = 120


def cluster_of(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """Yield the cluster of a test.

    The run directory is removed if the test passes, unless --ackproof-out or --ackproof-keep-data is given. After a
    failure it is kept until the next run of the test. A cluster that does not start, or a node that dies, is an ERROR.
    """
    config = request.config
    session = session_of(config)
    node = request.node
    marker = node.get_closest_marker("kafka")
    seed = config.getoption("ackproof_seed") or 0
    keep_all = bool(config.getoption("ackproof_out") or config.getoption("ackproof_keep_data"))
    with sigterm_as_interrupt():
        try:
            wanted = read_marker(marker.args if marker else (), marker.kwargs if marker else {})
            with own_warnings():
                prepare("process", wanted.needs, (wanted.cluster.kafka,))
                folder = _new_folder(session.out / "kafka_cluster", f"{node.path.stem}.{node.name}", keep_all)
                installed = session.installed(wanted.cluster.kafka)
                cluster = KafkaCluster(wanted, folder, installed, seed=f"{seed}/{node.nodeid}")
                cluster.keep_data = config.getoption("ackproof_keep_data")
                cluster.__enter__()
        except AckproofError as error:
            pytest.fail(f"kafka_cluster: {error}", pytrace=False)
        node.stash.setdefault(CLUSTERS, []).append(cluster)
        died = ""
        try:
            yield cluster
            try:
                cluster.check()
            except AckproofError as error:
                died = str(error)
        finally:
            cluster.__exit__(None, None, None)
            if node.stash.get(PASSED, False) and not died and not keep_all:
                _remove(folder)
    if died:
        pytest.fail(f"kafka_cluster: {died}", pytrace=False)


def ledger_of(request: pytest.FixtureRequest, cluster: KafkaCluster) -> Iterator[Ledger]:
    """Yield the ledger of a test. When the test ends, its audited clients stop working, also in threads that still use
    them."""
    ledger = Ledger(cluster, session_of(request.config).audit)
    yield ledger
    ledger.end()


_OF_THE_TEST: Final = (AttributeError, BadInput, ImportError, NameError, SyntaxError, TypeError)
"""Errors of the test's own code. The nodes' logs cannot explain them and are not shown."""


def note_end(item: pytest.Item, report: pytest.TestReport, error: BaseException | None) -> None:
    """Note whether the test passed; if it failed, add the nodes' warnings to its report. `error`: exception that the
    test raised. After an error in the test's own code, such as NameError, nothing is added."""
    item.stash[PASSED] = not report.failed
    if not report.failed or isinstance(error, _OF_THE_TEST):
        return
    for cluster in item.stash.get(CLUSTERS, []):
        report.sections.append(("Kafka nodes", cluster.troubles()))


def _new_folder(home: Path, test: str, keep_all: bool) -> Path:
    """Make and return a new folder below `home` with the name of the test. If another test or xdist worker that runs
    has that folder, a number is added. A folder that an earlier run left is replaced; with `keep_all` it is kept, and a
    number is added."""
    name = safe_name(test)[:_LONGEST]
    alive = {Path(entry.case_dir) for _, entry in read_entries()}
    for number in itertools.count(1):
        folder = (home / (name if number == 1 else f"{name}-{number}")).absolute()
        if not keep_all and folder not in alive:
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("numbers do not end")


def _remove(folder: Path) -> None:
    """Remove a run directory, and its parents if they are empty."""
    shutil.rmtree(folder)
    with suppress(OSError):  # it has folders of other tests
        folder.parent.rmdir()
        folder.parent.parent.rmdir()
