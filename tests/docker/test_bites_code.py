"""Tests of faults at points of the code of brokers in containers, at night; `HALT` in test_bites.py runs with every
push."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.faults.code.points import POINTS
from ackproof.rundir.timeline import NodeDied
from faultbench import Bench, duds_on, no_bite
from faultbench.code import CLUSTER, PointBite, bites
from faultbench.dud import Dud

pytestmark = [pytest.mark.docker, pytest.mark.nightly]


@pytest.fixture(scope="module")
def bench(installed: Callable[[], Installation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with Bench(folder, backend="docker", installed=installed(), **CLUSTER) as made:
        yield made


@pytest.mark.parametrize("point", bites(nightly=True))
def test_it_bites_and_is_healed(bench: Bench, point: PointBite) -> None:
    bite = bench.bite(point.fault, meanwhile=point.meanwhile(bench))
    assert bite.good, bite
    assert not [event for event in bench.node_events if isinstance(event.what, NodeDied)]


@pytest.mark.parametrize("dud", [dud for dud in duds_on("code", nightly=True) if dud.id in POINTS])
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)
