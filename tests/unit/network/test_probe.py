"""Tests of probes and of the kernel's counters, on connections within this process."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.network import meshes, probe
from ackproof.network.addresses import Address
from ackproof.network.mesh import CLIENTS, Link
from ackproof.network.meshes import MeshWiring, ProxyMesh
from ackproof.network.probe import TcpFlow, Traffic, read_socket_inodes, read_tcp_flows

Serve = Callable[[Callable[[socket.socket], None]], tuple[str, int]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Yield a function that starts a server, which calls the given handler for each connection. It returns host and
    port."""
    listeners: list[socket.socket] = []

    def start(handle: Callable[[socket.socket], None]) -> tuple[str, int]:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(line,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        host, port = listener.getsockname()
        return host, port

    yield start
    for listener in listeners:
        listener.close()


def answering(line: socket.socket) -> None:
    with line:
        while head := line.recv(4):
            size = struct.unpack(">i", head)[0]
            while size:
                size -= len(line.recv(size))
            line.sendall(struct.pack(">i", 10) + bytes(10))


def test_what_comes_back_is_counted(serve: Serve) -> None:
    address = serve(answering)
    with socket.create_connection(address) as line:
        mine = read_socket_inodes(os.getpid())

        def look() -> Traffic:
            found = [flow for flow in read_tcp_flows() if flow.remote == address and flow.inode in mine]
            return Traffic({flow.inode: flow for flow in found})

        first = look()
        assert len(first.flows) == 1
        assert look().received_since(first) == 0
        line.sendall(probe.kafka_question(0, 1000))
        assert line.recv(14)
        assert look().received_since(first) == 14


def test_what_closes_during_the_look_is_still_its_process_s(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that closes while the counters are read still belongs to its process: clients do not get the
    harness's own, and a node keeps its own."""
    address = serve(answering)
    sight = SimpleNamespace(
        reaches=lambda _: [Address(*address)], listens=lambda _: [], pid=lambda _: os.getpid()
    )
    mesh = ProxyMesh(MeshWiring(cast(Any, None), {}, cast(Any, sight), "t"))
    for link, connections in ((Link(CLIENTS, 2), 0), (Link(1, 2), 1)):
        line = socket.create_connection(address)

        def closed_behind(line: socket.socket = line) -> list[TcpFlow]:
            found = read_tcp_flows()
            line.close()
            return found

        monkeypatch.setattr(meshes, "read_tcp_flows", closed_behind)
        assert len(mesh.traffic(link).flows) == connections


def test_a_kernel_that_lists_no_connections_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing module must not look like a link without traffic."""
    monkeypatch.setattr(socket, "IPPROTO_TCP", 250)  # no module lists the connections of this protocol
    with pytest.raises(OSError, match="modprobe tcp_diag"):
        read_tcp_flows()


def test_an_ipv4_address_mapped_to_ipv6_is_an_ipv4_address() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener,
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as line,
        listener.accept()[0],
    ):
        assert {line.getsockname(), line.getpeername()} <= {flow.remote for flow in read_tcp_flows()}


def test_sockets_of_a_process_that_is_gone() -> None:
    assert read_socket_inodes(2**22 + 1) == frozenset()


@pytest.mark.parametrize("size", [0, 14, 500, 30_000])
def test_questions_are_as_large_as_asked(size: int) -> None:
    assert len(probe.kafka_question(0, size)) >= size
    assert len(probe.zookeeper_question(0, size)) >= size


def test_a_probe_that_is_answered(serve: Serve) -> None:
    answer = probe.probe(serve(answering), timeout_s=5, size=2000, asks=7)
    assert (answer.how, answer.answers, answer.passed) == ("answered", 7, True)


def test_a_probe_that_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    assert probe.probe(address, timeout_s=1).how == "refused"


def test_a_probe_that_is_not_answered(serve: Serve) -> None:
    held: list[socket.socket] = []
    answer = probe.probe(serve(held.append), timeout_s=0.2)
    assert answer.how == "silent"
    assert 0.15 < answer.seconds < 2
    for line in held:
        line.close()


def test_a_probe_that_is_closed_upon(serve: Serve) -> None:
    def close(line: socket.socket) -> None:
        line.recv(1000)
        line.close()

    assert probe.probe(serve(close), timeout_s=2).how in ("closed", "reset")


def test_a_probe_that_is_reset(serve: Serve) -> None:
    def reset(line: socket.socket) -> None:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.close()

    assert probe.probe(serve(reset), timeout_s=2, size=20_000).how in ("reset", "closed")


def test_how_long_an_end_takes(serve: Serve) -> None:
    seconds = probe.measure_close(serve(answering), timeout_s=5)
    assert seconds is not None
    assert seconds < 2
    held: list[socket.socket] = []

    def never(line: socket.socket) -> None:
        held.append(line)
        line.recv(1000)
        line.sendall(struct.pack(">i", 0))

    assert probe.measure_close(serve(never), timeout_s=0.3) is None
