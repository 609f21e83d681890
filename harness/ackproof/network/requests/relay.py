"""The proxy process: one epoll(7) loop for all connections, and its control socket.

Started as `python -m ackproof.network.requests.relay HOST PORT`. It takes commands at that address, one JSON
object per line, each answered by a line:

    {"do": "add", "ways": [[name, host, port, upstream host, upstream port], …]}
    {"do": "lay", "rule": {…}}      {"do": "lift", "name": "…"}      {"do": "state"}
    {"do": "release", "name": "…", "way": "…"}      {"do": "copy", "name": "…", "way": "…"}

Each answer has the present state: `ways` (routes), `rules` with the counts of each, `held` (how many frames
each rule holds on each route) and `trouble` (the first route on which something was not Kafka's protocol, and
what). `error` is there if the command failed. `lifted` has the counts of a rule that was removed, `released` is
true if a frame was released, `copied` has a held frame in hexadecimal digits.
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Final

from ackproof.network.requests.contents import import_messages
from ackproof.network.requests.line import ConnectionHalf, RelayConnection, RelayRoute
from ackproof.network.requests.rules import ActiveRule, HeldFrame, Rule, RuleCounts

CHUNK: Final = 256 * 1024
"""Bytes that are read at once: more would leave the processor's caches."""
_RESET: Final = struct.pack("ii", 1, 0)
_BACKLOG: Final = 256
_READABLE: Final = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR


class Relay:
    """Event loop of the request proxy: routes, rules and connections. In its methods `name` is the name of a rule,
    `way` the name of a route. A command that cannot be carried out raises ValueError."""

    def __init__(self) -> None:
        self.trouble = ""
        """The first route on which something was not Kafka's protocol, and what; '' if nothing was. That connection was
        closed, or is passed on unread."""
        self._epoll = select.epoll()
        self._serves: dict[int, Callable[[int], None]] = {}
        self._wanted: dict[int, int] = {}
        self.ways: dict[str, RelayRoute] = {}
        self.rules: dict[str, ActiveRule] = {}
        self._lines: set[RelayConnection] = set()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self._closing: list[RelayConnection] = []
        self._gone: list[socket.socket] = []
        self._listening: list[socket.socket] = []
        self._scratch = memoryview(bytearray(CHUNK))

    # -- orders ------------------------------------------------------------------------------------------------------

    def add(self, name: str, listen: tuple[str, int], upstream: tuple[str, int]) -> None:
        """Accept connections at `listen` from now on, and connect each to `upstream`. Raises ValueError if there is a
        route `name` already, OSError if the address is taken."""
        if name in self.ways:
            raise ValueError(f"there is a way {name} already")
        way = RelayRoute(name, upstream)
        line = socket.create_server(listen, backlog=_BACKLOG)
        line.setblocking(False)
        self._listening.append(line)
        self.ways[name] = way
        self.serve(line.fileno(), select.EPOLLIN, lambda events: self._take(line, way))

    def lay(self, rule: Rule) -> None:
        """Apply a rule from the next frame on. Raises ValueError if there is a rule of this name already, or
        if a route is unknown."""
        if rule.name in self.rules:
            raise ValueError(f"there is a rule {rule.name} already")
        if strangers := [name for name in rule.ways if name not in self.ways]:
            raise ValueError(f"there is no way {', '.join(strangers)}")
        self.rules[rule.name] = acting = ActiveRule(rule)
        for name in rule.ways:
            self.ways[name].rules[rule.side].append(acting)

    def lift(self, name: str) -> RuleCounts:
        """Remove a rule and return its counts. Held frames are passed on, and connections that the rule silenced are
        closed. Raises ValueError for an unknown name."""
        acting = self.rules.pop(name, None)
        if acting is None:
            raise ValueError(f"there is no rule {name}")
        for way in acting.rule.ways:
            self.ways[way].rules[acting.rule.side].remove(acting)
        for line in list(self._lines):
            line.without(acting.rule)
        return acting.counted

    def release(self, name: str, way: str) -> bool:
        """Release the frame that the rule `name` has held longest on the route `way`; return False if it holds none
        there.

        The next frames are held again. A frame whose client has hung up is not released: its connection is reset.
        """
        for wait in self._find_oldest(name, way):
            wait.go()
            return True
        return False

    def copy(self, name: str, way: str) -> bytes:
        """Return the frame that the rule `name` has held longest on the route `way`; b'' if it holds no complete frame
        there."""
        return b"".join(wait.copy() for wait in self._find_oldest(name, way))

    def _find_oldest(self, name: str, way: str) -> list[HeldFrame]:
        if name not in self.rules:
            raise ValueError(f"there is no rule {name}")
        return self.rules[name].find_waiting([way])[:1]

    def count_held(self) -> dict[str, dict[str, int]]:
        """Return the number of frames that each rule holds on each of its routes: rule → route → number. Probes and
        delayed frames are not counted. Connections of clients that have hung up are reset first."""
        return {
            name: {way: len(acting.find_waiting([way])) for way in acting.rule.ways}
            for name, acting in self.rules.items()
        }

    # -- the loop -----------------------------------------------------------------------------------------------------

    def serve(self, descriptor: int, events: int, serve: Callable[[int], None]) -> None:
        """Call `serve` with the mask of epoll events whenever the descriptor has one of `events`; `events` 0:
        stop watching it."""
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
        """Call `act` once, after this many seconds, in the loop's own thread."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._count), act))

    def to_close(self, line: RelayConnection) -> None:
        """Close a connection at the end of the current turn, after its earlier frames were sent. Bytes that the kernel
        has not accepted by then are lost."""
        self._closing.append(line)

    def complain(self, why: str) -> None:
        """Record in `trouble` that a connection carried something other than Kafka's protocol; only the first record is
        kept. `why`: name of the route, and what was wrong. The harness reads `trouble` with the proxy's state."""
        self.trouble = self.trouble or why

    def turn(self, longest_s: float = -1.0) -> None:
        """Wait for events, at most `longest_s` seconds (below 0: without limit) and no longer than until the next
        timer; then handle all events and timers that are due."""
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
        """Call `act` for a connection, then send the frames that are due on the connection; an OSError resets it. Does
        nothing for a closed connection."""
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
            return  # the client closed it before it was accepted
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
        for sock, reads, writes in (
            (client, line.asking, line.answering),
            (node, line.answering, line.asking),
        ):
            serve = partial(self._serve_half, line, reads, writes)
            line.serves[sock.fileno()] = serve
            self.serve(sock.fileno(), select.EPOLLIN, serve)

    def _serve_half(
        self, line: RelayConnection, reads: ConnectionHalf, writes: ConnectionHalf, events: int
    ) -> None:
        """Serve one socket of a connection after the epoll `events`: send what `writes` has for it, and read from it
        what `reads` may read."""

        def move() -> None:
            if events & select.EPOLLOUT and writes.unsent:
                writes.flush()
            if events & _READABLE and reads.may_read:
                with suppress(BlockingIOError):
                    if count := reads.source.recv_into(self._scratch):
                        reads.stream.feed(self._scratch[:count])
                    else:
                        reads.end()

        self.guarded(line, move)

    def _await(self, line: RelayConnection) -> None:
        """Register each socket for the events that can be served now. Remove a socket without any: epoll would report
        its closed end again and again."""
        for reads, writes in ((line.asking, line.answering), (line.answering, line.asking)):
            events = (select.EPOLLIN if reads.may_read else 0) | (select.EPOLLOUT if writes.unsent else 0)
            descriptor = reads.source.fileno()
            if events != self._wanted.get(descriptor, 0):
                self.serve(descriptor, events, line.serves[descriptor])

    def abort(self, line: RelayConnection) -> None:
        """Close both sides of a connection with a TCP reset."""
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


def _take_orders(relay: Relay, address: tuple[str, int]) -> None:
    """Listen at this address for commands, and answer each in the relay's own event loop. A command is one line of
    JSON."""
    listening = socket.create_server(address)

    def accept(events: int) -> None:
        del events
        line, _ = listening.accept()
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
                    line.sendall(_answer(relay, order))
            except BlockingIOError:
                return
            except OSError:
                relay.serve(line.fileno(), 0, serve)
                line.close()

        relay.serve(line.fileno(), select.EPOLLIN, serve)

    relay.serve(listening.fileno(), select.EPOLLIN, accept)


def _answer(relay: Relay, order: bytes) -> bytes:
    said: dict[str, object] = {}
    try:
        _obey(relay, json.loads(order), said)
    except (OSError, ValueError, TypeError, KeyError) as error:
        said["error"] = f"{type(error).__name__}: {error}"
    said["ways"] = {name: way.upstream for name, way in relay.ways.items()}
    said["rules"] = {name: asdict(acting.counted) for name, acting in relay.rules.items()}
    said["held"] = relay.count_held()
    said["trouble"] = relay.trouble
    return json.dumps(said).encode() + b"\n"


def _obey(relay: Relay, order: dict[str, object], said: dict[str, object]) -> None:
    match order:
        case {"do": "add", "ways": [*ways]}:
            for way in ways:
                match way:
                    case [str(name), str(host), int(port), str(upstream), int(upstream_port)]:
                        relay.add(name, (host, port), (upstream, upstream_port))
                    case _:
                        raise ValueError("a way is a name, where it listens, and where it leads")
        case {"do": "lay", "rule": dict(rule)}:
            relay.lay(Rule.of_json(rule))
        case {"do": "lift", "name": str(name)}:
            said["lifted"] = asdict(relay.lift(name))
        case {"do": "release", "name": str(name), "way": str(way)}:
            said["released"] = relay.release(name, way)
        case {"do": "copy", "name": str(name), "way": str(way)}:
            said["copied"] = relay.copy(name, way).hex()
        case {"do": "state"}:
            pass
        case _:
            raise ValueError("no such order")


def main(host: str, port: str) -> None:
    """Run the request proxy's process, which takes commands at `host`:`port` until it is killed."""
    relay = Relay()
    _take_orders(relay, (host, int(port)))
    threading.Thread(target=import_messages, daemon=True).start()
    while True:
        relay.turn()


if __name__ == "__main__":
    main(*sys.argv[1:])
