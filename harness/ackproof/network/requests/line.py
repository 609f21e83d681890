"""A connection through the request proxy: two streams of frames, unanswered requests, and the effects of rules.

A broker processes the requests of a connection one after the other and answers in that order, and clients rely on it.
Under all effects the client gets responses in the order of its requests. Frames after a held or delayed frame wait,
too, unless the rule lets later requests pass (`Rule.overtaken`). After a silenced frame no further frame passes, as on
a TCP connection that lost a packet for good. Other connections go on.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ackproof.network.requests import contents
from ackproof.network.requests.contents import ERRORS
from ackproof.network.requests.frames import (
    FrameFate,
    FrameStream,
    RequestHead,
    ResponseHead,
    UnreadableFrame,
    read_request_head,
    read_response_head,
)
from ackproof.network.requests.rules import ActiveRule, FrameSide, HeldFrame, PartitionKey, Rule, RuleKind

if TYPE_CHECKING:
    from ackproof.network.requests.relay import Relay

FETCH: Final = 1


@dataclass(frozen=True)
class RelayRoute:
    """Route of the request proxy to `upstream`. `rules`: the rules in force, for requests and for responses."""

    name: str
    upstream: tuple[str, int]
    rules: dict[FrameSide, list[ActiveRule]] = field(default_factory=lambda: {side: [] for side in FrameSide})

    def rules_by_partition(self, api: int) -> list[ActiveRule]:
        """Return the rules on this route for the API with the key `api` that are limited to some partitions.

        If there are any, the partitions that a request names must be read.
        """
        return [
            acting
            for acting in (*self.rules[FrameSide.REQUEST], *self.rules[FrameSide.RESPONSE])
            if acting.rule.api == api and acting.rule.places
        ]


@dataclass(eq=False)
class _PendingRequest:
    """Request whose response the client has not got yet. `places`: partitions that the request names, if a rule needs
    them. `swallowed`: True for the repetition of a request that the proxy sent twice, whose response is dropped.
    `response`: a response that the proxy made itself or that came before its turn; b'' if there is none."""

    head: RequestHead
    places: frozenset[PartitionKey] = frozenset()
    swallowed: bool = False
    response: bytes = b""


class ConnectionHalf:
    """One direction of a proxied connection, from `source` to `sink`.

    `unsent`: bytes that `sink` has not accepted yet.
    """

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.unsent = bytearray()
        self.aside: deque[bytes] = deque()
        """Frames to send as soon as the stream is between two frames."""
        self.ended = False
        self.stream: FrameStream[RequestHead] | FrameStream[ResponseHead]

    @property
    def may_read(self) -> bool:
        return not self.ended and not self.unsent and not self.stream.stopped

    def forward(self, data: memoryview) -> None:
        """Send bytes to the sink, and keep those that the kernel does not accept yet. Raises OSError if the connection
        is broken."""
        sent = 0
        if data and not self.unsent:
            with suppress(BlockingIOError):
                sent = self.sink.send(data)
        self.unsent += data[sent:]

    def insert(self) -> None:
        """Send frames that were set aside, if the stream is between two frames. Raises OSError if the connection is
        broken."""
        while self.aside and self.stream.between_frames:
            self.forward(memoryview(self.aside.popleft()))

    def flush(self) -> None:
        """Send unsent bytes, as many as the kernel accepts. Raises OSError if the connection is broken."""
        with suppress(BlockingIOError):
            del self.unsent[: self.sink.send(self.unsent)]
            self._pass_end()

    def end(self) -> None:
        """Note that the source sends no more; the sink's connection is shut down after the unsent bytes. Raises OSError
        if the connection is broken."""
        self.ended = True
        self._pass_end()

    def _pass_end(self) -> None:
        if self.ended and not self.unsent:
            self.sink.shutdown(socket.SHUT_WR)


class RelayConnection:
    """A client's connection to the proxy, together with the proxy's own connection to the node. `asking` carries
    requests to the node, `answering` its responses; the rules of the route `way` act on both."""

    def __init__(self, loop: Relay, way: RelayRoute, client: socket.socket, node: socket.socket) -> None:
        self._loop = loop
        self.way = way
        self.asking = ConnectionHalf(client, node)
        self.answering = ConnectionHalf(node, client)
        self.asking.stream = FrameStream(read_request_head, self._on_request, self.asking.forward)
        self.answering.stream = FrameStream(read_response_head, self._on_response, self.answering.forward)
        self.connected = False
        self.closed = False
        self.serves: dict[int, Callable[[int], None]] = {}
        """Handlers of the loop for the sockets' events, by descriptor."""
        self._pending: deque[_PendingRequest] = deque()
        """Unanswered requests, in the order in which the client sent them."""
        self._asked: deque[_PendingRequest] = deque()
        """Requests that the node has not answered, in the order in which they were sent to the node."""
        self._session: frozenset[PartitionKey] | None = None
        """Partitions of the client's fetch session; None: unknown."""
        self._done: dict[FrameSide, set[str]] = {side: set() for side in FrameSide}
        """Names of the rules that were already applied to the frame that waits for a decision, by direction."""
        self._waits: dict[FrameSide, HeldFrame | None] = dict.fromkeys(FrameSide)
        self._aside: list[HeldFrame] = []
        """Held requests that do not block later ones."""
        self._lost: set[str] = set()
        """Names of the rules that silenced the connection."""

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """Sockets to the client and to the node, in this order."""
        return self.asking.source, self.asking.sink

    @property
    def over(self) -> bool:
        """True if client and node have both closed, and all bytes are passed on."""
        return all(half.ended and not half.unsent for half in (self.asking, self.answering))

    @property
    def unframed(self) -> str:
        """Reason why frames are passed on unread; '' while they are read."""
        return self.asking.stream.unframed or self.answering.stream.unframed

    # -- what becomes of a frame --------------------------------------------------------------------------------------

    def _on_request(self, head: RequestHead, frame: memoryview | None) -> FrameFate | bytes:
        asks = _PendingRequest(head)
        if reading := self.way.rules_by_partition(head.api):
            if frame is None:
                return FrameFate.LOOK
            if not self._read(asks, frame, reading):
                return FrameFate.DROP
        elif head.api == FETCH:
            self._session = None
        fate = self._ruled(FrameSide.REQUEST, asks, frame)
        if fate not in (FrameFate.LOOK, FrameFate.STOP):
            self._done[FrameSide.REQUEST].clear()
        if head.answered and (fate is FrameFate.PASS or isinstance(fate, bytes)):
            twice = [_PendingRequest(head, swallowed=True)] if isinstance(fate, bytes) else []
            self._pending += [asks, *twice]
            self._asked += [asks, *twice]
        return fate

    def _read(self, asks: _PendingRequest, frame: memoryview, reading: list[ActiveRule]) -> bool:
        """Read the partitions that a request names, store them in `asks`, and return True: the caller then applies the
        rules. If the frame cannot be read, `asks` gets no partitions, and each rule of `reading` notes the error.

        Return False for a Fetch in a session that the proxy did not see begin: the caller must drop the frame. The
        client gets the error that makes it begin a new session.
        """
        head = asks.head
        places: frozenset[PartitionKey] | None = frozenset()
        try:
            if head.api == FETCH:
                self._session = places = contents.read_fetched_partitions(head.version, frame, self._session)
            else:
                places = contents.read_partitions(head.api, head.version, frame)
        except UnreadableFrame as error:
            for acting in reading:
                acting.complain(f"{self.way.name}: {error}")
        if places is None:
            code = ERRORS["FETCH_SESSION_ID_NOT_FOUND"]
            made = contents.make_error_response(FETCH, head.version, frame, code)
            self._pending.append(_PendingRequest(head, response=made))
            return False
        asks.places = places
        return True

    def _on_response(self, head: ResponseHead, frame: memoryview | None) -> FrameFate | bytes:
        asked = self._asked[0] if self._asked else None
        if asked is None or asked.head.correlation != head.correlation:
            there = "nothing" if asked is None else str(asked.head.correlation)
            self._loop.complain(f"{self.way.name}: {head.correlation} was answered where {there} was asked")
            self._loop.to_close(self)
            return FrameFate.SILENCE
        if self._pending[0].response and self._pending[0] is not asked:
            return FrameFate.STOP  # until the earlier response is sent
        fate = FrameFate.DROP if asked.swallowed else self._ruled(FrameSide.RESPONSE, asked, frame)
        early = asked is not self._pending[0] and not asked.swallowed
        if early and fate is FrameFate.PASS:
            if frame is None:
                return FrameFate.LOOK
            fate = bytes(frame)
        if fate in (FrameFate.LOOK, FrameFate.STOP, FrameFate.SILENCE):
            return fate
        self._done[FrameSide.RESPONSE].clear()
        self._asked.popleft()
        if early and isinstance(fate, bytes):
            asked.response = fate
            return FrameFate.DROP
        self._pending.remove(asked)
        return fate

    def _ruled(self, side: FrameSide, asks: _PendingRequest, frame: memoryview | None) -> FrameFate | bytes:
        for acting in self.way.rules[side]:
            rule, done = acting.rule, self._done[side]
            if not acting.is_of(asks.head.api, asks.head.client, probe=asks.head.probe):
                continue
            if rule.name in done or not acting.speaks_of(asks.places):
                continue
            if frame is None and (rule.overtaken or rule.kind in (RuleKind.REPEAT, RuleKind.ANSWER)):
                return FrameFate.LOOK
            done.add(rule.name)
            if acting.takes(probe=asks.head.probe):
                fate = self._act(acting, side, asks, frame)
                if fate is not FrameFate.PASS:
                    return fate
        return FrameFate.PASS

    def _act(
        self, acting: ActiveRule, side: FrameSide, asks: _PendingRequest, frame: memoryview | None
    ) -> FrameFate | bytes:
        head = asks.head
        match acting.rule.kind:
            case RuleKind.HOLD if frame is not None and acting.rule.overtaken:
                if head.answered:
                    self._pending.append(asks)
                self._set_aside(acting, asks, bytes(frame), counted=not head.probe)
                return FrameFate.DROP
            case RuleKind.HOLD:
                self._stop(acting, side, counted=not head.probe)
                return FrameFate.STOP
            case RuleKind.LATE:
                wait = self._stop(acting, side, counted=False)
                self._loop.later(acting.wait(), wait.go)
                return FrameFate.STOP
            case RuleKind.LOSE:
                if not head.answered:
                    # acks=0: no client waits for a response, so none would close a silenced connection
                    return FrameFate.DROP
                self._lost.add(acting.rule.name)
                return FrameFate.SILENCE
            case RuleKind.CLOSE:
                self._loop.to_close(self)
                return FrameFate.SILENCE
            case RuleKind.REPEAT if frame is not None and acting.rule.delay:
                again = _PendingRequest(head, swallowed=True)
                self._loop.later(
                    acting.rule.delay, self._set_aside(acting, again, bytes(frame), counted=False).go
                )
            case RuleKind.REPEAT if frame is not None:
                return 2 * bytes(frame)
            case RuleKind.ANSWER if frame is not None:
                return self._answer(acting, side, asks, frame)
        return FrameFate.PASS

    def _answer(
        self, acting: ActiveRule, side: FrameSide, asks: _PendingRequest, frame: memoryview
    ) -> FrameFate | bytes:
        head, code = asks.head, acting.rule.code
        try:
            if side is FrameSide.RESPONSE:
                among = acting.among if acting.rule.places else None
                return contents.put_error(head.api, head.version, frame, code, among)
            made = contents.make_error_response(head.api, head.version, frame, code)
        except UnreadableFrame as error:
            acting.complain(f"{self.way.name}: {error}")
            return FrameFate.PASS
        if head.answered:
            self._pending.append(_PendingRequest(head, response=made))
        return FrameFate.DROP

    def insert(self) -> None:
        """Send the requests that were set aside and are due, and the responses whose turn it is. Raises OSError if a
        connection is broken."""
        self.asking.insert()
        stream = self.answering.stream
        while self._pending and self._pending[0].response and not self._waits[FrameSide.RESPONSE]:
            if not stream.between_frames:
                break
            self.answering.forward(memoryview(self._pending.popleft().response))
            if stream.stopped:
                stream.go_on()

    # -- what waits ---------------------------------------------------------------------------------------------------

    def _stop(self, acting: ActiveRule, side: FrameSide, *, counted: bool) -> HeldFrame:
        """Hold the present frame of one direction (`side`) and all later ones until the rule releases them. Return the
        held frame. `counted`: True if the frame is in the rule's count of held frames."""

        stream = self.asking.stream if side is FrameSide.REQUEST else self.answering.stream

        def go() -> None:
            if self._waits[side] is wait:
                self._waits[side] = None
                acting.end(wait)
                self._loop.guarded(self, stream.go_on)

        wait = HeldFrame(acting, counted, self.way.name, go, stream.copy_held, self._hung_up)
        self._waits[side] = wait
        self._begin(wait)
        return wait

    def _set_aside(
        self, acting: ActiveRule, asks: _PendingRequest, frame: bytes, *, counted: bool
    ) -> HeldFrame:
        """Hold this request while later ones go on, until the rule releases it. Return the held frame. `counted`: True
        if the request is in the rule's count of held frames. Responses still go back in the order of the client's
        requests."""

        def go() -> None:
            if wait in self._aside:
                self._aside.remove(wait)
                acting.end(wait)
                if asks.head.answered:
                    self._pending += [asks] if asks.swallowed else []
                    self._asked.append(asks)
                self.asking.aside.append(frame)
                self._loop.guarded(self, lambda: None)

        wait = HeldFrame(acting, counted, self.way.name, go, lambda: frame, self._hung_up)
        self._aside.append(wait)
        self._begin(wait)
        return wait

    def _begin(self, wait: HeldFrame) -> None:
        if wait.acting.begin(wait):
            self._loop.later(0.0, wait.acting.release)

    def _hung_up(self) -> bool:
        """Return True, and reset the connection, if the client has closed its side. The close is noticed even if
        earlier bytes of the client are still unread."""
        poll = select.poll()
        poll.register(self.asking.source, select.POLLRDHUP)
        if gone := bool(poll.poll(0)):
            self._loop.abort(self)
        return gone

    # -- what ends it -------------------------------------------------------------------------------------------------

    def without(self, rule: Rule) -> None:
        """End a rule's effects on this connection: pass on held frames; close it if the rule has silenced it."""
        if rule.name in self._lost:
            self._loop.to_close(self)
        for wait in (*self._aside, self._waits[rule.side]):
            if wait is not None and wait.acting.rule is rule:
                wait.go()

    def forget(self) -> None:
        for wait in (*self._aside, *self._waits.values()):
            if wait is not None:
                wait.acting.end(wait)
        self._aside.clear()
        self._waits = dict.fromkeys(FrameSide)
