"""Tests of `unread_bytes`: bytes sent and not yet read, from the kernel's tables of both sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ackproof.base.wait import wait_until
from ackproof.clients.librdkafka import producer
from ackproof.clients.librdkafka.producer import unread_bytes


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    with client, peer:
        yield client, peer


def own(line: socket.socket) -> frozenset[int]:
    return frozenset({os.fstat(line.fileno()).st_ino})


def test_what_the_other_end_has_not_read_is_counted(pair: tuple[socket.socket, socket.socket]) -> None:
    client, peer = pair
    assert unread_bytes(own=own(client)) == 0
    client.sendall(b"x" * 1000)
    assert unread_bytes(own=own(client)) == 1000
    peer.recv(400)
    assert unread_bytes(own=own(client)) == 600
    peer.recv(600)
    wait_until(lambda: unread_bytes(own=own(client)) == 0, what="nothing on its way", timeout_s=2)


def test_a_peer_that_takes_both_families_is_seen() -> None:
    """A JVM listens on an IPv6 socket. The kernel lists an IPv4 connection to it under a mapped address."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        client = socket.create_connection(("127.0.0.1", server.getsockname()[1]))
        peer, _ = server.accept()
    with client, peer:
        client.sendall(b"x" * 1000)
        assert unread_bytes(own=own(client)) == 1000
        peer.recv(1000)
        wait_until(lambda: unread_bytes(own=own(client)) == 0, what="nothing on its way", timeout_s=2)


def test_what_we_have_not_read_ourselves_is_not(pair: tuple[socket.socket, socket.socket]) -> None:
    client, peer = pair
    peer.sendall(b"x" * 1000)
    assert unread_bytes(own=own(client)) == 0
    client.recv(1000)


def test_all_sockets_of_this_process_count_if_none_are_named(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, peer = pair
    client.sendall(b"x" * 7)
    assert unread_bytes() >= 7
    peer.recv(7)


def test_a_machine_without_these_tables_has_nothing_on_its_way(tmp_path: Path) -> None:
    assert unread_bytes(tmp_path) == 0


@pytest.mark.parametrize(
    ("unread", "told"),
    [((300, 200, 200, 200), [200]), ((300, 200, 0, 0, 0), []), ((0, 200, 200, 200), [200])],
)
def test_a_producer_that_waits_no_longer_says_what_it_leaves_unread(
    monkeypatch: pytest.MonkeyPatch, unread: tuple[int, ...], told: list[int]
) -> None:
    left = iter(unread)
    clock = iter(range(100))
    monkeypatch.setattr(producer, "unread_bytes", lambda: next(left))
    monkeypatch.setattr(producer, "_STANDSTILL_S", 2.5)
    monkeypatch.setattr(producer.time, "monotonic", lambda: next(clock))
    said: list[dict[str, object]] = []
    process = SimpleNamespace(
        settings=SimpleNamespace(config={"acks": "0"}, producer=7),
        reports=SimpleNamespace(fatal=""),
        events=SimpleNamespace(add=lambda kind, **detail: said.append(detail)),
        _serve=lambda timeout_s: None,
    )
    producer.ProducerProcess._await_brokers(process)  # type: ignore[arg-type]
    assert said == [{"unread_bytes": count, "producer": 7} for count in told]
