"""Kafka's framing: splits a stream of bytes, in pieces of any size, into frames, and asks for a decision about each.

A frame is a length of four bytes and its content. A request begins with its header (RequestHeader v1 and v2): API key,
version, correlation id, client id. A response begins with its correlation id. Only one further field is read: a Produce
request with acks=0 is never answered. https://kafka.apache.org/protocol#protocol_messages
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

PRODUCE: Final = 0
LARGEST: Final = 1 << 30
"""Greatest length of a frame in bytes. By default Kafka's socket.request.max.bytes is 100 MiB, and a client's largest
fetch half of it."""
PROBE: Final = b"ackproof-probe"
"""Prefix of the client id of requests that probe a rule: rules act on them without counting them."""
_REQUEST: Final = struct.Struct(">ihhih")
_RESPONSE: Final = struct.Struct(">ii")
_SHORT: Final = struct.Struct(">h")
_FLEXIBLE_PRODUCE: Final = 9
_NAMED_PRODUCE: Final = 3
"""First version of Produce with a transactional id before acks."""


class UnreadableFrame(ValueError):
    """Bytes that are no Kafka frame, or a frame without the field that is read. The text has the reason."""


class RequestHead(NamedTuple):
    """Header of a request. `size`: bytes of the whole frame, with its length field. `api`: Kafka's API key. `probe`:
    True if the client id shows that the request is a probe of ackproof. `answered`: False for a Produce request with
    acks=0, which no broker answers. `client`: the client id; '' if there is none."""

    size: int
    api: int
    version: int
    correlation: int
    probe: bool
    answered: bool
    client: str = ""


class ResponseHead(NamedTuple):
    """Header of a response. `size`: bytes of the whole frame, with its length field."""

    size: int
    correlation: int


FrameHead = TypeVar("FrameHead", RequestHead, ResponseHead)


def read_request_head(data: memoryview) -> RequestHead | None:
    """Return the header of the request with which these bytes begin; None while too few bytes are there.

    Raises `UnreadableFrame` for bytes that are no request.
    """
    if len(data) < _REQUEST.size:
        return None
    length, api, version, correlation, name = _REQUEST.unpack_from(data)
    if not _REQUEST.size - 4 <= length <= LARGEST:
        raise UnreadableFrame(f"a request of {length} bytes")
    body = _REQUEST.size + max(0, name)
    if body > length + 4:
        raise UnreadableFrame(f"a client's name of {name} bytes in a request of {length}")
    if len(data) < body:
        return None
    client = bytes(data[_REQUEST.size : body])
    answered = True
    if api == PRODUCE:
        try:
            answered = _acks(data[: length + 4], body, version) != 0
        except (IndexError, struct.error):
            if len(data) >= length + 4:
                raise UnreadableFrame("a Produce request that ends before its acks") from None
            return None
    named = client.decode(errors="replace")
    return RequestHead(length + 4, api, version, correlation, client.startswith(PROBE), answered, named)


def read_response_head(data: memoryview) -> ResponseHead | None:
    """Return the header of the response with which these bytes begin; None while too few bytes are there.

    Raises `UnreadableFrame` for bytes that are no response.
    """
    if len(data) < _RESPONSE.size:
        return None
    length, correlation = _RESPONSE.unpack_from(data)
    if not _RESPONSE.size - 4 <= length <= LARGEST:
        raise UnreadableFrame(f"a response of {length} bytes")
    return ResponseHead(length + 4, correlation)


def _acks(data: memoryview, at: int, version: int) -> int:
    """Return the acks of a Produce request whose body begins at `at`.

    Raises IndexError or struct.error while there are too few bytes, `UnreadableFrame` for a varint that is too long.
    """
    if version >= _FLEXIBLE_PRODUCE:
        tags, at = _varint(data, at)
        for _ in range(tags):
            _, at = _varint(data, at)
            size, at = _varint(data, at)
            at += size
        length, at = _varint(data, at)
        at += max(0, length - 1)
    elif version >= _NAMED_PRODUCE:
        at += 2 + max(0, _SHORT.unpack_from(data, at)[0])
    return int(_SHORT.unpack_from(data, at)[0])


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the unsigned varint at position `at`, and the position after it."""
    value = shift = 0
    while shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise UnreadableFrame("a varint of more than five bytes")


class FrameFate(Enum):
    """Decision about a frame: the next action of the proxy, such as passing or dropping the frame."""

    PASS = auto()
    DROP = auto()
    """Drop this frame only."""
    SILENCE = auto()
    """Drop this frame and all later ones."""
    STOP = auto()
    """Hold this frame and all later ones: nothing more is read until `FrameStream.go_on`."""
    LOOK = auto()
    """Collect the whole frame, and decide again with its bytes."""


Decide: TypeAlias = Callable[[FrameHead, "memoryview | None"], "FrameFate | bytes"]
"""Function that decides about a frame from its head; after `LOOK` it gets the whole frame too. If it returns bytes,
they replace the frame."""


class FrameStream(Generic[FrameHead]):
    """One direction of a connection, frame by frame. Only bytes that are undecided or must wait are kept.

    `read` returns the header of the frame with which some bytes begin; None for too few bytes. `decide(header, None)`
    returns the fate of the frame (`FrameFate`), or bytes that replace the frame. If the fate is `LOOK`, the stream
    calls `decide(header, frame)` once the whole frame has arrived. If the fate is `STOP`, the stream holds this frame
    and all later ones; `go_on` ends that.

    `forward` takes the bytes to pass on, and must be done with them when it returns. Bytes that are no frames are
    passed on unread from there on: `unframed` says why.
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
        """Number of bytes that must be there before another look makes sense."""
        self._left = 0
        self._passing = True
        self.stopped = False
        self.silent = False
        self.unframed = ""

    @property
    def between_frames(self) -> bool:
        """True if the bytes passed on so far end at a frame boundary."""
        return not self._left

    def copy_held(self) -> bytes:
        """Return the frame that `STOP` holds; b'' if none is held, or if the frame has not arrived completely."""
        size = 4 + int.from_bytes(self._kept[:4], "big")
        return bytes(self._kept[:size]) if self.stopped and len(self._kept) >= size else b""

    def feed(self, data: memoryview) -> None:
        """Process received bytes. They are dropped after `SILENCE`, and passed on unread once `unframed` is
        set. The caller may reuse the buffer `data` afterwards."""
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
        """Process the frames that the stream holds since `decide` returned `STOP`. `decide` is called again for the
        first of them, and may stop the stream again."""
        self.stopped = False
        kept, self._kept = self._kept, bytearray()
        self.feed(memoryview(kept))

    def _walk(self, data: memoryview) -> None:
        """Do what `decide` says with each frame in `data`, and keep what is undecided or must wait."""
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
            except UnreadableFrame as error:
                self.unframed = str(error)
                self._forward(data[begin:])
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
                self._forward(data[begin:at])
                return
            else:
                self._passing = fate is FrameFate.PASS
                if not self._passing:
                    self._forward(data[begin:at])
                    begin = at
                if isinstance(fate, bytes):
                    self._forward(memoryview(fate))
                self._left = head.size
        self._forward(data[begin:at])
        self._kept += data[at:]
