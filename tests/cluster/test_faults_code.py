"""Tests of faults at points of Kafka's code on real brokers: each is confirmed and healed, and duds are not
confirmed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.rundir.timeline import NodeDied
from faultbench import Bench, duds_on, no_bite
from faultbench.code import CLUSTER, PointBite, bites
from faultbench.dud import Dud

from .conftest import NEWEST

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("bench"), installed=installs(NEWEST), **CLUSTER) as made:
        yield made


@pytest.mark.parametrize("point", bites())
def test_it_bites_and_is_healed(bench: Bench, point: PointBite) -> None:
    bite = bench.bite(point.fault, meanwhile=point.meanwhile(bench))
    assert bite.good, bite
    assert not [event for event in bench.node_events if isinstance(event.what, NodeDied)]


@pytest.mark.parametrize("dud", duds_on("code"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)
