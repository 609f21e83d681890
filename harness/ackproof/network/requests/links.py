"""Links whose requests can be touched, and the proxy process that they go through, as the harness sees it.

In containers the proxy listens on a host that all nodes reach. In the namespace of a link's source new connections to
the target are redirected there; packet rules of the mesh see them as before, and a relay of the mesh leads there too.
Links from clients, which run on this machine, go through the proxy as they do on processes.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from ackproof.base.processes import RunTag
from ackproof.experiment.links import APIS, Api, Flow
from ackproof.network.addresses import Address, is_free
from ackproof.network.kernel import Namespaces
from ackproof.network.mesh import CLIENTS, Link, LinkError
from ackproof.network.meshes import PeerView
from ackproof.network.probe import TcpFlow, read_tcp_flows
from ackproof.network.requests.questions import QuestionOutcome, QuestionPlan, SharedNamespace, ask_question
from ackproof.network.requests.rules import Rule, RuleCounts
from ackproof.network.toxiproxy import LinkServer, ProxyRoute

_CONTROLS: Final = ("ApiVersions", "Metadata", "ListOffsets", "AllocateProducerIds", "Vote")
"""Other APIs, of which there is one on every kind of connection, whatever the first is."""


@dataclass(frozen=True)
class RequestRoute:
    """A way through the proxy, and the kinds of connections that go it."""

    way: ProxyRoute
    flows: frozenset[Flow]


@dataclass(frozen=True)
class RequestWiring:
    """What they are made from. `ways`: by the link, in the order of the target's ports."""

    proxy: RequestProxy
    ways: Mapping[Link, tuple[RequestRoute, ...]]
    sight: PeerView


class RequestLinks:
    """Of nodes on this machine."""

    def __init__(self, wiring: RequestWiring) -> None:
        self.proxy = wiring.proxy
        self._ways = dict(wiring.ways)
        self._sight = wiring.sight

    def start(self, lease_descriptor: int, on_death: Callable[[str], None]) -> None:
        """Lay what must be there before any node. `on_death` hears of a proxy that ends by itself.

        Raises `LinkError`.
        """
        self.proxy.start(lease_descriptor=lease_descriptor)
        self.proxy.add(one.way for ways in self._ways.values() for one in ways)
        self.proxy.keep(on_death)

    def renew(self, node: int) -> None:
        """A node was started: lead its connections here anew, where they must be led. Raises `LinkError`."""

    def route(self, viewer: int, peer: int) -> str | None:
        """Where a node must look for a peer so that its requests can be touched; None: where the peer is."""
        ways = self._ways.get(Link(viewer, peer))
        return ways[0].way.listen.host if ways else None

    def ways(self, link: Link, api: Api) -> tuple[str, ...]:
        """The names of the ways on which this API is sent over a link. Raises `LinkError` where none was laid."""
        return tuple(one.way.name for one in self._carrying(link, api))

    def lay(self, rule: Rule) -> None:
        """Do so from the next frame on. Raises `LinkError`."""
        self.proxy.lay(rule)

    def lift(self, name: str) -> RuleCounts:
        """Do so no more; what was counted. Raises `LinkError`."""
        self.check()
        return self.proxy.lift(name)

    def ask(self, link: Link, api: Api, asking: QuestionPlan) -> tuple[QuestionOutcome, QuestionOutcome]:
        """What comes of a question of this API that changes nothing, and of one beside it: of another API, or where
        the question names a partition, of another partition. Both are asked where the source's own files say that its
        peer is. Raises `LinkError`."""
        pid = self._sight.pid(link.target)
        if pid is None:
            raise LinkError(f"node {link.target} has no process")
        (way, *_) = self._carrying(link, api)
        address, where = self._address(link, way), self._where(link, pid)
        other = next(name for name in _CONTROLS if name != api.name and APIS[name].flows & way.flows)
        control = QuestionPlan(timeout_s=asking.timeout_s)
        if asking.elsewhere is not None:
            other, control = api.name, replace(control, named=asking.elsewhere)
        return ask_question(where, address, api.name, asking), ask_question(where, address, other, control)

    def _address(self, link: Link, way: RequestRoute) -> Address:
        """Where the source's own files say that its peer is."""
        place, addresses = self._ways[link].index(way), self._sight.reaches(link)
        if len(addresses) <= place:
            raise LinkError(f"nobody knows where {link} leads")
        return addresses[place]

    def _where(self, link: Link, pid: int) -> SharedNamespace:
        """Who asks, and whose process is asked."""
        del link
        return SharedNamespace(pid)

    def end(self) -> None:
        """End what `start` began."""
        self.proxy.end()

    def check(self) -> None:
        """Raises `LinkError` when the proxy has ended by itself since the start, and all rules with it."""
        if self.proxy.died:
            raise LinkError(self.proxy.died)

    def _carrying(self, link: Link, api: Api) -> tuple[RequestRoute, ...]:
        found = tuple(one for one in self._ways.get(link, ()) if one.flows & api.flows)
        if not found:
            raise LinkError(f"{link} was not laid so that {api.name} can be touched on it")
        return found


TIMEOUT_S: Final = 5.0
_LOOKS_EVERY_S: Final = 0.05
_MODULE: Final = "ackproof.network.requests.relay"


@dataclass(frozen=True)
class ProxyReply:
    """The proxy's answer to an order: what is so now."""

    ways: Mapping[str, tuple[str, int]]
    rules: Mapping[str, Mapping[str, object]]
    trouble: str
    """What was no protocol of Kafka's; '' nothing was."""
    error: str = ""
    lifted: RuleCounts = field(default_factory=RuleCounts)
    released: int = 0


_SAID: Final = TypeAdapter(ProxyReply)
_COUNTED: Final = TypeAdapter(RuleCounts)
_HELD: Final[TypeAdapter[dict[str, int]]] = TypeAdapter(dict[str, int])


class RequestProxy(LinkServer):
    """A proxy that takes orders at `address`: `start`, then orders, at last `end`. Safe to use from several threads.

    With `keep` one that ends by itself is told, and replaced: whoever is connected through it connects anew.

    Each order raises `LinkError` when it did not do as it was told, and when it has ended.
    """

    NAME = "the proxy of requests"
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
        """Why the first that ended by itself did; another is in its place, with all ways and without rules."""

    def keep(self, on_death: Callable[[str], None]) -> None:
        """From now on put another in the place of one that ends by itself, and tell why it did, on another thread."""
        threading.Thread(target=self._keep, args=(on_death,), name=self.ROLE, daemon=True).start()

    def _keep(self, on_death: Callable[[str], None]) -> None:
        while not self._over.wait(_LOOKS_EVERY_S):
            try:
                self.check()
            except LinkError as error:
                with self._ends:
                    if self._over.is_set():
                        return  # it was ended
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
        return self._order({"do": "state"}) is not None

    def add(self, ways: Iterable[ProxyRoute]) -> None:
        """Take connections there, and lead them on."""
        wanted = {way.name: way for way in ways}
        self._ways |= wanted
        rows = [[name, *way.listen, *way.upstream] for name, way in wanted.items()]
        there = self._order({"do": "add", "ways": rows}).ways
        if missing := [name for name, way in wanted.items() if there.get(name) != tuple(way.upstream)]:
            raise LinkError(f"the proxy of requests has no way {', '.join(missing)}")

    def lay(self, rule: Rule) -> None:
        """Do so from the next frame on."""
        there = self._order({"do": "lay", "rule": rule.as_json()}).rules
        if rule.name not in there:
            raise LinkError(f"the proxy of requests was told to lay {rule.name}, and has {', '.join(there)}")

    def lift(self, name: str) -> RuleCounts:
        """Do so no more; what it had counted."""
        said = self._order({"do": "lift", "name": name})
        if name in said.rules:
            raise LinkError(f"the proxy of requests did not lift {name}")
        return said.lifted

    def release(self, name: str, way: str) -> bool:
        """Let one frame go that this rule holds on this way; whether there was one."""
        return self.release_first(name, [way], 1) > 0

    def release_first(self, name: str, ways: Sequence[str], most: int) -> int:
        """Let so many frames go that this rule has held longest on these ways; how many there were."""
        return self._order({"do": "release", "name": name, "ways": list(ways), "most": most}).released

    def held(self) -> Mapping[str, Mapping[str, int]]:
        """How many frames each rule holds on each way."""
        return {
            name: _HELD.validate_python(rule["held"])
            for name, rule in self._order({"do": "state"}).rules.items()
        }

    def counted(self, name: str) -> RuleCounts | None:
        """What a rule has counted so far; None: it is not laid."""
        rule = self._order({"do": "state"}).rules.get(name)
        return None if rule is None else _COUNTED.validate_python(rule["counted"])

    def trouble(self) -> str:
        """What came over its ways that was no protocol of Kafka's; '' nothing did."""
        return self._order({"do": "state"}).trouble

    def _order(self, order: Mapping[str, object]) -> ProxyReply:
        try:
            with self._lock, socket.create_connection(self.address, TIMEOUT_S) as line:
                line.sendall(json.dumps(order).encode() + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    data = line.recv(1 << 16)
                    if not data:
                        raise LinkError("the proxy of requests closed its control connection")
                    answer += data
            said = _SAID.validate_json(answer)
        except (OSError, ValueError) as error:
            self.check()
            raise LinkError(f"the proxy of requests at {self.address}: {error}") from error
        if said.error:
            raise LinkError(f"the proxy of requests, {order['do']}: {said.error}")
        return said


_PORTS: Final = range(9_000, 10_240)


class SeparateNamespaces(SharedNamespace):
    """Who asks is in one namespace, who is asked in another."""

    def __init__(self, pid: int, spaces: Namespaces, link: Link) -> None:
        super().__init__(pid)
        self._spaces = spaces
        self._link = link

    def connect(self, address: Address, timeout_s: float) -> socket.socket:
        connect = super().connect
        if self._link.source == CLIENTS:
            return connect(address, timeout_s)
        return self._spaces.within(self._link.source, lambda: connect(address, timeout_s))

    def flows(self) -> list[TcpFlow]:
        return self._spaces.within(self._link.target, read_tcp_flows)


class NamespaceRequestLinks(RequestLinks):
    """`host`: where the proxy listens for nodes."""

    def __init__(self, wiring: RequestWiring, spaces: Namespaces, host: str) -> None:
        free = _free(host)
        ways = {
            link: of_link
            if link.source == CLIENTS
            else tuple(replace(one, way=one.way._replace(listen=next(free))) for one in of_link)
            for link, of_link in wiring.ways.items()
        }
        super().__init__(replace(wiring, ways=ways))
        self._spaces = spaces

    def route(self, viewer: int, peer: int) -> str | None:
        """Nodes find their peers where these are."""
        return super().route(viewer, peer) if viewer == CLIENTS else None

    def renew(self, node: int) -> None:
        for link, ways in self._ways.items():
            if link.source != node:
                continue
            if (rules := self._spaces.rules(node)) is None:
                raise LinkError(f"node {node} has no process, and so no namespace")
            for one in ways:
                rules.redirect(f"requests {link}", one.way.upstream, one.way.listen)

    def taken(self, link: Link, address: Address) -> Address | None:
        """Where the proxy takes connections of this link that are meant for `address`; None: it does not."""
        ways = (one.way for one in self._ways.get(link, ()))
        return next((way.listen for way in ways if way.upstream == address), None)

    def end(self) -> None:
        try:
            self._spaces.end()
        finally:
            super().end()

    def _where(self, link: Link, pid: int) -> SharedNamespace:
        return SeparateNamespaces(pid, self._spaces, link)


def _free(host: str) -> Iterator[Address]:
    """Addresses at which nobody listens. Raises `LinkError` when there is none left."""
    yield from (at for port in _PORTS if is_free(at := Address(host, port)))
    raise LinkError(f"too few ports of {host} are free between {_PORTS[0]} and {_PORTS[-1]}")
