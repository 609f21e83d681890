"""Meshes of the clusters that ackproof starts: `ProxyMesh` for processes, `KernelMesh` for containers.

On processes each link goes through Toxiproxy, one proxy per listening address. In containers a link is broken by packet
rules in the network namespace of its source, which are added from outside. It goes through no proxy until its traffic
is held back (throttle, delay, slow close). Then new connections are redirected to a Toxiproxy on a host that all nodes
reach. Links from clients, which run on this machine, always go through proxies.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from ackproof.network import probe
from ackproof.network.addresses import Address
from ackproof.network.kernel import Namespaces, PacketRules
from ackproof.network.mesh import (
    CLIENTS,
    OF_PACKETS,
    BlackHole,
    Cut,
    Delay,
    Effect,
    Imposed,
    Link,
    LinkError,
    Reset,
    SlowClose,
    Throttle,
)
from ackproof.network.probe import ProbeAnswer, Traffic, read_socket_inodes, read_tcp_flows
from ackproof.network.toxiproxy import STREAMS, ProxyRoute, ProxyServer, Toxic

KILOBYTE: Final = 1000
"""Bytes of a kilobyte, in Toxiproxy's bandwidth."""
HELD_BACK: Final = (Throttle, Delay, SlowClose)
"""Effects that delay traffic. Packet rules cannot make them, only a proxy can."""

_RELAY: Final = "relay"
"""First word of the marks of rules that lead a link to its proxy. No fault has this name."""
T = TypeVar("T")


class PeerView(Protocol):
    """The addresses at which nodes look for their peers, read from the nodes' own files at each call. The view does not
    depend on what the mesh has set up: probes go where the nodes' own traffic goes."""

    def links(self) -> frozenset[Link]:
        """Return every link that can exist among nodes."""

    def reaches(self, link: Link) -> tuple[Address, ...]:
        """Return the addresses to which the link's `source` connects in order to reach `target`, the main address
        first; () if the files have none."""

    def listens(self, link: Link) -> tuple[Address, ...]:
        """Return the addresses at which the link's `target` listens for `source`, the most used address first."""

    def is_zookeeper(self, link: Link) -> bool:
        """Return True if the link's `target` is a ZooKeeper server, which does not understand Kafka's protocol."""

    def pid(self, node: int) -> int | None:
        """Return the process id of a node; None while it has no process."""


@dataclass(frozen=True)
class MeshWiring:
    """Parts of a mesh. `server`: runs the proxies. `sight`: the addresses at which the nodes look for each other.

    `ways`: link → routes of its proxies, one for each port of the target to which the source connects. All of them
    listen at one host. `table`: name of the run's nftables table.
    """

    server: ProxyServer
    ways: Mapping[Link, tuple[ProxyRoute, ...]]
    sight: PeerView
    table: str


class ProxyMesh:
    """A `Mesh` of nodes that are processes of this machine: links go through Toxiproxy, packet loss through
    nftables."""

    def __init__(self, wiring: MeshWiring) -> None:
        self._server = wiring.server
        self._ways = dict(wiring.ways)
        self._sight = wiring.sight
        self._here = PacketRules(wiring.table)
        self._lock = threading.RLock()
        self._laid: dict[tuple[str, Link], Effect] = {}

    def links(self) -> frozenset[Link]:
        return frozenset(self._ways)

    # -- its life, within that of a cluster -------------------------------------------------------------------------

    def start(self, lease_descriptor: int) -> None:
        """Start the proxy server, and add the proxies of all links. Raises `LinkError` if the server does not
        answer in time, or does not make a proxy.

        `lease_descriptor`: descriptor of the lock on the cluster's addresses (`Lease.descriptor`), which the
        proxies keep open.
        """
        self._server.start(lease_descriptor=lease_descriptor)
        self._server.api.add(way for ways in self._ways.values() for way in ways)

    def route(self, viewer: int, peer: int) -> str | None:
        """Return the host at which node `viewer` must look for `peer` so that the link can be broken; None: the peer's
        own host."""
        ways = self._ways.get(Link(viewer, peer))
        return ways[0].listen.host if ways else None

    def renew(self, node: int) -> None:
        """Put the effects in force on the links of a restarted node again. Does nothing here: they are in proxies and
        in this machine's own packet rules, which outlive the node's process."""

    def end(self) -> None:
        """Remove all effects and packet rules, and stop the proxies."""
        try:
            self._here.end()
        finally:
            self._server.end()

    def check(self) -> None:
        self._server.check()

    # -- breaking and mending ---------------------------------------------------------------------------------------

    def impose(self, owner: str, link: Link, effect: Effect) -> None:
        with self._lock:
            if link not in self.links():
                raise LinkError(f"the link {link} was not laid so that it can be broken")
            if (owner, link) in self._laid:
                raise LinkError(f"{owner} has an effect on {link} already: {self._laid[owner, link]}")
            self._laid[owner, link] = effect
            self._lay(owner, link, effect)

    def lift(self, owner: str, link: Link) -> None:
        with self._lock:
            if (effect := self._laid.pop((owner, link), None)) is not None:
                self._take(owner, link, effect)

    def imposed(self, link: Link) -> tuple[Imposed, ...]:
        """Return the effects on this link, as read back from the proxies and the kernel."""
        with self._lock:
            rules = self._rules(link)
            marks = () if rules is None else rules.marks()
            owners = {mark: mark.removesuffix(f" {link}") for mark in marks}
            found = [
                Imposed("" if owner == _RELAY else owner, mark)
                for mark, owner in owners.items()
                if mark != owner
            ]
            for way in self._ways.get(link, ()):
                proxy = self._server.api.proxy(way.name)
                found += [
                    Imposed(toxic.name.rsplit("-", 2)[0], f"{toxic.name} on {proxy.name}")
                    for toxic in proxy.toxics
                ]
                if not proxy.enabled:
                    closed = [
                        Imposed(owner, f"{owner} closed {proxy.name}")
                        for (owner, of), effect in self._laid.items()
                        if (of, effect) == (link, Cut())
                    ]
                    found += closed or [Imposed("", f"{proxy.name} is closed")]
            return tuple(found)

    def _rules(self, link: Link) -> PacketRules | None:
        """Return the packet rules for this link: those of this machine, which all links share here. A subclass returns
        None if the link's source has no process, and so no network namespace."""
        del link
        return self._here

    def _by_packets(self, link: Link, effect: Effect) -> bool:
        """Return True if packet rules make this effect on the link, False if a proxy does."""
        del link
        return isinstance(effect, OF_PACKETS)

    def _packet_addresses(self, link: Link) -> tuple[Address, ...]:
        return tuple(way.listen for way in self._ways[link])

    def _lay(self, owner: str, link: Link, effect: Effect) -> None:
        if self._by_packets(link, effect):
            if (rules := self._rules(link)) is None:
                raise LinkError(f"node {link.source} has no process, and so no namespace")
            rules.lay(f"{owner} {link}", self._packet_addresses(link), effect)
            return
        api = self._server.api
        for way in self._ways[link]:
            for toxic in _toxics(owner, effect):
                api.add_toxic(way.name, toxic)
            # Toxiproxy resets only connections made after the toxic was added: close the existing ones.
            if isinstance(effect, Cut | Reset):
                api.enable(way.name, enabled=False)
                api.enable(way.name, enabled=not self._is_cut(link))

    def _take(self, owner: str, link: Link, effect: Effect) -> None:
        if self._by_packets(link, effect):
            if (rules := self._rules(link)) is not None:
                rules.remove(f"{owner} {link}")
            return
        for way in self._ways.get(link, ()):
            for toxic in _toxics(owner, effect):
                self._server.api.remove_toxic(way.name, toxic.name)
            if isinstance(effect, Cut):
                self._server.api.enable(way.name, enabled=not self._is_cut(link))

    def _is_cut(self, link: Link) -> bool:
        return any(isinstance(effect, Cut) for (_, of), effect in self._laid.items() if of == link)

    # -- witnesses --------------------------------------------------------------------------------------------------

    def probe(self, link: Link, *, timeout_s: float = 1.0, size: int = 0, asks: int = 1) -> ProbeAnswer:
        """Connect as the link's source does, and send `asks` requests of at least `size` bytes (at most some 32,000),
        one after the other.

        The probe connects in the source's network namespace, to the target's address in the source's own files.
        `timeout_s`: limit for the whole probe, in seconds. A failed connection is a result. Raises `LinkError` if that
        address is unknown.
        """
        address, zookeeper = self._address(link), self._sight.is_zookeeper(link)
        return self._at_source(
            link, lambda: probe.probe(address, timeout_s=timeout_s, size=size, asks=asks, zookeeper=zookeeper)
        )

    def closing(self, link: Link, *, timeout_s: float) -> float | None:
        address, zookeeper = self._address(link), self._sight.is_zookeeper(link)
        return self._at_source(
            link, lambda: probe.measure_close(address, timeout_s=timeout_s, zookeeper=zookeeper)
        )

    def traffic(self, link: Link) -> Traffic:
        """Return the kernel's counters of the connections that the source now has to the target, through its proxy or
        past it.

        If the source is the clients, these are connections to the proxy. Those of this process are left out: they are
        the harness's own, such as probes.
        """
        of_clients = link.source == CLIENTS
        pid = os.getpid() if of_clients else self._sight.pid(link.source)
        wanted = set(self._sight.reaches(link))
        if not of_clients:
            # Also count connections to the node itself: they show a node that bypasses its proxy.
            wanted.update(self._sight.listens(link))

        def own() -> frozenset[int]:
            return read_socket_inodes(pid) if pid is not None else frozenset()

        # Read before and after: a connection closed in between is in one of them, with all its bytes.
        before, seen, after = own(), self._at_source(link, read_tcp_flows), own()
        seen = [flow for flow in seen if (flow.inode in before | after) != of_clients]
        return Traffic({flow.inode: flow for flow in seen if flow.remote in wanted})

    def _at_source(self, link: Link, act: Callable[[], T]) -> T:
        """Call `act` in the network namespace of the link's source, and return its result. Here all nodes share the
        namespace of this process."""
        del link
        return act()

    def _address(self, link: Link) -> Address:
        addresses = self._sight.reaches(link)
        if not addresses:
            raise LinkError(f"the address of {link} is unknown: its source has none for its target")
        return addresses[0]


class KernelMesh(ProxyMesh):
    """Mesh of nodes with network namespaces of their own. Packet rules in the namespace of a link's source break the
    link. While a throttle, a delay or a slow close is in force on a link, these rules redirect its connections to a
    Toxiproxy.

    `relay_host`: host at which these proxies listen for nodes. Such a proxy connects to the link's request proxy, if it
    has one, else to the target. `behind(link, address)` returns the address of the request proxy for the target's
    `address`; None without one.
    """

    def __init__(
        self,
        wiring: MeshWiring,
        spaces: Namespaces,
        relay_host: str,
        behind: Callable[[Link, Address], Address | None] = lambda link, address: None,
    ) -> None:
        of_clients = {link: ways for link, ways in wiring.ways.items() if link.source == CLIENTS}
        super().__init__(replace(wiring, ways=of_clients))
        self._relay_host = relay_host
        self._behind = behind
        self._spaces = spaces

    def links(self) -> frozenset[Link]:
        return super().links() | self._sight.links()

    def end(self) -> None:
        try:
            self._spaces.end()
        finally:
            super().end()

    def renew(self, node: int) -> None:
        """Add the packet rules in force again for a restarted node, whose new namespace has none. Raises `LinkError` if
        that fails."""
        with self._lock:
            for (owner, link), effect in self._laid.items():
                if link.source == node and self._by_packets(link, effect):
                    self._lay(owner, link, effect)
            for link in self._ways:
                if link.source == node:
                    self._redirect(link)

    # -- breaking and mending ---------------------------------------------------------------------------------------

    def _rules(self, link: Link) -> PacketRules | None:
        """Return the rules of the source's present namespace; None while it has no process."""
        return super()._rules(link) if link.source == CLIENTS else self._spaces.rules(link.source)

    def _by_packets(self, link: Link, effect: Effect) -> bool:
        return super()._by_packets(link, effect) or (
            link.source != CLIENTS and not isinstance(effect, HELD_BACK)
        )

    def _packet_addresses(self, link: Link) -> tuple[Address, ...]:
        return super()._packet_addresses(link) if link.source == CLIENTS else self._sight.listens(link)

    def _lay(self, owner: str, link: Link, effect: Effect) -> None:
        is_new = link not in self._ways and not self._by_packets(link, effect)
        if is_new:
            names = [(f"{link.source}-{link.target}-{at.port}", at) for at in self._sight.listens(link)]
            self._ways[link] = tuple(
                self._server.api.add_at(name, self._relay_host, self._behind(link, at) or at)
                for name, at in names
            )
        super()._lay(owner, link, effect)
        if is_new:
            self._redirect(link)

    def _take(self, owner: str, link: Link, effect: Effect) -> None:
        super()._take(owner, link, effect)
        if link.source == CLIENTS or self._by_packets(link, effect):
            return
        if not any(of == link and isinstance(other, HELD_BACK) for (_, of), other in self._laid.items()):
            if (rules := self._rules(link)) is not None:
                rules.remove(f"{_RELAY} {link}")
            for way in self._ways.pop(link, ()):
                self._server.api.remove(way.name)

    def _redirect(self, link: Link) -> None:
        rules = self._rules(link)
        if rules is None:
            raise LinkError(f"node {link.source} has no process, and so no namespace")
        for at, way in zip(self._sight.listens(link), self._ways[link], strict=True):
            rules.redirect(f"{_RELAY} {link}", at, way.listen, through=self._behind(link, at))

    # -- witnesses --------------------------------------------------------------------------------------------------

    def _at_source(self, link: Link, act: Callable[[], T]) -> T:
        return act() if link.source == CLIENTS else self._spaces.run_in(link.source, act)


def _toxics(owner: str, effect: Effect) -> list[Toxic]:
    """Return the toxics that make this effect, one for each stream; none for an effect that Toxiproxy makes without
    toxics or not at all."""
    match effect:
        case BlackHole():
            kind, attributes = "timeout", {"timeout": 0}
        case Reset():
            kind, attributes = "reset_peer", {"timeout": 0}
        case Throttle(rate):
            kind, attributes = "bandwidth", {"rate": max(1, rate // KILOBYTE)}
        case Delay(latency, jitter):
            kind = "latency"
            attributes = {"latency": round(latency * 1000), "jitter": round(jitter * 1000)}
        case SlowClose(delay):
            kind, attributes = "slow_close", {"delay": round(delay * 1000)}
        case _:
            return []
    return [Toxic(f"{owner}-{kind}-{stream}", kind, stream, attributes) for stream in STREAMS]
