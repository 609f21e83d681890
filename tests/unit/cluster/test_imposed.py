"""What a mesh of proxies says that lies on a link: whose it is, for faults tell their own from others' by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.network.addresses import Address
from ackproof.network.mesh import Cut, Link
from ackproof.network.meshes import MeshWiring, ProxyMesh
from ackproof.network.toxiproxy import ProxyRoute

LINK = Link(2, 1)


class Api:
    """One proxy, which is as open as it was told to be."""

    def __init__(self) -> None:
        self.seen = SimpleNamespace(name="2-1", enabled=True, toxics=())

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
    mesh.impose("fault-1", LINK, Cut())
    mesh.impose("fault-1002", LINK, Cut())
    assert mesh.imposed(LINK) == ("fault-1 closed 2-1", "fault-1002 closed 2-1")
    mesh.lift("fault-1", LINK)
    assert mesh.imposed(LINK) == ("fault-1002 closed 2-1",)
    mesh.lift("fault-1002", LINK)
    assert mesh.imposed(LINK) == ()
    api.seen.enabled = False  # by nobody of ours
    assert mesh.imposed(LINK) == ("2-1 is closed",)
