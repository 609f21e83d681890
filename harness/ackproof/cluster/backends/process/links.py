"""The links of a cluster of processes: which of them go through proxies, and how each node sees its peers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Final

from ackproof.base.processes import RunTag
from ackproof.cluster.addresses import Address, node_name
from ackproof.cluster.layout import Layout
from ackproof.cluster.metadata.choice import metadata_of
from ackproof.cluster.network import packets
from ackproof.cluster.network.mesh import CLIENTS, Link
from ackproof.cluster.network.packets import PacketRules
from ackproof.cluster.network.probe import Speech
from ackproof.cluster.network.proxied import ProxiedMesh, Way
from ackproof.cluster.network.server import ProxyServer
from ackproof.experiment.needs import LINKS, Need
from ackproof.provision.nft import find_nft
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.provision.toxiproxy import toxiproxy_server

_EXTERNAL: Final = re.compile(r"^advertised\.listeners=.*EXTERNAL://([^:,\s]+):([0-9]+)", re.MULTILINE)


def require(needs: Set[Need], progress: ProgressSink = ignore) -> None:
    """Find or make what these needs take of this machine, before anything is started. Raises `BadInput`."""
    if needs & LINKS:
        toxiproxy_server(progress)
    if Need.PACKETS in needs:
        find_nft()


class ProcessLinks:
    """The proxies of one cluster. `nodes_dir` holds the nodes' own files, `pid` tells the process of a node.

    Raises `MissingTool` when there is no Toxiproxy server.
    """

    def __init__(
        self,
        layout: Layout,
        needs: Set[Need],
        nodes_dir: Path,
        tag: RunTag,
        pid: Callable[[int], int | None],
    ) -> None:
        self._layout = layout
        ways = ways_of(layout, needs)
        self._server = ProxyServer(
            toxiproxy_server(), *layout.addresses.proxies, folder=nodes_dir.parent / "links", tag=tag
        )
        self._proxied = frozenset(ways)
        rules = PacketRules(packets.table_of(tag.run_id))
        self.mesh = ProxiedMesh(self._server, ways, NodesView(layout, nodes_dir, pid), rules)

    def start(self, lease_descriptor: int) -> None:
        self._server.start(lease_descriptor=lease_descriptor)
        self.mesh.open()

    def renew(self, node: int) -> None:
        """Nothing to do: proxies do not end with a node."""

    def end(self) -> None:
        try:
            self.mesh.end()
        finally:
            self._server.end()

    def route(self, viewer: int, peer: int) -> str:
        addresses = self._layout.addresses
        return addresses.link(viewer, peer) if Link(viewer, peer) in self._proxied else addresses.node(peer)


class NodesView:
    """How nodes see their peers, by their own files."""

    def __init__(self, layout: Layout, nodes_dir: Path, pid: Callable[[int], int | None]) -> None:
        self._layout = layout
        self._nodes_dir = nodes_dir
        self.pid = pid

    def reaches(self, link: Link) -> tuple[tuple[str, int], ...]:
        """For a node by its hosts file, for clients by what the target advertises."""
        if link.source == CLIENTS:
            match = _EXTERNAL.search(self._read(link.target, "server.properties"))
            return ((match[1], int(match[2])),) if match else ()
        name = node_name(link.target)
        hosts = [line.split() for line in self._read(link.source, "hosts").splitlines()]
        found = next((words[0] for words in hosts if len(words) > 1 and name in words[1:]), None)
        if found is None:
            return ()
        return tuple((found, port) for port in ports(self._layout, link))

    def speech(self, link: Link) -> Speech:
        """ZooKeeper's servers speak another protocol than all other nodes."""
        return metadata_of(self._layout.spec).speech(self._layout, link.target)

    def _read(self, node: int, file: str) -> str:
        try:
            return (self._nodes_dir / str(node) / file).read_text(encoding="utf-8")
        except OSError:
            return ""


def ports(layout: Layout, link: Link) -> tuple[int, ...]:
    """The ports of `target` to which `source` connects, the most used first; empty when there is no such link."""
    source, target = link
    if source == target:
        return ()
    if source == CLIENTS:
        return (layout.addresses.external_port,) if layout.is_broker(target) else ()
    return metadata_of(layout.spec).ports(layout, link)


def ways_of(layout: Layout, needs: Set[Need]) -> dict[Link, tuple[Way, ...]]:
    """The proxies of every link that the needs speak of."""
    return dict(_ways(layout, needs))


def _ways(layout: Layout, needs: Set[Need]) -> Iterator[tuple[Link, tuple[Way, ...]]]:
    addresses = layout.addresses
    for link in _wanted(layout, needs):
        source, target = link
        if source == CLIENTS:
            inner = addresses.client(target)
            way = Way(f"clients-{target}", addresses.for_clients(target), inner)
            yield link, (way,)
            continue
        yield (
            link,
            tuple(
                Way(
                    f"{source}-{target}-{port}",
                    Address(addresses.link(source, target), port),
                    Address(addresses.node(target), port),
                )
                for port in ports(layout, link)
            ),
        )


def _wanted(layout: Layout, needs: Set[Need]) -> Iterator[Link]:
    """The links that the needs speak of, by their classes: a role may be held by any node."""
    wanted = {Need.BROKER_LINKS}
    if layout.spec.metadata.broker_controls:
        wanted.add(Need.CONTROLLER_LINKS)  # what is needed of controllers is needed of brokers
    for target in layout.node_ids:
        if Need.CLIENT_LINKS in needs and layout.is_broker(target):
            yield Link(CLIENTS, target)
        for source in layout.node_ids:
            link = Link(source, target)
            if not ports(layout, link):
                continue
            of_brokers = layout.is_broker(source) and bool(wanted & needs)
            of_controllers = (
                layout.is_controller(source)
                and layout.is_controller(target)
                and Need.CONTROLLER_LINKS in needs
            )
            if of_brokers or of_controllers:
                yield link
