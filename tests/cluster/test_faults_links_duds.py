"""Tests that planted duds are not confirmed: faults of proxies that no node uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ackproof.cluster.install import Installation
from ackproof.experiment.backends import Need
from ackproof.network.meshes import ProxyMesh
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud

# test_faults_links.py has a dud of proxies and one of packets with every push.
pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


@pytest.fixture(scope="module")
def around(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """A cluster with a proxy for every link, whose nodes connect to each other directly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProxyMesh, "route", lambda self, viewer, peer: None)
        needs = frozenset({Need.BROKER_LINKS})
        with Bench(tmp_path_factory.mktemp("around"), installed=installs("4.4.0"), needs=needs) as made:
            yield made


@pytest.mark.parametrize("dud", duds_on("unused proxies"))
def test_a_toxic_on_an_unused_proxy_is_no_bite(around: Bench, dud: Dud) -> None:
    no_bite(around, dud)


def test_a_link_that_was_not_laid_cannot_be_broken(around: Bench) -> None:
    bite = around.bite("cut: {link: clients -> leader(t/0)}", record=False)
    assert not bite.bit
    assert "was not laid so that it can be broken" in bite.failures[0]
