"""Which ways links go: through no proxy that no fault asks for, and through that of requests behind Toxiproxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.base.processes import RunTag
from ackproof.cluster.backends import links
from ackproof.cluster.backends.links import CLIENTS_BY_PROXY
from ackproof.experiment.backends import LINKS, REQUESTS, Need
from ackproof.experiment.links import APIS
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.addresses import Address, Addresses, Layout
from ackproof.network.mesh import CLIENTS, Link
from ackproof.network.requests.links import RequestLinks

ADDRESSES = Addresses(7, 29092)


@pytest.fixture(autouse=True)
def _some_toxiproxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "toxiproxy_server", lambda: Path("toxiproxy-server"))


def laid(needs: frozenset[Need]) -> tuple[dict[Link, list[tuple[Address, Address]]], ...]:
    """For each link the addresses at which it is taken, and to which it is led: of the mesh, of the requests."""
    layout = Layout(ClusterSpec(), ADDRESSES, bool(CLIENTS_BY_PROXY & needs))
    here = (layout, needs, Path("nodes"), RunTag("r", Path(), Path()), lambda node: None)
    mesh = links.wire(*here)
    requests = links.wire_requests(*here)
    return (
        {link: [(way.listen, way.upstream) for way in ways] for link, ways in mesh.ways.items()},
        {link: [(one.way.listen, one.way.upstream) for one in ways] for link, ways in requests.ways.items()},
    )


def test_who_asks_for_none_has_none() -> None:
    mesh, requests = laid(frozenset(LINKS))
    assert not requests
    assert mesh[Link(1, 2)] == [(Address("127.7.51.2", 29092), Address("127.7.1.2", 29092))]
    assert laid(frozenset({Need.CLOCKS})) == ({}, {})


def test_only_the_class_that_is_asked_for() -> None:
    mesh, requests = laid(frozenset({Need.CLIENT_REQUESTS}))
    assert not mesh
    assert requests == {
        Link(CLIENTS, broker): [(Address(f"127.7.50.{broker}", 29094), Address(f"127.7.2.{broker}", 29094))]
        for broker in (1, 2, 3)
    }


def test_a_link_of_both_goes_through_toxiproxy_first() -> None:
    mesh, requests = laid(frozenset(LINKS | REQUESTS.keys()))
    assert mesh.keys() == requests.keys()
    for link, ways in mesh.items():
        for (first, second), (listens, node) in zip(ways, requests[link], strict=True):
            assert second == listens and first != listens
            assert (first.host, first.port) == (listens.host, node.port)


def test_the_port_of_controllers_has_no_requests_of_followers() -> None:
    here = (Layout(ClusterSpec(), ADDRESSES), frozenset(REQUESTS), Path("nodes"))
    requests = RequestLinks(links.wire_requests(*here, RunTag("r", Path(), Path()), lambda node: None))
    assert requests.ways(Link(1, 101), APIS["BrokerHeartbeat"]) == ("1-101-29093",)
    assert requests.ways(Link(1, 2), APIS["Fetch"]) == ("1-2-29092",)
