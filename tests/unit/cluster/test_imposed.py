"""Tests of `ProxyMesh.imposed`: each effect on a link is reported with the fault that owns it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.network.addresses import Address
from ackproof.network.mesh import Cut, Delay, Imposed, Link, LinkError
from ackproof.network.meshes import MeshWiring, ProxyMesh
from ackproof.network.toxiproxy import ProxyRoute, Toxic

LINK = Link(2, 1)


class Api:
    """Fake client of Toxiproxy with one proxy. It keeps the proxy's toxics, and whether the proxy is enabled."""

    def __init__(self) -> None:
        self.seen = SimpleNamespace(name="2-1", enabled=True, toxics=[])

    def add_toxic(self, name: str, toxic: Toxic) -> None:
        self.seen.toxics.append(toxic)

    def proxy(self, name: str) -> SimpleNamespace:
        return self.seen

    def enable(self, name: str, *, enabled: bool) -> None:
        self.seen.enabled = enabled


def test_a_cut_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    way = ProxyRoute("2-1", Address("127.0.0.1", 1), Address("127.0.0.1", 2))
    server = cast(Any, SimpleNamespace(api=api))
    mesh = ProxyMesh(MeshWiring(server, {LINK: (way,)}, cast(Any, None), "t"))
    monkeypatch.setattr(mesh, "_rules", lambda link: None)
    assert mesh.imposed(LINK) == ()
    with pytest.raises(LinkError, match="1→2 was not laid so that it can be broken"):
        mesh.impose("fault-1", Link(1, 2), Cut())
    mesh.impose("fault-1", LINK, Cut())
    mesh.impose("fault-1002", LINK, Cut())
    assert mesh.imposed(LINK) == (
        Imposed("fault-1", "fault-1 closed 2-1"),
        Imposed("fault-1002", "fault-1002 closed 2-1"),
    )
    mesh.lift("fault-1", LINK)
    assert mesh.imposed(LINK) == (Imposed("fault-1002", "fault-1002 closed 2-1"),)
    mesh.lift("fault-1002", LINK)
    assert mesh.imposed(LINK) == ()
    api.seen.enabled = False  # by nobody of ours
    assert mesh.imposed(LINK) == (Imposed("", "2-1 is closed"),)


def test_toxics_and_packet_rules_say_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that redirects a link to its proxy has no owner. A rule of another link is left out."""
    api = Api()
    way = ProxyRoute("2-1", Address("127.0.0.1", 1), Address("127.0.0.1", 2))
    server = cast(Any, SimpleNamespace(api=api))
    mesh = ProxyMesh(MeshWiring(server, {LINK: (way,)}, cast(Any, None), "t"))
    marks = (f"fault-1 {LINK}", f"relay {LINK}", "fault-2 1→2")
    monkeypatch.setattr(mesh, "_rules", lambda link: SimpleNamespace(marks=lambda: marks))
    mesh.impose("fault-1002", LINK, Delay(0.1))
    assert mesh.imposed(LINK) == (
        Imposed("fault-1", f"fault-1 {LINK}"),
        Imposed("", f"relay {LINK}"),
        Imposed("fault-1002", "fault-1002-latency-upstream on 2-1"),
        Imposed("fault-1002", "fault-1002-latency-downstream on 2-1"),
    )
