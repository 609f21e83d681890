"""Links whose requests faults can change, and the harness's control of the request proxy that serves them.

Nodes that are processes find the proxy by their hosts files. In containers it listens on a host that all nodes reach,
and packet rules in the namespace of a link's source redirect new connections to it. If the mesh sends a link through
Toxiproxy, Toxiproxy connects to the request proxy. Links from clients, which run on this machine, always go through it.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from ackproof.base.processes import RunTag
from ackproof.experiment.links import APIS, Api
from ackproof.network.addresses import Address, is_free
from ackproof.network.kernel import Namespaces
from ackproof.network.mesh import CLIENTS, Link, LinkError
from ackproof.network.meshes import PeerView
from ackproof.network.probe import TcpFlow, read_tcp_flows
from ackproof.network.requests.questions import QuestionOutcome, QuestionPlan, ask_question
from ackproof.network.requests.rules import Rule, RuleCounts
from ackproof.network.toxiproxy import LinkServer, ProxyRoute

_CONTROLS: Final = ("ApiVersions", "Metadata", "ListOffsets", "AllocateProducerIds", "Vote")
"""APIs for the control request (`RequestLinks.ask`). It uses the first of them that is not the API under test, and that
the same kind of connection carries."""


@dataclass(frozen=True)
class RequestWiring:
    """Parts of which `RequestLinks` is made. `proxy`: the process of the request proxy. `ways`: routes of each link,
    one per port of the target, in the ports' order. `sight`: the addresses to which the nodes connect in order to reach
    each other."""

    proxy: RequestProxy
    ways: Mapping[Link, tuple[ProxyRoute, ...]]
    sight: PeerView


class RequestLinks:
    """Links whose requests faults can change: those between nodes that are processes of this machine, and those from
    clients."""

    def __init__(self, wiring: RequestWiring) -> None:
        self.proxy = wiring.proxy
        self._ways = dict(wiring.ways)
        self._sight = wiring.sight

    def start(self, lease_descriptor: int, on_death: Callable[[str], None]) -> None:
        """Start the proxy; call it before any node starts. Whenever the proxy ends by itself, `on_death` is called with
        the reason, on another thread, and a new proxy without rules replaces it. If that cannot be started, `on_death`
        gets that reason too.

        `lease_descriptor`: descriptor of the lock on the cluster's addresses (`Lease.descriptor`), which the proxy
        keeps open. Raises `LinkError` if the proxy ends or does not answer in time, or does not accept the routes.
        """
        self.proxy.start(lease_descriptor=lease_descriptor)
        self.proxy.add(route for ways in self._ways.values() for route in ways)
        self.proxy.keep(on_death)

    def renew(self, node: int) -> None:
        """Redirect the connections of a restarted node through the proxy again. Raises `LinkError` if that fails. Does
        nothing for a node that is a process of this machine: its hosts file names the proxy."""

    def route(self, viewer: int, peer: int) -> str | None:
        """Return the host to which node `viewer` must connect so that its requests to node `peer` go through the proxy;
        None: the peer's own host."""
        ways = self._ways.get(Link(viewer, peer))
        return ways[0].listen.host if ways else None

    def ways(self, link: Link, api: Api) -> tuple[str, ...]:
        """Return the names of the proxy's routes that carry this API over a link. Raises `LinkError` if no
        route does."""
        return tuple(route.name for route in self._carrying(link, api))

    def lay(self, rule: Rule) -> None:
        """Start to apply a rule, from the next frame on. Raises `LinkError` if the proxy does not take it."""
        self.proxy.lay(rule)

    def lift(self, name: str) -> RuleCounts:
        """Remove a rule, and return the numbers of frames that it matched and hit. Raises `LinkError`, also if the
        proxy has ended by itself since the start (`check`)."""
        self.check()
        return self.proxy.lift(name)

    def ask(self, link: Link, api: Api, asking: QuestionPlan) -> tuple[QuestionOutcome, QuestionOutcome]:
        """Send a harmless request of this API over a link, then a control request, which a rule for this API must leave
        alone. Return the outcome of each, in this order.

        The control request is of another API, or names the partition `asking.elsewhere` if that is given. Both go to
        the address at which the source looks for the target (hosts file; for clients the advertised listener). Raises
        `LinkError` if that address is missing, no route carries the API, or the target has no process.
        """
        pid = self._sight.pid(link.target)
        if pid is None:
            raise LinkError(f"node {link.target} has no process")
        (way, *_) = self._carrying(link, api)
        place, addresses = self._ways[link].index(way), self._sight.reaches(link)
        if len(addresses) <= place:
            raise LinkError(f"the address of {link} is unknown: its source has none for its target")
        ask = partial(
            ask_question,
            pid,
            addresses[place],
            connect=partial(self._connect_at, link.source),
            flows=partial(self._flows_at, link.target),
        )
        other = next(name for name in _CONTROLS if name != api.name and APIS[name].flows & way.flows)
        control = QuestionPlan(timeout_s=asking.timeout_s)
        if asking.elsewhere is not None:
            other, control = api.name, replace(control, named=asking.elsewhere)
        return ask(api.name, asking), ask(other, control)

    def _connect_at(self, node: int, address: Address, timeout_s: float) -> socket.socket:
        """Return a connection to `address` from where this node (or CLIENTS) connects; here that is this process's own
        namespace. Raises OSError, also after `timeout_s` seconds."""
        del node
        return socket.create_connection(address, timeout_s)

    def _flows_at(self, node: int) -> list[TcpFlow]:
        """Return the TCP connections in the network namespace of a node; here that is the namespace of this process."""
        del node
        return read_tcp_flows()

    def end(self) -> None:
        """Stop the request proxy."""
        self.proxy.end()

    def check(self) -> None:
        """Raise `LinkError` if the proxy has ended by itself since the start: all rules were lost with it, even if
        another proxy runs by now."""
        if self.proxy.died:
            raise LinkError(self.proxy.died)

    def _carrying(self, link: Link, api: Api) -> tuple[ProxyRoute, ...]:
        found = tuple(route for route in self._ways.get(link, ()) if route.flows & api.flows)
        if not found:
            raise LinkError(f"{link} was not laid so that {api.name} can be touched on it")
        return found


TIMEOUT_S: Final = 5.0
_LOOKS_EVERY_S: Final = 0.05
_MODULE: Final = "ackproof.network.requests.relay"


@dataclass(frozen=True)
class ProxyReply:
    """Response of the request proxy to a command: its state, and the result of the command.

    State: `ways`: upstream address of each route. `rules`: counts of each rule. `held`: number of frames that each rule
    holds on each route. `trouble`: the first route with bytes that were not Kafka's protocol, and the reason, or ''.

    Result: `error`: why the command failed, or ''. `lifted`: counts of the rule that the command removed. `released`:
    True if the command released a frame. `copied`: frame that a rule holds, in hexadecimal digits.
    """

    ways: Mapping[str, tuple[str, int]]
    rules: Mapping[str, RuleCounts]
    held: Mapping[str, Mapping[str, int]]
    trouble: str
    error: str = ""
    lifted: RuleCounts = field(default_factory=RuleCounts)
    released: bool = False
    copied: str = ""


_REPLY: Final = TypeAdapter(ProxyReply)


class RequestProxy(LinkServer):
    """Child process with the request proxy, which takes commands at `address`. Thread-safe.

    Call `start` first and `end` last. After `keep`, a proxy that ends by itself is reported and replaced: its clients
    connect again. Commands raise `LinkError` if the proxy refused or has ended.
    """

    NAME = "the request proxy"
    ROLE = "request-proxy"

    def __init__(self, address: Address, *, folder: Path, tag: RunTag) -> None:
        argv = [sys.executable, "-P", "-m", _MODULE, address.host, str(address.port)]
        super().__init__(argv, log=folder / "requests.log", tag=tag)
        self.address = address
        self._lock = threading.Lock()
        self._ways: dict[str, ProxyRoute] = {}
        self._over = threading.Event()
        self._ends = threading.Lock()
        self.died = ""
        """Reason why a proxy ended by itself for the first time; '' if none did. After `keep` another replaces it, with
        all routes and without rules."""

    def keep(self, on_death: Callable[[str], None]) -> None:
        """Start another proxy whenever one ends by itself, and pass the reason to `on_death`, on another thread. Stops
        at `end`, or if a proxy cannot be started; then `on_death` gets that reason too."""
        threading.Thread(target=self._keep, args=(on_death,), name=self.ROLE, daemon=True).start()

    def _keep(self, on_death: Callable[[str], None]) -> None:
        while not self._over.wait(_LOOKS_EVERY_S):
            try:
                self.check()
            except LinkError as error:
                with self._ends:
                    if self._over.is_set():
                        return  # ended on purpose
                    self.died = self.died or str(error)
                    on_death(str(error))
                    try:
                        self.start(lease_descriptor=self._lease_descriptor)
                        self.add(self._ways.values())
                    except LinkError as lost:
                        on_death(f"{self.NAME} could not be started again: {lost}")
                        return

    def end(self) -> None:
        with self._ends:
            self._over.set()
            super().end()

    def _answers(self) -> bool:
        return self.state() is not None

    def add(self, ways: Iterable[ProxyRoute]) -> None:
        """Add routes: for each, the proxy listens at `listen` and connects to `upstream`."""
        wanted = {way.name: way for way in ways}
        self._ways |= wanted
        rows = [[name, *way.listen, *way.upstream] for name, way in wanted.items()]
        there = self._order({"do": "add", "ways": rows}).ways
        if missing := [name for name, way in wanted.items() if there.get(name) != tuple(way.upstream)]:
            raise LinkError(f"the request proxy has no way {', '.join(missing)}")

    def lay(self, rule: Rule) -> None:
        """Start to apply a rule, from the next frame on."""
        there = self._order({"do": "lay", "rule": asdict(rule)}).rules
        if rule.name not in there:
            raise LinkError(f"the request proxy did not take the rule {rule.name}; it has {', '.join(there)}")

    def lift(self, name: str) -> RuleCounts:
        """Remove a rule, and return the numbers of frames that it matched and hit."""
        said = self._order({"do": "lift", "name": name})
        if name in said.rules:
            raise LinkError(f"the request proxy did not lift {name}")
        return said.lifted

    def release(self, name: str, way: str) -> bool:
        """Release the frame that the rule `name` has held longest on the route `way`; return False if it holds none
        there."""
        return self._order({"do": "release", "name": name, "way": way}).released

    def copy(self, name: str, way: str) -> bytes:
        """Return a copy of the frame that the rule `name` has held longest on the route `way`; b'' if it
        holds no complete frame there."""
        return bytes.fromhex(self._order({"do": "copy", "name": name, "way": way}).copied)

    def send(self, way: str, frame: bytes, timeout_s: float) -> bytes:
        """Send a whole frame to the upstream of the route `way`, over a separate connection. Return the frame of the
        response.

        Raises `LinkError` without a response. `timeout_s`: limit of the wait for each part of the response.
        """
        upstream = self._ways[way].upstream
        try:
            with socket.create_connection(upstream, timeout_s) as line:
                line.sendall(frame)
                answer = b""
                while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
                    data = line.recv(1 << 16)
                    if not data:
                        raise LinkError(f"{upstream} closed the connection of a copied request")
                    answer += data
        except OSError as error:
            raise LinkError(f"a copied request to {upstream}: {error}") from error
        return answer

    def state(self) -> ProxyReply:
        """Return the state of the proxy, with the counts of its rules."""
        return self._order({"do": "state"})

    def _order(self, order: Mapping[str, object]) -> ProxyReply:
        try:
            with self._lock, socket.create_connection(self.address, TIMEOUT_S) as line:
                line.sendall(json.dumps(order).encode() + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    data = line.recv(1 << 16)
                    if not data:
                        raise LinkError("the request proxy closed its control connection")
                    answer += data
            said = _REPLY.validate_json(answer)
        except (OSError, ValueError) as error:
            self.check()
            raise LinkError(f"the request proxy at {self.address}: {error}") from error
        if said.error:
            raise LinkError(f"the request proxy, {order['do']}: {said.error}")
        return said


_PORTS: Final = range(9_000, 10_240)


class NamespaceRequestLinks(RequestLinks):
    """Request links of nodes with network namespaces of their own (containers). `host`: host at which the proxy listens
    for nodes."""

    def __init__(self, wiring: RequestWiring, spaces: Namespaces, host: str) -> None:
        free = _free(host)
        ways = {
            link: of_link
            if link.source == CLIENTS
            else tuple(route._replace(listen=next(free)) for route in of_link)
            for link, of_link in wiring.ways.items()
        }
        super().__init__(replace(wiring, ways=ways))
        self._spaces = spaces

    def route(self, viewer: int, peer: int) -> str | None:
        """Return None for a node, whose connections are redirected in its namespace. For clients return the proxy's
        host; None if the proxy does not serve the link."""
        return super().route(viewer, peer) if viewer == CLIENTS else None

    def renew(self, node: int) -> None:
        for link, ways in self._ways.items():
            if link.source != node:
                continue
            if (rules := self._spaces.rules(node)) is None:
                raise LinkError(f"node {node} has no process, and so no namespace")
            for route in ways:
                rules.redirect(f"requests {link}", route.upstream, route.listen)

    def find_proxy_address(self, link: Link, address: Address) -> Address | None:
        """Return the address at which the proxy takes this link's connections to `address`; None if the proxy does not
        serve them."""
        ways = self._ways.get(link, ())
        return next((way.listen for way in ways if way.upstream == address), None)

    def end(self) -> None:
        try:
            self._spaces.end()
        finally:
            super().end()

    def _connect_at(self, node: int, address: Address, timeout_s: float) -> socket.socket:
        connect = partial(super()._connect_at, node, address, timeout_s)
        return connect() if node == CLIENTS else self._spaces.run_in(node, connect)

    def _flows_at(self, node: int) -> list[TcpFlow]:
        return self._spaces.run_in(node, read_tcp_flows)


def _free(host: str) -> Iterator[Address]:
    """Yield addresses of this host at which nobody listens, by ascending port. Raises `LinkError` after the last
    one."""
    yield from (at for port in _PORTS if is_free(at := Address(host, port)))
    raise LinkError(f"too few ports of {host} are free between {_PORTS[0]} and {_PORTS[-1]}")
