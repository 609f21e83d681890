"""The request proxy over real sockets. The test itself turns the proxy's event loop."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

from ackproof.network.requests.relay import Relay
from ackproof.network.requests.rules import FrameSide, Rule, RuleKind

METADATA, HEARTBEAT = 3, 63


def request(api: int, correlation: int, name: bytes = b"someone", size: int = 0) -> bytes:
    head = struct.pack(">hhih", api, 1, correlation, len(name)) + name + bytes(size)
    return struct.pack(">i", len(head)) + head


def response(correlation: int, size: int = 4) -> bytes:
    return struct.pack(">ii", 4 + size, correlation) + bytes(size)


_SOON_S = 0.1


class Ground:
    """A request proxy with the route `w`, and the listening socket of the node behind it."""

    def __init__(self) -> None:
        self.relay = Relay()
        self._listening = socket.create_server(("127.0.0.1", 0))
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
            self._front = free.getsockname()
        self.relay.add("w", self._front, self._listening.getsockname())
        self._open: list[socket.socket] = [self._listening]

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Connect a client through the relay; return the client's and the node's socket."""
        client = socket.create_connection(self._front)
        self.turn()
        node, _ = self._listening.accept()
        for one in (client, node):
            one.setblocking(False)
            self._open.append(one)
        self.turn()
        return client, node

    def lay(self, kind: RuleKind, side: FrameSide = FrameSide.REQUEST, **more: object) -> None:
        rule: dict[str, object] = {
            "name": "r",
            "kind": kind,
            "side": side,
            "api": HEARTBEAT,
            "ways": ["w"],
            **more,
        }
        self.relay.lay(Rule.of_json(rule))

    def turn(self) -> None:
        for _ in range(6):
            self.relay.turn(0.002)

    def came(self, line: socket.socket) -> bytes:
        """Return the bytes that have arrived on a socket, followed by b"closed" if its peer has closed it. Waits up to
        0.1 s for the first byte; b"" if none has come."""
        data = b""
        until = time.monotonic() + _SOON_S
        while True:
            self.turn()
            try:
                part = line.recv(1 << 20)
            except BlockingIOError:
                if data or time.monotonic() > until:
                    return data
                continue
            if not part:
                return data + b"closed"
            data += part

    def end(self) -> None:
        self.relay.close()
        for one in self._open:
            one.close()
