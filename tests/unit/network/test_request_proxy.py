"""The request proxy as a process: one that ends by itself is told and replaced, one that is ended is not."""

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
from ackproof.network.addresses import Address
from ackproof.network.mesh import LinkError
from ackproof.network.requests.links import RequestProxy
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
    assert proxy.count_held() == {"r": {"w": 0}}
    (first,) = pids(tmp_path)
    os.kill(first, signal.SIGKILL)
    assert heard.wait(10.0)

    def answers() -> bool:
        try:
            return proxy.read_counts("r") is None
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
    """Whether somebody listens there."""
    with (
        contextlib.suppress(ConnectionRefusedError, ConnectionResetError),
        socket.create_connection(address, 1.0),
    ):
        return True
    return False
