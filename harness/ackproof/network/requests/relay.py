"""The proxy process: one epoll(7) loop for all connections, and its control socket.

Started as `python -m ackproof.network.requests.relay HOST PORT`. It takes orders at that address, one JSON object per
line, each answered by a line:

    {"do": "add", "ways": [[name, host, port, upstream host, upstream port], …]}
    {"do": "lay", "rule": {…}}      {"do": "lift", "name": "…"}      {"do": "state"}
    {"do": "release", "name": "…", "ways": ["…", …], "most": 1}

An answer has `error`, or the present state: `ways`, and for each rule its counts and how many frames it holds on each
way. `lifted` has the counts of a rule that was lifted, `released` the number of frames that were released.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import partial
from typing import Final

from ackproof.network.requests.contents import import_messages
from ackproof.network.requests.line import ConnectionHalf, RelayConnection, RelayRoute
from ackproof.network.requests.rules import ActiveRule, Rule, RuleCounts

CHUNK: Final = 256 * 1024
"""Bytes that are read at once: more would leave the processor's caches."""
_RESET: Final = struct.pack("ii", 1, 0)
_BACKLOG: Final = 256
_READABLE: Final = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR


class OrderRefused(ValueError):
    """An order that cannot be obeyed. The text says why."""


class Relay:
    """Loop over all routes, rules and connections."""

    def __init__(self) -> None:
        self.trouble = ""
        """First bytes that were no protocol of Kafka's: the connection was closed, or passed on unread from there on.
        """
        self._epoll = select.epoll()
        self._serves: dict[int, Callable[[int], None]] = {}
        self._wanted: dict[int, int] = {}
        self._ways: dict[str, RelayRoute] = {}
        self._rules: dict[str, ActiveRule] = {}
        self._lines: set[RelayConnection] = set()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self._closing: list[RelayConnection] = []
        self._gone: list[socket.socket] = []
        self._listening: list[socket.socket] = []
        self._scratch = memoryview(bytearray(CHUNK))

    # -- orders ------------------------------------------------------------------------------------------------------

    def add(self, name: str, listen: tuple[str, int], upstream: tuple[str, int]) -> None:
        """Accept connections at `listen` from now on, and lead them to `upstream`. Raises `OrderRefused`, OSError."""
        if name in self._ways:
            raise OrderRefused(f"there is a way {name} already")
        way = RelayRoute(name, upstream)
        line = socket.create_server(listen, backlog=_BACKLOG)
        line.setblocking(False)
        self._listening.append(line)
        self._ways[name] = way
        self.serve(line.fileno(), select.EPOLLIN, lambda events: self._take(line, way))

    def ways(self) -> dict[str, tuple[str, int]]:
        """Return where each route leads, by name."""
        return {way.name: way.upstream for way in self._ways.values()}

    def lay(self, rule: Rule) -> None:
        """Apply a rule from the next frame on. Raises `OrderRefused`."""
        if rule.name in self._rules:
            raise OrderRefused(f"there is a rule {rule.name} already")
        if strangers := [name for name in rule.ways if name not in self._ways]:
            raise OrderRefused(f"there is no way {', '.join(strangers)}")
        self._rules[rule.name] = acting = ActiveRule(rule)
        for name in rule.ways:
            self._ways[name].rules[rule.side].append(acting)

    def lift(self, name: str) -> RuleCounts:
        """Remove a rule: held frames go on, silent connections are closed. Raises `OrderRefused`."""
        acting = self._rules.pop(name, None)
        if acting is None:
            raise OrderRefused(f"there is no rule {name}")
        for way in acting.rule.ways:
            self._ways[way].rules[acting.rule.side].remove(acting)
        for line in list(self._lines):
            line.without(acting.rule)
        return acting.counted

    def release(self, name: str, ways: Collection[str], most: int = 1) -> int:
        """Release up to `most` frames that this rule has held longest on these routes; return how many went.

        The next frames are held again. A frame whose client has hung up is not released: its connection is closed.
        Raises `OrderRefused`.
        """
        if name not in self._rules:
            raise OrderRefused(f"there is no rule {name}")
        return self._rules[name].release(ways, most)

    def count_held(self) -> dict[str, dict[str, int]]:
        """Return how many frames each rule holds on each route, without clients that have hung up."""
        return {
            name: {way: len(acting.find_waiting([way])) for way in acting.rule.ways}
            for name, acting in self._rules.items()
        }

    def rules(self) -> Mapping[str, ActiveRule]:
        """Return the rules in force, by name."""
        return self._rules

    # -- the loop -----------------------------------------------------------------------------------------------------

    def serve(self, descriptor: int, events: int, serve: Callable[[int], None]) -> None:
        """Call `serve` with the events of this descriptor; without `events`, stop."""
        before = self._wanted.get(descriptor, 0)
        if events == before:
            return
        if not events:
            self._epoll.unregister(descriptor)
            del self._serves[descriptor], self._wanted[descriptor]
            return
        (self._epoll.modify if before else self._epoll.register)(descriptor, events)
        self._serves[descriptor], self._wanted[descriptor] = serve, events

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._count), act))

    def to_close(self, line: RelayConnection) -> None:
        self._closing.append(line)

    def complain(self, why: str) -> None:
        self.trouble = self.trouble or why

    def run(self) -> None:
        """Serve for ever."""
        while True:
            self.turn()

    def turn(self, longest_s: float = -1.0) -> None:
        """Serve pending events; wait at most `longest_s` seconds for one (below 0: without limit)."""
        if self._timers:
            soon = max(0.0, self._timers[0][0] - time.monotonic())
            longest_s = soon if longest_s < 0 else min(soon, longest_s)
        for descriptor, events in self._epoll.poll(longest_s):
            if (serve := self._serves.get(descriptor)) is not None:
                serve(events)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        while self._closing:
            self._drop(self._closing.pop())
        while self._gone:  # only now: a free descriptor is reused by the next connection
            self._gone.pop().close()

    def close(self) -> None:
        """Accept no more connections, and close those that exist."""
        for line in list(self._lines):
            self._drop(line)
        for sock in (*self._listening, *self._gone):
            sock.close()
        self._epoll.close()

    def guarded(self, line: RelayConnection, act: Callable[[], None]) -> None:
        if line.closed:
            return
        try:
            act()
            line.insert()
        except OSError:
            self.abort(line)
            return
        if line.unframed:
            self.complain(f"{line.way.name}: {line.unframed}")
        if line.over:
            self._drop(line)
        elif line.connected:
            self._await(line)

    def _take(self, listening: socket.socket, way: RelayRoute) -> None:
        try:
            client, _ = listening.accept()
        except OSError:
            return  # gone before it was taken
        node = socket.socket()
        for sock in (client, node):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = RelayConnection(self, way, client, node)
        self._lines.add(line)
        if node.connect_ex(way.upstream) not in (0, errno.EINPROGRESS):
            self.abort(line)
            return
        self.serve(node.fileno(), select.EPOLLOUT, lambda events: self._connected(line))

    def _connected(self, line: RelayConnection) -> None:
        client, node = line.sockets
        if node.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.abort(line)
            return
        line.connected = True
        self.serve(node.fileno(), 0, lambda events: None)
        self._serve_of(line, client.fileno(), line.asking, line.answering)
        self._serve_of(line, node.fileno(), line.answering, line.asking)

    def _serve_of(
        self, line: RelayConnection, descriptor: int, reads: ConnectionHalf, writes: ConnectionHalf
    ) -> None:
        """Serve one socket of a connection: read from it, and write to it."""

        def serve(events: int) -> None:
            self.guarded(line, partial(self._move, events, reads, writes))

        self.serve(descriptor, select.EPOLLIN, serve)
        line.serves[descriptor] = serve

    def _move(self, events: int, reads: ConnectionHalf, writes: ConnectionHalf) -> None:
        if events & select.EPOLLOUT and writes.unsent:
            writes.flush()
        if events & _READABLE and reads.may_read:
            self._read(reads)

    def _await(self, line: RelayConnection) -> None:
        """Wait for what each socket can do. One that can do nothing is not listened to: epoll would report a closed
        end again and again."""
        for reads, writes in ((line.asking, line.answering), (line.answering, line.asking)):
            events = (select.EPOLLIN if reads.may_read else 0) | (select.EPOLLOUT if writes.unsent else 0)
            descriptor = reads.source.fileno()
            if events != self._wanted.get(descriptor, 0):
                self.serve(descriptor, events, line.serves[descriptor])

    def _read(self, half: ConnectionHalf) -> None:
        try:
            count = half.source.recv_into(self._scratch)
        except BlockingIOError:
            return
        if count:
            half.stream.feed(self._scratch[:count])
        else:
            half.end()

    def abort(self, line: RelayConnection) -> None:
        """Send a reset to both sides."""
        if not line.closed:
            for sock in line.sockets:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._drop(line)

    def _drop(self, line: RelayConnection) -> None:
        if line.closed:
            return
        line.closed = True
        line.forget()
        self._lines.discard(line)
        for sock in line.sockets:
            self.serve(sock.fileno(), 0, lambda events: None)
            self._gone.append(sock)


class ControlSocket:
    """Control socket: takes orders."""

    def __init__(self, relay: Relay, address: tuple[str, int]) -> None:
        self._relay = relay
        self._listening = socket.create_server(address)
        relay.serve(self._listening.fileno(), select.EPOLLIN, lambda events: self._take())

    def _take(self) -> None:
        line, _ = self._listening.accept()
        line.setblocking(False)
        kept = bytearray()

        def serve(events: int) -> None:
            del events
            try:
                data = line.recv(1 << 20)
                if not data:
                    raise ConnectionResetError
                kept.extend(data)
                while (end := kept.find(b"\n")) >= 0:
                    order = bytes(kept[:end])
                    del kept[: end + 1]
                    # Orders and answers are a few kilobytes, which a socket's buffer takes at once.
                    line.sendall(self._answer(order))
            except BlockingIOError:
                return
            except OSError:
                self._relay.serve(line.fileno(), 0, serve)
                line.close()

        self._relay.serve(line.fileno(), select.EPOLLIN, serve)

    def _answer(self, order: bytes) -> bytes:
        said: dict[str, object] = {}
        try:
            self._obey(json.loads(order), said)
        except (OrderRefused, OSError, ValueError, TypeError, KeyError) as error:
            said["error"] = f"{type(error).__name__}: {error}"
        said["ways"] = {name: list(upstream) for name, upstream in self._relay.ways().items()}
        held = self._relay.count_held()
        said["rules"] = {
            name: {**acting.rule.as_json(), "counted": asdict(acting.counted), "held": held[name]}
            for name, acting in self._relay.rules().items()
        }
        said["trouble"] = self._relay.trouble
        return json.dumps(said).encode() + b"\n"

    def _obey(self, order: dict[str, object], said: dict[str, object]) -> None:
        match order:
            case {"do": "add", "ways": [*ways]}:
                for name, *ends in map(_words, ways):
                    self._relay.add(name, (ends[0], int(ends[1])), (ends[2], int(ends[3])))
            case {"do": "lay", "rule": dict(rule)}:
                self._relay.lay(Rule.of_json(rule))
            case {"do": "lift", "name": str(name)}:
                said["lifted"] = asdict(self._relay.lift(name))
            case {"do": "release", "name": str(name), "ways": [*ways], "most": int(most)}:
                said["released"] = self._relay.release(name, list(map(str, ways)), most)
            case {"do": "state"}:
                pass
            case _:
                raise OrderRefused("no such order")


def _words(row: object) -> list[str]:
    if not isinstance(row, list) or len(row) != 5:
        raise OrderRefused("a way is a name, where it listens, and where it leads")
    return list(map(str, row))


def main(host: str, port: str) -> None:
    """Serve until the process is ended."""
    relay = Relay()
    ControlSocket(relay, (host, int(port)))
    threading.Thread(target=import_messages, daemon=True).start()
    relay.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
