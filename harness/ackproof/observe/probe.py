"""One broker, asked again and again without ever waiting for it."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ackproof.cluster import queries
from ackproof.cluster.access import KRAFT, Access
from ackproof.cluster.addresses import Address
from ackproof.cluster.protocol import PartitionState
from ackproof.cluster.wire import LARGEST_RESPONSE, Question, Unreachable
from ackproof.rundir.partition import TopicPartition

RECONNECT_AFTER_S: Final = 0.15
GIVE_UP_AFTER_S: Final = 10.0
"""A broker that owes an answer for this long gets a new connection. A paused one answers when it goes on."""
_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True)
class Answer:
    """What one broker said in one exchange: its view, its own log ends, and the offsets where it leads."""

    view: dict[TopicPartition, PartitionState]
    log_ends: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    last_stable: dict[TopicPartition, int]


class Probe:
    """Asks one broker. At most one exchange is under way; its requests are sent at once, in the order of `Answer`.

    The log end is asked before the high watermark, so that whatever happens in between their difference is never
    too large.
    """

    def __init__(self, address: Address, access: Access = KRAFT) -> None:
        self.address = address
        self.access = access
        self._socket: socket.socket | None = None
        self._questions: list[Question] = []
        self._first = 0
        self._input = bytearray()
        self._asked_at = 0.0
        self._refused_at = float("-inf")

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._questions)

    @property
    def descriptor(self) -> int:
        """Of the connection, for `select`. Only while busy."""
        if self._socket is None:
            raise ValueError("not connected")
        return self._socket.fileno()

    def ask(
        self, topics: Iterable[str], hosted: Iterable[TopicPartition], led: Iterable[TopicPartition]
    ) -> None:
        """Send the requests, connecting if need be. A broker that cannot be reached stays not busy."""
        now = time.monotonic()
        if self.busy:
            if now - self._asked_at > GIVE_UP_AFTER_S:
                self.close()
            return
        if self._socket is None and now - self._refused_at < RECONNECT_AFTER_S:
            return
        leads = tuple(led)
        questions = [
            queries.ask_partitions(topics, self.access),
            queries.ask_log_ends(hosted),
            queries.ask_offsets(leads, what=queries.LATEST),
            queries.ask_offsets(leads, what=queries.LATEST, isolation=queries.READ_COMMITTED),
        ]
        first = self._first + 1
        data = b"".join(question.encode(first + i) for i, question in enumerate(questions))
        try:
            if self._socket is None:
                self._socket = self.access.opener(self.address, self.access.connect_s)
                self._socket.setblocking(False)
            # Some hundred bytes into the empty buffer of a connection on which nothing is under way.
            self._socket.sendall(data)
        except OSError:
            self.close()
            self._refused_at = now
            return
        self._first = first
        self._questions = questions
        self._asked_at = now

    def receive(self) -> Answer | None:
        """Take what has arrived; the answer once it is whole. A broken connection ends the exchange."""
        if self._socket is None:
            return None
        try:
            while True:
                part = self._socket.recv(1 << 16)
                if not part:
                    self.close()
                    return None
                self._input += part
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return None
        try:
            frames = self._frames()
            if frames is None:
                return None
            said = [
                question.decode(frame, self._first + i)
                for i, (question, frame) in enumerate(zip(self._questions, frames, strict=True))
            ]
        except Unreachable:
            self.close()
            return None
        self._first += len(self._questions)
        self._questions = []
        self._input.clear()
        return _answer(*said)

    def close(self) -> None:
        """Forget the connection and what is under way."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None
        self._questions = []
        self._input.clear()

    def _frames(self) -> list[bytes] | None:
        """All frames of the exchange, None until the last one is whole."""
        frames: list[bytes] = []
        at = 0
        while len(frames) < len(self._questions):
            if len(self._input) - at < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack_from(self._input, at)
            if not 0 < length <= LARGEST_RESPONSE:
                raise Unreachable("not Kafka's protocol")
            if len(self._input) - at - _LENGTH.size < length:
                return None
            frames.append(bytes(self._input[at + _LENGTH.size : at + _LENGTH.size + length]))
            at += _LENGTH.size + length
        return frames


def _answer(view: Any, log_ends: Any, high_watermarks: Any, last_stable: Any) -> Answer:  # noqa: ANN401
    return Answer(
        queries.read_partitions(view),
        queries.read_offsets(log_ends),
        queries.read_offsets(high_watermarks),
        queries.read_offsets(last_stable),
    )
