"""Tests of the addresses at which nodes listen, and of the hosts files of their JVMs."""

from __future__ import annotations

import socket

from ackproof.network.addresses import Address, Addresses, hosts_file, node_name

ADDRESSES = Addresses(block=9, base_port=21092)


def test_the_scheme() -> None:
    assert ADDRESSES.node(3) == "127.9.1.3"
    assert ADDRESSES.client(3) == Address("127.9.2.3", 21094)
    assert ADDRESSES.link(1, 3) == "127.9.51.3"
    assert str(ADDRESSES.controller(101)) == "127.9.1.101:21093"
    assert len(set(ADDRESSES.listening([1, 2, 101]))) == 15


def test_a_hosts_file_names_the_node_itself_its_peers_and_the_machine() -> None:
    lines = hosts_file(1, ADDRESSES.node(1), {2: ADDRESSES.node(2), 101: ADDRESSES.node(101)}).splitlines()
    assert lines[0] == "127.0.0.1 localhost"
    assert f"127.9.1.1 {socket.gethostname()}" in lines
    assert lines[-3:] == ["127.9.1.1 node-1.test", "127.9.1.2 node-2.test", "127.9.1.101 node-101.test"]


def test_a_peer_may_be_looked_for_at_a_proxy() -> None:
    peers = {peer: ADDRESSES.link(2, peer) for peer in (1, 3)}
    lines = hosts_file(2, ADDRESSES.node(2), peers).splitlines()
    by_name = {name: address for address, name in (line.split() for line in lines)}
    assert by_name[node_name(1)] == "127.9.52.1"
    assert by_name[node_name(3)] == "127.9.52.3"
    assert by_name[node_name(2)] == "127.9.1.2"
