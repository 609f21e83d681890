"""The proxy of requests from the harness's side: a child like any other, told what to do, and asked what it did."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from ackproof.base.processes import RunTag
from ackproof.cluster.addresses import Address
from ackproof.network.mesh import LinkError
from ackproof.network.requests.rules import Counted, Rule
from ackproof.network.server import LinkServer
from ackproof.network.toxiproxy import Way

TIMEOUT_S: Final = 5.0
_LOOKS_EVERY_S: Final = 0.05
_MODULE: Final = "ackproof.network.requests.serve"


@dataclass(frozen=True)
class Said:
    """The proxy's answer to an order: what is so now."""

    ways: Mapping[str, tuple[str, int]]
    rules: Mapping[str, Mapping[str, object]]
    trouble: str
    """What was no protocol of Kafka's; '' nothing was."""
    error: str = ""
    lifted: Counted = field(default_factory=Counted)
    released: int = 0


_SAID: Final = TypeAdapter(Said)
_COUNTED: Final = TypeAdapter(Counted)
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
        self._ways: dict[str, Way] = {}
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

    def add(self, ways: Iterable[Way]) -> None:
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

    def lift(self, name: str) -> Counted:
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

    def counted(self, name: str) -> Counted | None:
        """What a rule has counted so far; None: it is not laid."""
        rule = self._order({"do": "state"}).rules.get(name)
        return None if rule is None else _COUNTED.validate_python(rule["counted"])

    def trouble(self) -> str:
        """What came over its ways that was no protocol of Kafka's; '' nothing did."""
        return self._order({"do": "state"}).trouble

    def _order(self, order: Mapping[str, object]) -> Said:
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
