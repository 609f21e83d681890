"""Proxy servers as child processes (`LinkServer`), and Toxiproxy with its client.

This is the only importer of toxiproxy-python, which keeps the server's address in a class, has no time-outs and takes
an error of the server (a 500) for success. So this module makes one API class per server, gives every call a time-out
and a status check, and reads back what it wrote.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import TypeAdapter

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import Child, RunTag, spawn
from ackproof.base.wait import wait_until
from ackproof.experiment.links import Flow
from ackproof.network.addresses import Address
from ackproof.network.mesh import LinkError

START_WITHIN_S: Final = 20.0
TIMEOUT_S: Final = 5.0
STREAMS: Final = ("upstream", "downstream")
"""Names of a proxy's two streams in Toxiproxy: from client to server, and back."""


class ProxyRoute(NamedTuple):
    """Specification of a proxy: it listens at `listen` and connects to `upstream`."""

    name: str
    listen: Address
    upstream: Address
    flows: frozenset[Flow] = frozenset()
    """Kinds of connections on this route; only the request proxy needs them."""


@dataclass(frozen=True)
class Toxic:
    """Effect of a proxy on one of its two streams (`stream`: upstream or downstream). `type`: Toxiproxy's name of the
    effect, such as latency. `attributes`: times in milliseconds, rates in 1000 bytes per second."""

    name: str
    type: str
    stream: str
    attributes: Mapping[str, int]


@dataclass(frozen=True)
class ProxyState:
    """State of a proxy as Toxiproxy reports it. `listen`, `upstream`: as `host:port`. `enabled`: False if the proxy is
    closed. `toxics`: the toxics (effects) in force."""

    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: tuple[Toxic, ...]


_PROXY: Final = TypeAdapter(ProxyState)
_PROXIES: Final = TypeAdapter(dict[str, ProxyState])


class Toxiproxy:
    """Client of the Toxiproxy server at `host`:`port`. Methods raise `LinkError` if the server did not carry out a
    command."""

    def __init__(self, host: str, port: int) -> None:
        from toxiproxy.api import APIConsumer  # some 100 ms, and only where links are broken

        self.address = f"{host}:{port}"
        self._api: Any = type("ThisServer", (APIConsumer,), {"host": host, "port": port})

    def version(self) -> str:
        return str(self._call("get", "/version", decode=False))

    def add(self, ways: Iterable[ProxyRoute]) -> None:
        """Create these proxies, and check that the server has them."""
        wanted = {name: (str(listen), str(upstream)) for name, listen, upstream, _ in ways}
        self._call(
            "post",
            "/populate",
            [
                {"name": name, "listen": listen, "upstream": upstream, "enabled": True}
                for name, (listen, upstream) in wanted.items()
            ],
        )
        there = {name: (proxy.listen, proxy.upstream) for name, proxy in self.proxies().items()}
        missing = [name for name, addresses in wanted.items() if there.get(name) != addresses]
        if missing:
            raise LinkError(f"Toxiproxy made no proxy for {', '.join(missing)}")

    def add_at(self, name: str, host: str, upstream: Address) -> ProxyRoute:
        """Create a proxy at any free port of `host`, and return its route."""
        asked = {"name": name, "listen": f"{host}:0", "upstream": str(upstream), "enabled": True}
        self._call("post", "/proxies", asked)
        proxy = self.proxy(name)
        listening, _, port = proxy.listen.rpartition(":")
        if proxy.upstream != str(upstream) or listening != host or port == "0":
            raise LinkError(f"Toxiproxy made another proxy than {name} at {host} for {upstream}: {proxy}")
        return ProxyRoute(name, Address(host, int(port)), upstream)

    def remove(self, name: str) -> None:
        """Remove a proxy, if it exists; its connections are closed."""
        if name in self.proxies():
            self._call("delete", f"/proxies/{name}", decode=False)

    def proxies(self) -> dict[str, ProxyState]:
        """Return all proxies with all their toxics, by name."""
        return _PROXIES.validate_python(self._call("get", "/proxies"))

    def proxy(self, name: str) -> ProxyState:
        return _PROXY.validate_python(self._call("get", f"/proxies/{name}"))

    def enable(self, name: str, *, enabled: bool) -> None:
        """Open or close a proxy. A closed proxy has no listener and no connections."""
        self._call("post", f"/proxies/{name}", {"enabled": enabled})
        if self.proxy(name).enabled is not enabled:
            raise LinkError(f"Toxiproxy did not {'open' if enabled else 'close'} {name}")

    def add_toxic(self, name: str, toxic: Toxic) -> None:
        """Add a toxic (an effect such as latency) to a proxy. It also acts on existing connections, except
        `reset_peer`."""
        self._call("post", f"/proxies/{name}/toxics", {**asdict(toxic), "toxicity": 1.0})
        there = {found.name: found for found in self.proxy(name).toxics}.get(toxic.name)
        if there != toxic:
            raise LinkError(f"Toxiproxy laid another toxic on {name} than {toxic}: {there}")

    def remove_toxic(self, name: str, toxic: str) -> None:
        """Remove a toxic, if it exists."""
        if all(found.name != toxic for found in self.proxy(name).toxics):
            return
        self._call("delete", f"/proxies/{name}/toxics/{toxic}", decode=False)
        if any(found.name == toxic for found in self.proxy(name).toxics):
            raise LinkError(f"Toxiproxy did not take {toxic} from {name}")

    def _call(self, method: str, path: str, body: object = None, *, decode: bool = True) -> Any:  # noqa: ANN401
        """Send one HTTP request to Toxiproxy. Return the decoded JSON of the response, or its text if `decode` is
        False. Raises `LinkError` for any status outside 200–299, and without a response."""
        keywords: dict[str, object] = {"timeout": TIMEOUT_S}
        if body is not None:
            keywords["json"] = body
        try:
            response = getattr(self._api, method)(path, **keywords)
            if not 200 <= response.status_code < 300:
                raise LinkError(
                    f"Toxiproxy {method} {path}: status {response.status_code} {response.text[:200]}"
                )
            return response.json() if decode else response.text
        except LinkError:
            raise
        except Exception as error:
            raise LinkError(f"Toxiproxy at {self.address}, {method} {path}: {error}") from error


class LinkServer(ABC):
    """Child process through which links go. `argv`: its command; `log`: file for its output; `tag`: marks it as a
    process of this run. Call `start` first and `end` last."""

    NAME: ClassVar[str]
    """Name of the server in error messages."""
    ROLE: ClassVar[str]
    """Role by which `ackproof clean` finds the process."""

    def __init__(self, argv: Sequence[str], *, log: Path, tag: RunTag) -> None:
        self.log = log
        self._argv = list(argv)
        self._tag = tag
        self._child: Child | None = None
        self._lease_descriptor = -1

    @abstractmethod
    def _answers(self) -> bool:
        """Return True if the server accepts commands. While the server does not, return False or raise `LinkError`."""

    def start(self, *, lease_descriptor: int) -> None:
        """Start the server, and return when it answers. Raises `LinkError` if it ends by itself or does not
        answer in time. `lease_descriptor`: descriptor of the lock on the cluster's addresses
        (`Lease.descriptor`), which the server keeps open."""
        self._lease_descriptor = lease_descriptor
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._child = spawn(
            self._argv,
            run=self._tag,
            role=self.ROLE,
            cwd=self.log.parent,
            stdout=self.log,
            pass_fds=(lease_descriptor,),
        )

        def answers() -> bool:
            self.check()
            try:
                return self._answers()
            except LinkError:
                return False

        try:
            wait_until(answers, what=f"{self.NAME} to answer", timeout_s=START_WITHIN_S, interval_s=0.01)
        except WaitTimeout as error:
            raise LinkError(str(error)) from error

    def check(self) -> None:
        """Raise `LinkError` if the server has ended by itself."""
        status = None if self._child is None else self._child.poll()
        if status is not None:
            last = "it said nothing"
            with suppress(OSError):
                last = " ".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-2:])
            raise LinkError(f"{self.NAME} ended by itself (exit {status}): {last}")

    def end(self) -> None:
        """Kill the server, and wait until the process is gone. Its connections close, and its effects end."""
        if self._child is not None:
            self._child.kill()


class ProxyServer(LinkServer):
    """Toxiproxy server at `address`, with its client `api`. Call `start` first and `end` last. `binary`: its program.
    `folder`: folder for its output."""

    NAME = "toxiproxy-server"
    ROLE = "toxiproxy"

    def __init__(self, binary: Path, address: Address, *, folder: Path, tag: RunTag) -> None:
        argv = [str(binary), "-host", address.host, "-port", str(address.port)]
        super().__init__(argv, log=folder / "toxiproxy.log", tag=tag)
        self.api = Toxiproxy(*address)

    def _answers(self) -> bool:
        return bool(self.api.version())
