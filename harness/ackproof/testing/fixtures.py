"""The fixtures from their start to their end: what they start is ended, whatever the test does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackproof.base.errors import AckproofError
from ackproof.base.interrupts import sigterm_as_interrupt
from ackproof.testing.cluster import KafkaCluster
from ackproof.testing.current import CLUSTERS, own_warnings, session_of
from ackproof.testing.ledger import Ledger
from ackproof.testing.marker import read_marker


def cluster_of(request: pytest.FixtureRequest, folder: Path) -> Iterator[KafkaCluster]:
    """The cluster of a test. What hinders its start, or a node that died by itself, is an ERROR of the test."""
    config = request.config
    session = session_of(config)
    node = request.node
    marker = node.get_closest_marker("kafka")
    seed = config.getoption("ackproof_seed") or 0
    with sigterm_as_interrupt():
        try:
            wanted = read_marker(marker.args if marker else (), marker.kwargs if marker else {})
            with own_warnings():
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
    if died:
        pytest.fail(f"kafka_cluster: {died}", pytrace=False)


def ledger_of(request: pytest.FixtureRequest, cluster: KafkaCluster) -> Iterator[Ledger]:
    """The ledger of a test."""
    ledger = Ledger(cluster, session_of(request.config).audit)
    yield ledger
    ledger.end()


def add_logs(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put the nodes' last log lines beside a failure."""
    for cluster in item.stash.get(CLUSTERS, []):
        report.sections.append(("Kafka nodes", cluster.log_tails()))
