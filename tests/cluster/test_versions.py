"""Releases and feature levels, on real brokers."""

from __future__ import annotations

import pytest

from ackproof.base.errors import BadInput
from ackproof.cluster.admin import features
from ackproof.experiment.releases import ELR, METADATA, RELEASES, features_of
from ackproof.experiment.spec import TopicSpec

from .conftest import NEWEST, OLDER, Clusters
from .helpers import partition_of, produce

pytestmark = pytest.mark.cluster
# The newest of each line, and those that an upgrade within a line starts from.
LINES = ("3.9.2", "4.0.2", "4.1.2", "4.2.1", "4.3.1")


def _levels(clusters: Clusters, version: str, **spec: object) -> dict[str, int]:
    """A cluster of this release takes records; the levels that it says are in force."""
    cluster = clusters.start(kafka=version, **spec)
    cluster.create_topics({"t": TopicSpec(config={"min.insync.replicas": "2"})})
    assert produce(cluster, "t", 10) == 10
    said = features(cluster.running_links()[1])
    lowest, highest = features_of(version)[METADATA]
    assert said.supported[METADATA] == (lowest, highest)
    assert {name: level for name, level in said.supported.items() if name != "kraft.version"} == dict(
        features_of(version)
    ), "what the checks of an experiment know of this release"
    assert said.finalised[METADATA] == highest
    return dict(said.finalised)


@pytest.mark.parametrize("version", [OLDER, NEWEST])
def test_a_release_runs_with_its_own_levels(clusters: Clusters, version: str) -> None:
    assert _levels(clusters, version).get(ELR, 0) == (1 if version == NEWEST else 0)


def test_eligible_leader_replicas_are_off_where_the_case_says_so(clusters: Clusters) -> None:
    cluster = clusters.start(features={ELR: 0})
    cluster.create_topics({"t": TopicSpec(config={"min.insync.replicas": "2"})})
    assert features(cluster.running_links()[2]).finalised.get(ELR, 0) == 0
    for broker in (3, 2):
        cluster.node(broker).stop()
    assert partition_of(cluster, "t").eligible == ()


def test_levels_that_kafka_refuses_are_bad_input_in_its_words(clusters: Clusters) -> None:
    cluster = clusters.make(features={METADATA: 1})
    with pytest.raises(BadInput, match=r"cannot be formatted with metadata\.version=1"):
        cluster.start()


@pytest.mark.nightly
@pytest.mark.parametrize("version", LINES)
def test_every_line_runs(clusters: Clusters, version: str) -> None:
    assert set(LINES) <= set(RELEASES)
    _levels(clusters, version)


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
