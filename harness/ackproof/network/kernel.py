"""The mesh of nodes that have network namespaces of their own (containers): packet rules in the namespace of a link's
source, laid from outside (root); nothing is needed within, and nothing goes through a proxy until it must.

What holds traffic back (throttle, delay, slow close) needs a queue. This is Toxiproxy's, on a host that all nodes
reach: new connections of the link are redirected there while such an effect lies on it. Links from clients, who are
on this machine, go through proxies always.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from ackproof.cluster.addresses import Address
from ackproof.network.mesh import CLIENTS, Delay, Effect, Link, LinkError, SlowClose, Throttle
from ackproof.network.packets import PacketRules
from ackproof.network.proxied import ProxiedMesh, Wiring

HELD_BACK: Final = (Throttle, Delay, SlowClose)
"""Effects for which traffic must be held back."""
_CLONE_NEWNET: Final = 0x40000000

T = TypeVar("T")


class Spaces:
    """The packet rules of one run in the network namespaces of nodes. `pid` tells the process of a node."""

    def __init__(self, table: str, pid: Callable[[int], int | None]) -> None:
        self._table = table
        self._pid = pid
        self._known: dict[int, tuple[int, PacketRules]] = {}
        self._lock = threading.Lock()

    def rules(self, node: int) -> PacketRules | None:
        """Those of the namespace that a node has now; None while it has no process."""
        pid = self._pid(node)
        if pid is None:
            return None
        with self._lock:
            known = self._known.get(node)
            if known is None or known[0] != pid:
                known = pid, PacketRules(self._table, ("nsenter", "-t", str(pid), "-n"))
                self._known[node] = known
            return known[1]

    def within(self, node: int, act: Callable[[], T]) -> T:
        """What `act` returns where connections of a node begin and end. Raises `LinkError`."""
        pid = self._pid(node)
        if pid is None:
            raise LinkError(f"node {node} has no process")
        return inside(pid, act)

    def end(self) -> None:
        """Take all rules away; those of a node that has ended went with it."""
        with self._lock:
            for node, (pid, rules) in self._known.items():
                if self._pid(node) == pid:
                    rules.end()
            self._known.clear()


class KernelMesh(ProxiedMesh):
    """Links among nodes, and those from clients. `relay_host`: where the server's relays listen for nodes.

    A relay is a way that a link has for a while. `behind`: where it leads, if not to where the node listens.
    """

    def __init__(
        self,
        wiring: Wiring,
        spaces: Spaces,
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
        """Mend everything, and end what `start` began."""
        try:
            self._spaces.end()
        finally:
            super().end()

    def renew(self, node: int) -> None:
        """A node that was started again has a namespace without rules: lay those that are still in force."""
        with self._lock:
            for (owner, link), effect in self._laid.items():
                if link.source == node and self._by_packets(link, effect):
                    self._lay(owner, link, effect)
            for link in self._ways:
                if link.source == node:
                    self._redirect(link)

    # -- breaking and mending ---------------------------------------------------------------------------------------

    def _rules(self, link: Link) -> PacketRules | None:
        """Those of the namespace that the source has now; None while it has no process."""
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
                rules.remove(f"relay {link}")
            for way in self._ways.pop(link, ()):
                self._server.api.remove(way.name)

    def _redirect(self, link: Link) -> None:
        rules = self._rules(link)
        if rules is None:
            raise LinkError(f"node {link.source} has no process, and so no namespace")
        for at, way in zip(self._sight.listens(link), self._ways[link], strict=True):
            rules.redirect(f"relay {link}", at, way.listen, through=self._behind(link, at))

    # -- witnesses --------------------------------------------------------------------------------------------------

    def _at_source(self, link: Link, act: Callable[[], T]) -> T:
        return act() if link.source == CLIENTS else self._spaces.within(link.source, act)


def inside(pid: int, act: Callable[[], T]) -> T:
    """What `act` returns or raises in the network namespace of a process, on a thread that enters it and ends (root).

    Sockets that it makes stay in that namespace. Raises `LinkError` for no way in.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _enter(pid)
            results.append(act())
        except BaseException as error:  # noqa: BLE001 — carried to the caller's thread, and raised there
            errors.append(error)

    thread = threading.Thread(target=run, name=f"netns-{pid}", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _enter(pid: int) -> None:
    """Move this thread, and it alone, into the namespace."""
    try:
        with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
    except OSError as error:
        raise LinkError(f"no way into the network namespace of process {pid}: {error}") from error
