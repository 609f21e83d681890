"""Faults of single packets, by the kernel's own filter: as root only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.experiment.backends import Need
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud
from faultbench.links import PACKET_FAULTS, tables_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="packet rules are root's"),
]


@pytest.fixture(scope="module")
def bench(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    needs = frozenset({Need.BROKER_LINKS, Need.PACKETS})
    with Bench(tmp_path_factory.mktemp("bench"), installed=installs("4.3.1"), needs=needs) as made:
        yield made
    assert tables_of(os.getpid()) == []


@pytest.mark.parametrize(
    "fault",
    [
        *PACKET_FAULTS,
        pytest.param("loss: {link: followers(t/0) -> leader(t/0), share: 100%}", marks=pytest.mark.nightly),
    ],
)
def test_it_bites_and_is_healed(bench: Bench, fault: str) -> None:
    bite = bench.bite(fault)
    assert bite.good, bite


@pytest.mark.parametrize("dud", duds_on("packets"))
def test_a_dud_does_not_pass_for_a_bite(bench: Bench, dud: Dud) -> None:
    no_bite(bench, dud)
