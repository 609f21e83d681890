"""Kafka's framing, read from a stream of bytes however it is cut: what frames begin, and what becomes of each.

A frame is four bytes of length and so many bytes. A request begins with its header (RequestHeader v1 and v2): API key,
version, correlation id, client id. A response begins with its correlation id. Nothing else is looked at, but for one
field: a Produce request with acks=0 is never answered. https://kafka.apache.org/protocol#protocol_messages
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

PRODUCE: Final = 0
LARGEST: Final = 1 << 30
"""No frame is longer: Kafka's socket.request.max.bytes is 100 MB, and what a client takes of a fetch half of that."""
PROBE: Final = b"ackproof-probe"
"""What the name of a client begins with that asks as a witness: rules act on it, and it is not counted."""
_REQUEST: Final = struct.Struct(">ihhih")
_RESPONSE: Final = struct.Struct(">ii")
_ACKS: Final = struct.Struct(">h")
_FLEXIBLE_PRODUCE: Final = 9
_NAMED_PRODUCE: Final = 3
"""From this version on a transactional id stands before acks."""


class NotFramed(ValueError):
    """These bytes are no frames of Kafka's. The text says why."""


class IncompleteHead(Exception):
    """More bytes are needed to say it."""


class RequestHead(NamedTuple):
    """A request. `size` is that of the whole frame, its length among it."""

    size: int
    api: int
    version: int
    correlation: int
    probe: bool
    answered: bool
    """Whether there will be a response."""


class ResponseHead(NamedTuple):
    """A response. `size` is that of the whole frame, its length among it."""

    size: int
    correlation: int


FrameHead = TypeVar("FrameHead", RequestHead, ResponseHead)


def read_request_head(data: memoryview) -> RequestHead | None:
    """The request with which these bytes begin; None while there are too few. Raises `NotFramed`."""
    if len(data) < _REQUEST.size:
        return None
    length, api, version, correlation, name = _REQUEST.unpack_from(data)
    if not _REQUEST.size - 4 <= length <= LARGEST:
        raise NotFramed(f"a request of {length} bytes")
    body = _REQUEST.size + max(0, name)
    if body > length + 4:
        raise NotFramed(f"a client's name of {name} bytes in a request of {length}")
    if len(data) < min(body, _REQUEST.size + len(PROBE)):
        return None
    probe = name >= len(PROBE) and bytes(data[_REQUEST.size : _REQUEST.size + len(PROBE)]) == PROBE
    answered = True
    if api == PRODUCE:
        whole = len(data) >= length + 4
        try:
            answered = _acks(data[: length + 4], body, version) != 0
        except IncompleteHead:
            if whole:
                raise NotFramed("a Produce request that ends before its acks") from None
            return None
    return RequestHead(length + 4, api, version, correlation, probe, answered)


def read_response_head(data: memoryview) -> ResponseHead | None:
    """The response with which these bytes begin; None while there are too few. Raises `NotFramed`."""
    if len(data) < _RESPONSE.size:
        return None
    length, correlation = _RESPONSE.unpack_from(data)
    if not _RESPONSE.size - 4 <= length <= LARGEST:
        raise NotFramed(f"a response of {length} bytes")
    return ResponseHead(length + 4, correlation)


def _acks(data: memoryview, at: int, version: int) -> int:
    """The acks of a Produce request whose body begins at `at`. Raises `IncompleteHead`."""
    if version >= _FLEXIBLE_PRODUCE:
        tags, at = _varint(data, at)
        for _ in range(tags):
            _, at = _varint(data, at)
            size, at = _varint(data, at)
            at += size
        length, at = _varint(data, at)
        at += max(0, length - 1)
    elif version >= _NAMED_PRODUCE:
        at += 2 + max(0, _short(data, at))
    return _short(data, at)


def _short(data: memoryview, at: int) -> int:
    if at + 2 > len(data):
        raise IncompleteHead
    return int(_ACKS.unpack_from(data, at)[0])


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint, and where it ends."""
    value = shift = 0
    while shift < 35:
        if at >= len(data):
            raise IncompleteHead
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise NotFramed("a varint of more than five bytes")


class FrameFate(Enum):
    """What becomes of a frame."""

    PASS = auto()
    DROP = auto()
    """It alone vanishes."""
    SILENCE = auto()
    """It vanishes, and all that comes behind it."""
    STOP = auto()
    """It waits, and all that comes behind it: nothing more is read until `FrameStream.go_on`."""
    LOOK = auto()
    """It is gathered, and asked about again as a whole."""


Decide: TypeAlias = Callable[[FrameHead, "memoryview | None"], "FrameFate | bytes"]
"""What becomes of a frame, given its head, and all of it if that was asked for; bytes: these are in its place."""


class FrameStream(Generic[FrameHead]):
    """One direction of a connection, frame by frame. It holds what could not be decided or must wait, and no more.

    `read` finds the head of a frame, `decide` says what becomes of it (asked once more after a `STOP`), `forward` takes
    what is passed on and must be done with it when it returns. Bytes that are no frames are passed on as they are, from
    there on: `unframed` says why.
    """

    def __init__(
        self,
        read: Callable[[memoryview], FrameHead | None],
        decide: Decide[FrameHead],
        forward: Callable[[memoryview], None],
    ) -> None:
        self._read: Callable[[memoryview], FrameHead | None] = read
        self._decide: Decide[FrameHead] = decide
        self._forward = forward
        self._kept = bytearray()
        self._wanted = 0
        """So many bytes must be there before it makes sense to look at them."""
        self._left = 0
        self._passing = True
        self.stopped = False
        self.silent = False
        self.unframed = ""

    @property
    def between_frames(self) -> bool:
        """Whether what has been passed on ends with a whole frame."""
        return not self._left

    def feed(self, data: memoryview) -> None:
        """Bytes that came. `data` may be used anew afterwards."""
        if self.silent:
            return
        if self.unframed:
            self._forward(data)
            return
        if self._kept:
            self._kept += data
            if len(self._kept) < self._wanted:
                return
            kept, self._kept = self._kept, bytearray()
            data = memoryview(kept)
        self._walk(data)

    def go_on(self) -> None:
        """What was stopped goes on, unless it is stopped anew."""
        self.stopped = False
        kept, self._kept = self._kept, bytearray()
        self.feed(memoryview(kept))

    def _walk(self, data: memoryview) -> None:
        """`begin` is where what is passed on begins, `at` how far it has been looked at."""
        begin = at = self._wanted = 0
        end = len(data)
        while at < end and not self.stopped:
            if self._left:
                take = min(self._left, end - at)
                self._left -= take
                at += take
                if not self._passing:
                    begin = at
                continue
            try:
                head = self._read(data[at:])
            except NotFramed as error:
                self.unframed = str(error)
                self._hand_on(data[begin:])
                return
            if head is None:
                break
            fate = self._decide(head, None)
            if fate is FrameFate.LOOK:
                if end - at < head.size:
                    self._wanted = head.size
                    break
                fate = self._decide(head, data[at : at + head.size])
            if fate is FrameFate.STOP:
                self.stopped = True
            elif fate is FrameFate.SILENCE:
                self.silent = True
                self._hand_on(data[begin:at])
                return
            else:
                self._passing = fate is FrameFate.PASS
                if not self._passing:
                    self._hand_on(data[begin:at])
                    begin = at
                if isinstance(fate, bytes):
                    self._forward(memoryview(fate))
                self._left = head.size
        self._hand_on(data[begin:at])
        self._kept += data[at:]

    def _hand_on(self, data: memoryview) -> None:
        if len(data):
            self._forward(data)
