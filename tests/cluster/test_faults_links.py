"""Faults of links between nodes: each bites, is healed, and the ISRs are full again; duds do not pass for bites."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.experiment.backends import Need
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud
from faultbench.links import LINK_FAULTS

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    needs = frozenset({Need.BROKER_LINKS, Need.CONTROLLER_LINKS, Need.CLIENT_LINKS})
    with Bench(tmp_path_factory.mktemp("bench"), installed=installs("4.3.1"), needs=needs) as made:
        yield made


@pytest.mark.parametrize("fault", LINK_FAULTS)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.parametrize("dud", duds_on("links"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)
