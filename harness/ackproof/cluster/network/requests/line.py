"""A connection through the proxy of requests: two streams of frames, what awaits its answer, and what rules do to it.

A broker takes the requests of a connection one after the other, and answers in that order; its clients count on it. So
whatever is done to a frame keeps that order: what comes behind a frame that is held or late waits with it, and behind
one that is lost nothing comes any more, as on a line that lost a packet for good. Other connections go on.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ackproof.cluster.network.requests.frames import (
    Fate,
    RequestHead,
    ResponseHead,
    Stream,
    request_head,
    response_head,
)
from ackproof.cluster.network.requests.rules import Acting, Kind, Rule, Side


class Loop(Protocol):
    """What a connection asks of the loop that serves it."""

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do it so much later."""

    def to_close(self, line: Line) -> None:
        """Close a connection once what came before is on its way."""

    def guarded(self, line: Line, act: Callable[[], None]) -> None:
        """Do something with a connection; an error of it ends the connection."""

    def complain(self, why: str) -> None:
        """Something was no protocol of Kafka's."""


@dataclass(frozen=True)
class Way:
    """Where connections are led. `rules`: those that are laid here, by their side."""

    name: str
    upstream: tuple[str, int]
    rules: dict[Side, list[Acting]] = field(default_factory=lambda: {side: [] for side in Side})


class Pending(NamedTuple):
    """A request that awaits its response."""

    head: RequestHead
    swallowed: bool = False
    """Its response is for nobody: it was sent a second time."""
    made: bytes = b""
    """The response that it gets here; it was not passed on."""


@dataclass(eq=False)
class Wait:
    """A frame waits, because of this rule. `counted`: among those that the rule holds."""

    acting: Acting
    counted: bool
    since: float = field(default_factory=time.monotonic)


class Half:
    """What flows from one socket of a connection to the other. `unsent`: what the other would not take yet."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.unsent = bytearray()
        self.ended = False
        self.stream: Stream[RequestHead] | Stream[ResponseHead]

    @property
    def may_read(self) -> bool:
        return not self.ended and not self.unsent and not self.stream.stopped

    def forward(self, data: memoryview) -> None:
        """Pass it on, or keep what the kernel does not take. Raises OSError."""
        sent = 0
        if not self.unsent:
            try:
                sent = self.sink.send(data)
            except BlockingIOError:
                sent = 0
        if sent < len(data):
            self.unsent += data[sent:]

    def flush(self) -> None:
        """Try again. Raises OSError."""
        try:
            sent = self.sink.send(self.unsent)
        except BlockingIOError:
            return
        del self.unsent[:sent]
        if not self.unsent:
            self._pass_end()

    def end(self) -> None:
        """Nothing more comes from its source. Raises OSError."""
        self.ended = True
        self._pass_end()

    def _pass_end(self) -> None:
        if self.ended and not self.unsent:
            self.sink.shutdown(socket.SHUT_WR)


class Line:
    """A connection that was taken, and the one that was made for it."""

    def __init__(self, loop: Loop, way: Way, client: socket.socket, node: socket.socket) -> None:
        self._loop = loop
        self.way = way
        self.asking = Half(client, node)
        self.answering = Half(node, client)
        self.asking.stream = Stream(request_head, self._on_request, self.asking.forward, self._twice)
        self.answering.stream = Stream(
            response_head, self._on_response, self.answering.forward, lambda head, frame: None
        )
        self.connected = False
        self.closed = False
        self.serves: dict[int, Callable[[int], None]] = {}
        """What the loop calls with the events of its sockets, by their descriptors."""
        self._pending: deque[Pending] = deque()
        self._done: dict[Side, set[str]] = {side: set() for side in Side}
        """Names of the rules that have had their way with the next frame."""
        self._waits: dict[Side, Wait | None] = dict.fromkeys(Side)
        self._lost: set[str] = set()
        """Names of the rules by which it is silent."""

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """The client's, the node's."""
        return self.asking.source, self.asking.sink

    @property
    def over(self) -> bool:
        """Whether both ends have ended it, and all is passed on."""
        return all(half.ended and not half.unsent for half in (self.asking, self.answering))

    @property
    def unframed(self) -> str:
        """Why it is passed on without a look; '' where it is looked at."""
        return self.asking.stream.unframed or self.answering.stream.unframed

    # -- what becomes of a frame --------------------------------------------------------------------------------------

    def _on_request(self, head: RequestHead) -> Fate:
        fate = self._ruled(Side.REQUEST, head)
        if fate in (Fate.PASS, Fate.WHOLE, Fate.DROP):
            self._done[Side.REQUEST].clear()
        if fate in (Fate.PASS, Fate.WHOLE) and head.answered:
            self._pending.append(Pending(head))
            if fate is Fate.WHOLE:
                self._pending.append(Pending(head, swallowed=True))
        return fate

    def _on_response(self, head: ResponseHead) -> Fate:
        pending = self._pending[0] if self._pending else None
        if pending is not None and pending.made:
            return Fate.STOP  # until that one is sent
        if pending is None or pending.head.correlation != head.correlation:
            asked = "nothing" if pending is None else str(pending.head.correlation)
            self._loop.complain(f"{self.way.name}: {head.correlation} was answered where {asked} was asked")
            self._loop.to_close(self)
            return Fate.SILENCE
        fate = Fate.DROP if pending.swallowed else self._ruled(Side.RESPONSE, pending.head)
        if fate in (Fate.PASS, Fate.DROP):
            self._done[Side.RESPONSE].clear()
            self._pending.popleft()
        return fate

    def _ruled(self, side: Side, head: RequestHead) -> Fate:
        for acting in self.way.rules[side]:
            rule, done = acting.rule, self._done[side]
            if rule.api != head.api or rule.name in done:
                continue
            done.add(rule.name)
            if acting.takes(probe=head.probe) and (fate := self._act(acting, side, head)) is not Fate.PASS:
                return fate
        return Fate.PASS

    def _act(self, acting: Acting, side: Side, head: RequestHead) -> Fate:
        match acting.rule.kind:
            case Kind.HOLD:
                acting.counted.holding += not head.probe
                self._waits[side] = Wait(acting, counted=not head.probe)
                return Fate.STOP
            case Kind.LATE:
                self._waits[side] = wait = Wait(acting, counted=False)
                self._loop.later(acting.wait(), lambda: self._let_go(side, wait))
                return Fate.STOP
            case Kind.LOSE:
                if not head.answered:
                    return Fate.DROP  # nobody waits for it, nor would anybody close the connection
                self._lost.add(acting.rule.name)
                return Fate.SILENCE
            case Kind.CLOSE:
                self._loop.to_close(self)
                return Fate.SILENCE
            case Kind.REPEAT:
                return Fate.WHOLE
            case Kind.ANSWER:
                return self._answer(acting, head)

    def _answer(self, acting: Acting, head: RequestHead) -> Fate:
        if (body := acting.answer(head.version)) is None:
            self._loop.complain(
                f"{self.way.name}: no answer is known to version {head.version} of API {head.api}"
            )
            return Fate.PASS
        made = struct.pack(">ii", 4 + len(body), head.correlation) + body
        self._pending.append(Pending(head, made=made))
        return Fate.DROP

    def answer(self) -> None:
        """Send the responses that were made here and whose turn it is. Raises OSError."""
        stream = self.answering.stream
        while (
            self._pending
            and self._pending[0].made
            and stream.between_frames
            and not self._waits[Side.RESPONSE]
        ):
            self.answering.forward(memoryview(self._pending.popleft().made))
            if stream.stopped:
                stream.go_on()

    def _twice(self, head: RequestHead, frame: bytes) -> None:
        del head
        self.asking.forward(memoryview(frame))
        self.asking.forward(memoryview(frame))

    # -- what ends it -------------------------------------------------------------------------------------------------

    def without(self, rule: Rule) -> None:
        """A rule was lifted: what waits for it goes on, what it silenced is closed."""
        if rule.name in self._lost:
            self._loop.to_close(self)
        self.release(rule)

    def held_since(self, rule: Rule) -> float:
        """Since when (of the monotonic clock) this rule holds a frame of it that is no witness's question; 0: none."""
        wait = self._waits[rule.side]
        return wait.since if wait is not None and wait.counted and wait.acting.rule is rule else 0.0

    def release(self, rule: Rule) -> None:
        """What waits for this rule goes on; what comes behind it is held anew."""
        wait = self._waits[rule.side]
        if wait is not None and wait.acting.rule is rule:
            self._let_go(rule.side, wait)

    def forget(self) -> None:
        """It is closed: it holds nothing any more."""
        for side in Side:
            self._end_wait(side)

    def _let_go(self, side: Side, wait: Wait) -> None:
        if self.closed or self._waits[side] is not wait:
            return
        self._end_wait(side)
        stream = self.asking.stream if side is Side.REQUEST else self.answering.stream
        self._loop.guarded(self, stream.go_on)

    def _end_wait(self, side: Side) -> None:
        wait, self._waits[side] = self._waits[side], None
        if wait is not None:
            wait.acting.counted.holding -= wait.counted
