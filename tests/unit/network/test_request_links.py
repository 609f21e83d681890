"""Tests of the request proxy's process: if it ends by itself, it is reported and replaced; after `end`, it is not."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackproof.base.processes import RunTag, find_children
from ackproof.base.wait import wait_until
from ackproof.cluster.backends import links
from ackproof.cluster.backends.links import CLIENTS_BY_PROXY
from ackproof.experiment.backends import LINKS, REQUESTS, Need
from ackproof.experiment.links import APIS
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.addresses import Address, Addresses, Layout
from ackproof.network.mesh import CLIENTS, Link, LinkError
from ackproof.network.requests.links import RequestLinks, RequestProxy
from ackproof.network.requests.rules import FrameSide, Rule, RuleKind
from ackproof.network.toxiproxy import ProxyRoute


def free() -> Address:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as one:
        return Address(*one.getsockname())


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[RequestProxy]:
    made = RequestProxy(free(), folder=tmp_path, tag=RunTag("proxy-unit", tmp_path, tmp_path))
    made.start(lease_descriptor=1)
    yield made
    made.end()


def pids(folder: Path) -> list[int]:
    return [child.pid for child in find_children("proxy-unit") if child.directory == folder]


def test_another_takes_its_place_without_its_rules(proxy: RequestProxy, tmp_path: Path) -> None:
    told: list[str] = []
    heard = threading.Event()

    def hear(why: str) -> None:
        told.append(why)
        heard.set()

    way = ProxyRoute("w", free(), free())
    proxy.add([way])
    proxy.keep(hear)
    proxy.lay(Rule("r", RuleKind.HOLD, FrameSide.REQUEST, 1, ("w",)))
    assert proxy.state().held == {"r": {"w": 0}}
    (first,) = pids(tmp_path)
    os.kill(first, signal.SIGKILL)
    assert heard.wait(10.0)

    def answers() -> bool:
        try:
            return "r" not in proxy.state().rules
        except LinkError:
            return False

    wait_until(answers, what="another to answer", timeout_s=20.0)
    assert told == [proxy.died] and "ended by itself (exit -9)" in proxy.died
    wait_until(lambda: first not in pids(tmp_path), what="another", timeout_s=5.0)
    wait_until(lambda: is_taken(way.listen), what="the way to be there again", timeout_s=5.0)
    proxy.end()
    assert not pids(tmp_path)
    assert len(told) == 1


def is_taken(address: Address) -> bool:
    """Return True if a server accepts connections at this address."""
    with (
        contextlib.suppress(ConnectionRefusedError, ConnectionResetError),
        socket.create_connection(address, 1.0),
    ):
        return True
    return False


ADDRESSES = Addresses(7, 29092)


@pytest.fixture(autouse=True)
def _some_toxiproxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "toxiproxy_server", lambda: Path("toxiproxy-server"))


def laid(needs: frozenset[Need]) -> tuple[dict[Link, list[tuple[Address, Address]]], ...]:
    """Return the routes of the mesh and of the request proxy: two dicts, link → (listen, upstream) of each route."""
    layout = Layout(ClusterSpec(), ADDRESSES, bool(CLIENTS_BY_PROXY & needs))
    here = (layout, needs, Path("nodes"), RunTag("r", Path(), Path()), lambda node: None)
    mesh = links.wire(*here)
    requests = links.wire_requests(*here)
    return (
        {link: [(way.listen, way.upstream) for way in ways] for link, ways in mesh.ways.items()},
        {link: [(one.listen, one.upstream) for one in ways] for link, ways in requests.ways.items()},
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
