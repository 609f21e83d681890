"""The mesh of nodes that have network namespaces of their own (containers): packet rules in the namespace of a link's
source, laid from outside (root); nothing is needed within, and nothing goes through a proxy until it must.

What holds traffic back (throttle, delay, slow close) needs a queue. This is Toxiproxy's, on a host that all nodes
reach: new connections of the link are redirected there while such an effect lies on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from ackproof.cluster.network import probe
from ackproof.cluster.network.failure import LinkError
from ackproof.cluster.network.mesh import CLIENTS, Delay, Effect, Link, SlowClose, Throttle
from ackproof.cluster.network.namespaces import inside
from ackproof.cluster.network.packets import Incoming, Outgoing, PacketRules
from ackproof.cluster.network.probe import Answer
from ackproof.cluster.network.proxied import Sight, mark_of, toxics_of
from ackproof.cluster.network.server import ProxyServer
from ackproof.cluster.network.sockets import Traffic, flows, inodes_of

HELD_BACK: Final = (Throttle, Delay, SlowClose)
"""Effects for which traffic must be held back."""


T = TypeVar("T")


class KernelSight(Sight, Protocol):
    """How nodes in namespaces see their peers."""

    def links(self) -> frozenset[Link]:
        """Every link that there can be."""

    def listens(self, link: Link) -> tuple[tuple[str, int], ...]:
        """Where `target` listens for `source`, in the target's own namespace; the most used address first."""


@dataclass
class _Relay:
    """A proxy through which a link goes for now, per listening address of its target."""

    names: tuple[str, ...]
    toxics: dict[str, list[str]] = field(default_factory=dict)
    """The toxics' names by owner."""


class KernelMesh:
    """Links among nodes that have namespaces of their own, and from clients to them.

    `table`: the name of the run's table. `relays`, `relay_host`: a Toxiproxy server and the address at which it shall
    listen for nodes; without it nothing can be held back.
    """

    def __init__(
        self, sight: KernelSight, table: str, relays: ProxyServer | None = None, relay_host: str = ""
    ) -> None:
        self._sight = sight
        self._table = table
        self._relays = relays
        self._relay_host = relay_host
        self._lock = threading.RLock()
        self._laid: dict[tuple[str, Link], Effect] = {}
        self._spaces: dict[int, tuple[int, PacketRules]] = {}
        self._relayed: dict[Link, _Relay] = {}

    def links(self) -> frozenset[Link]:
        """The links that can be broken here."""
        return self._sight.links()

    def end(self) -> None:
        """Take all rules away; those of a node that has ended went with it."""
        with self._lock:
            for node, (pid, rules) in self._spaces.items():
                if self._sight.pid(node) == pid:
                    rules.end()
            self._spaces.clear()

    def check(self) -> None:
        """Raises `LinkError` when the server of the relays has ended by itself."""
        if self._relays is not None:
            self._relays.check()

    # -- breaking and mending ---------------------------------------------------------------------------------------

    def impose(self, owner: str, link: Link, effect: Effect) -> None:
        """Lay an effect on a link, on its present connections too. Raises `LinkError`."""
        with self._lock:
            if link not in self.links():
                raise LinkError(f"there is no link {link}")
            if (owner, link) in self._laid:
                raise LinkError(f"{owner} has an effect on {link} already: {self._laid[owner, link]}")
            self._laid[owner, link] = effect
            self._lay(owner, link, effect)

    def lift(self, owner: str, link: Link) -> None:
        """Take this owner's effect from a link. Raises `LinkError`."""
        with self._lock:
            effect = self._laid.pop((owner, link), None)
            if effect is None:
                return
            if isinstance(effect, HELD_BACK):
                self._unrelay(owner, link)
            elif (rules := self._rules(self._seat(link))) is not None:
                rules.remove(mark_of(owner, link))

    def renew(self, node: int) -> None:
        """A node was started again, with a namespace that has no rules: lay those that are still in force.

        Raises `LinkError`.
        """
        with self._lock:
            for (owner, link), effect in self._laid.items():
                if self._seat(link) == node and not isinstance(effect, HELD_BACK):
                    self._lay(owner, link, effect)
            for link, relay in self._relayed.items():
                if self._seat(link) == node:
                    self._redirect(link, relay)

    def imposed(self, link: Link) -> tuple[str, ...]:
        """What the kernel says of this link, and the relays."""
        with self._lock:
            rules = self._rules(self._seat(link))
            marks = rules.marks() if rules is not None else {}
            relay = self._relayed.get(link)
            toxics = [toxic for names in relay.toxics.values() for toxic in names] if relay else []
            return (*(mark for mark in marks if mark.endswith(f" {link}")), *toxics)

    def _lay(self, owner: str, link: Link, effect: Effect) -> None:
        if isinstance(effect, HELD_BACK):
            self._relay(owner, link, effect)
            return
        rules = self._rules(self._seat(link))
        if rules is None:
            raise LinkError(f"node {self._seat(link)} has no process, and so no namespace")
        addresses = self._sight.listens(link)
        streams = (
            [Incoming(port) for _, port in addresses]
            if link.source == CLIENTS
            else [Outgoing(host, port) for host, port in addresses]
        )
        rules.lay(mark_of(owner, link), streams, effect)

    def _relay(self, owner: str, link: Link, effect: Effect) -> None:
        if self._relays is None or link.source == CLIENTS:
            raise LinkError(f"nothing can hold back the traffic of {link} here")
        relay = self._relayed.get(link)
        api = self._relays.api
        if relay is None:
            addresses = self._sight.listens(link)
            relay = _Relay(tuple(f"{link.source}-{link.target}-{port}" for _, port in addresses))
            for name, (host, port) in zip(relay.names, addresses, strict=True):
                api.add_at(name, self._relay_host, f"{host}:{port}")
            self._relayed[link] = relay
            self._poison(relay, owner, effect)
            self._redirect(link, relay)
        else:
            self._poison(relay, owner, effect)

    def _poison(self, relay: _Relay, owner: str, effect: Effect) -> None:
        if self._relays is not None:
            relay.toxics[owner] = [toxic.name for toxic in toxics_of(owner, effect)]
            for name in relay.names:
                for toxic in toxics_of(owner, effect):
                    self._relays.api.poison(name, toxic)

    def _redirect(self, link: Link, relay: _Relay) -> None:
        rules = self._rules(link.source)
        if rules is None or self._relays is None:
            raise LinkError(f"node {link.source} has no process, and so no namespace")
        for name, (host, port) in zip(relay.names, self._sight.listens(link), strict=True):
            listening, _, at = self._relays.api.proxy(name).listen.rpartition(":")
            rules.redirect(f"relay {link}", Outgoing(host, port), (listening, int(at)))

    def _unrelay(self, owner: str, link: Link) -> None:
        relay = self._relayed.get(link)
        if relay is None or self._relays is None:
            return
        api = self._relays.api
        for toxic in relay.toxics.pop(owner, []):
            for name in relay.names:
                api.cure(name, toxic)
        if not relay.toxics:
            del self._relayed[link]
            if (rules := self._rules(link.source)) is not None:
                rules.remove(f"relay {link}")
            for name in relay.names:
                api.remove(name)

    @staticmethod
    def _seat(link: Link) -> int:
        """The node in whose namespace the rules of a link lie."""
        return link.target if link.source == CLIENTS else link.source

    def _rules(self, node: int) -> PacketRules | None:
        """Those of the namespace that a node has now; None while it has no process."""
        pid = self._sight.pid(node)
        if pid is None:
            return None
        known = self._spaces.get(node)
        if known is None or known[0] != pid:
            known = pid, PacketRules(self._table, ("nsenter", "-t", str(pid), "-n"))
            self._spaces[node] = known
        return known[1]

    # -- witnesses --------------------------------------------------------------------------------------------------

    def probe(self, link: Link, *, timeout_s: float = 1.0, size: int = 0, asks: int = 1) -> Answer:
        """Connect from the source's namespace (clients: from here) to where its own files say that its peer is."""
        address, speech = self._address(link), self._sight.speech(link)
        return self._at_source(
            link, lambda: probe.ask(address, timeout_s=timeout_s, size=size, asks=asks, speech=speech)
        )

    def closing(self, link: Link, *, timeout_s: float) -> float | None:
        """Seconds until the other end of a probe is closed; None: not within `timeout_s`."""
        address, speech = self._address(link), self._sight.speech(link)
        return self._at_source(link, lambda: probe.closing(address, timeout_s=timeout_s, speech=speech))

    def traffic(self, link: Link) -> Traffic:
        """What the kernel counted on the connections of the source's process (for clients: at the target's end)."""
        if link.source == CLIENTS:
            ports = {port for _, port in self._sight.listens(link)}
            seen = [flow for flow in inside(self._pid(link.target), flows) if flow.local[1] in ports]
        else:
            wanted = {*self._sight.reaches(link), *self._sight.listens(link)}
            pid = self._pid(link.source)
            mine = inodes_of(pid)
            seen = [flow for flow in inside(pid, flows) if flow.remote in wanted and flow.inode in mine]
        return Traffic(time.monotonic(), {flow.inode: flow for flow in seen})

    def _at_source(self, link: Link, act: Callable[[], T]) -> T:
        return act() if link.source == CLIENTS else inside(self._pid(link.source), act)

    def _pid(self, node: int) -> int:
        pid = self._sight.pid(node)
        if pid is None:
            raise LinkError(f"node {node} has no process")
        return pid

    def _address(self, link: Link) -> tuple[str, int]:
        addresses = self._sight.reaches(link)
        if not addresses:
            raise LinkError(f"nobody knows where {link} leads")
        return addresses[0]
