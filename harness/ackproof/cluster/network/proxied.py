"""The mesh of a cluster whose links go through Toxiproxy, one proxy per listening address of a link."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ackproof.cluster.network import probe
from ackproof.cluster.network.failure import LinkError
from ackproof.cluster.network.mesh import (
    CLIENTS,
    OF_PACKETS,
    BlackHole,
    Cut,
    Delay,
    Effect,
    Link,
    Reset,
    SlowClose,
    Throttle,
)
from ackproof.cluster.network.packets import Loopback, PacketRules
from ackproof.cluster.network.probe import Answer, Speech
from ackproof.cluster.network.server import ProxyServer
from ackproof.cluster.network.sockets import Traffic, flows, inodes_of
from ackproof.cluster.network.toxiproxy import STREAMS, ProxyState, Toxic

KILOBYTE: Final = 1000
"""What Toxiproxy's bandwidth counts in."""


@dataclass(frozen=True)
class Way:
    """One proxy of a link: where it listens, and where the node itself does."""

    name: str
    listen: tuple[str, int]
    upstream: tuple[str, int]


class Sight(Protocol):
    """How the nodes themselves see their peers: asked anew each time, and told nothing by the mesh."""

    def reaches(self, link: Link) -> tuple[tuple[str, int], ...]:
        """The addresses at which `source` really looks for `target`, its main one first."""

    def speech(self, link: Link) -> Speech:
        """What `target` understands."""

    def pid(self, node: int) -> int | None:
        """The process of a node, None while it has none."""


class ProxiedMesh:
    """A mesh over `server`, with the proxies `ways`. What it breaks ends with the server, or by `end`."""

    def __init__(
        self, server: ProxyServer, ways: Mapping[Link, tuple[Way, ...]], sight: Sight, rules: PacketRules
    ) -> None:
        self._server = server
        self._ways = dict(ways)
        self._sight = sight
        self._rules = rules
        self._lock = threading.RLock()
        self._laid: dict[tuple[str, Link], Effect] = {}

    def links(self) -> frozenset[Link]:
        """The links that can be broken here."""
        return frozenset(self._ways)

    def open(self) -> None:
        self._server.api.add(
            (way.name, f"{way.listen[0]}:{way.listen[1]}", f"{way.upstream[0]}:{way.upstream[1]}")
            for ways in self._ways.values()
            for way in ways
        )

    def end(self) -> None:
        """Take the packet rules away. The proxies go with their server."""
        self._rules.end()

    # -- breaking and mending ---------------------------------------------------------------------------------------

    def impose(self, owner: str, link: Link, effect: Effect) -> None:
        """Lay an effect on a link, on its present connections too. Raises `LinkError`."""
        with self._lock:
            ways = self._of(link)
            if (owner, link) in self._laid:
                raise LinkError(f"{owner} has an effect on {link} already: {self._laid[owner, link]}")
            self._laid[owner, link] = effect
            if isinstance(effect, OF_PACKETS):
                self._rules.lay(mark_of(owner, link), [Loopback(*way.listen) for way in ways], effect)
                return
            for way in ways:
                for toxic in toxics_of(owner, effect):
                    self._server.api.poison(way.name, toxic)
            if isinstance(effect, Reset):
                self._bounce(link)
            self._open_or_close(link)

    def lift(self, owner: str, link: Link) -> None:
        """Take this owner's effect from a link. Raises `LinkError`."""
        with self._lock:
            effect = self._laid.pop((owner, link), None)
            if effect is None:
                return
            if isinstance(effect, OF_PACKETS):
                self._rules.remove(mark_of(owner, link))
                return
            for way in self._of(link):
                for toxic in toxics_of(owner, effect):
                    self._server.api.cure(way.name, toxic.name)
            self._open_or_close(link)

    def imposed(self, link: Link) -> tuple[str, ...]:
        """What proxies and kernel say of this link."""
        marks = self._rules.marks() if self._rules else {}
        words = [mark for mark in marks if mark.endswith(f" {link}")]
        for way in self._of(link):
            proxy = self._server.api.proxy(way.name)
            words += [f"{toxic.name} on {proxy.name}" for toxic in proxy.toxics]
            words += [] if proxy.enabled else [f"{proxy.name} is closed"]
        return tuple(words)

    def _open_or_close(self, link: Link) -> None:
        cut = any(isinstance(effect, Cut) for (_, of), effect in self._laid.items() if of == link)
        for way in self._of(link):
            if self._state(way).enabled is cut:
                self._server.api.enable(way.name, enabled=not cut)

    def _bounce(self, link: Link) -> None:
        """End the present connections: Toxiproxy resets only those that were made after the toxic was laid."""
        for way in self._of(link):
            if self._state(way).enabled:
                self._server.api.enable(way.name, enabled=False)
                self._server.api.enable(way.name, enabled=True)

    def _state(self, way: Way) -> ProxyState:
        return self._server.api.proxy(way.name)

    def _of(self, link: Link) -> tuple[Way, ...]:
        try:
            return self._ways[link]
        except KeyError:
            raise LinkError(f"the link {link} does not go through a proxy") from None

    # -- witnesses --------------------------------------------------------------------------------------------------

    def probe(self, link: Link, *, timeout_s: float = 1.0, size: int = 0, asks: int = 1) -> Answer:
        """Connect to where the node's own files say that its peer is."""
        return probe.ask(
            self._main_address(link),
            timeout_s=timeout_s,
            size=size,
            asks=asks,
            speech=self._sight.speech(link),
        )

    def closing(self, link: Link, *, timeout_s: float) -> float | None:
        """Seconds until the other end of a probe is closed; None: not within `timeout_s`."""
        return probe.closing(self._main_address(link), timeout_s=timeout_s, speech=self._sight.speech(link))

    def traffic(self, link: Link) -> Traffic:
        """What the kernel counted on the connections of the source's process (of anybody, for clients)."""
        wanted = set(self._sight.reaches(link))
        everything = flows()
        if link.source == CLIENTS:
            own = inodes_of(os.getpid())
            seen = [flow for flow in everything if flow.remote in wanted and flow.inode not in own]
        else:
            # A node that found a way around its proxy must be seen there.
            wanted |= {way.upstream for way in self._ways.get(link, ())}
            pid = self._sight.pid(link.source)
            mine = inodes_of(pid) if pid is not None else frozenset()
            seen = [flow for flow in everything if flow.remote in wanted and flow.inode in mine]
        return Traffic(time.monotonic(), {flow.inode: flow for flow in seen})

    def check(self) -> None:
        """Raises `LinkError` when the server has ended by itself."""
        self._server.check()

    def _main_address(self, link: Link) -> tuple[str, int]:
        addresses = self._sight.reaches(link)
        if not addresses:
            raise LinkError(f"nobody knows where {link} leads")
        return addresses[0]


def mark_of(owner: str, link: Link) -> str:
    """What rules of this owner on this link carry as their comment."""
    return f"{owner} {link}"


def toxics_of(owner: str, effect: Effect) -> list[Toxic]:
    """What this effect takes of Toxiproxy, on both streams; empty when it is not a matter of toxics."""
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
