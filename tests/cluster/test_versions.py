"""Tests of releases and feature levels on real brokers."""

from __future__ import annotations

import pytest

from ackproof.base.errors import BadInput
from ackproof.cluster.admin import features
from ackproof.experiment.kafka import ELR, METADATA, RELEASES
from ackproof.experiment.spec import TopicSpec

from .conftest import OLDER, Clusters
from .helpers import levels_in_force, partition_of, produce

pytestmark = pytest.mark.cluster
# The newest of each line, and those that an upgrade within a line starts from.
LINES = ("3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0")


def _levels(clusters: Clusters, version: str, **spec: object) -> dict[str, int]:
    """Start a cluster of this release, check that it takes records, and return the feature levels in force."""
    cluster = clusters.start(kafka=version, **spec)
    cluster.create_topics({"t": TopicSpec(config={"min.insync.replicas": "2"})})
    assert produce(cluster, "t", 10) == 10
    return levels_in_force(cluster)


def test_eligible_leader_replicas_are_off_where_the_case_says_so(clusters: Clusters) -> None:
    cluster = clusters.start(brokers=2, features={ELR: 0})
    cluster.create_topics({"t": TopicSpec(replication_factor=2, config={"min.insync.replicas": "2"})})
    assert features(cluster.running_links()[2]).finalised.get(ELR, 0) == 0
    cluster.node(2).stop()
    assert partition_of(cluster, "t").isr == (1,)
    assert partition_of(cluster, "t").eligible == ()


def test_levels_that_kafka_refuses_are_bad_input_in_its_words(clusters: Clusters) -> None:
    cluster = clusters.make(features={METADATA: 1})
    with pytest.raises(BadInput, match=r"cannot be formatted with metadata\.version=1"):
        cluster.start()


@pytest.mark.nightly  # test_topologies.py has the oldest and the newest with every push
@pytest.mark.parametrize("version", LINES)
def test_every_line_runs_with_its_own_levels(clusters: Clusters, version: str) -> None:
    assert set(LINES) <= set(RELEASES)
    assert _levels(clusters, version).get(ELR, 0) == (0 if version.startswith(("3.9.", "4.0.")) else 1)


@pytest.mark.nightly
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("version", [line for line in LINES if line != OLDER])
def test_eligible_leader_replicas_off_and_on_in_every_line_that_has_them(
    clusters: Clusters, version: str, level: int
) -> None:
    assert _levels(clusters, version, features={ELR: level}).get(ELR, 0) == level


@pytest.mark.nightly
def test_five_controllers(clusters: Clusters) -> None:
    cluster = clusters.start(controllers=5)
    assert [node.id for node in cluster.controllers()] == [101, 102, 103, 104, 105]
    cluster.create_topics({"t": TopicSpec()})
    assert produce(cluster, "t", 10) == 10
