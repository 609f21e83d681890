"""A probe: a connection over a link, and a question that every Kafka node answers on every listener.

The question is ApiVersions v0. Its header names the client, in up to 32 KB: so a question can be made as large as a
bandwidth or a packet size asks for. A ZooKeeper server is asked whether a znode exists, of a name as long as need be,
in a session that lasts as long as the probe and a moment more.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

How = Literal["answered", "refused", "reset", "closed", "silent"]

_API_VERSIONS: Final = 18
_LARGEST_NAME: Final = 32_000
_TOTAL_RETRANS: Final = 100
"""Offset of tcpi_total_retrans in `struct tcp_info` (linux/tcp.h)."""
OVERHEAD: Final = 14
"""Bytes of a question beside the client's name."""
ZOOKEEPER_OVERHEAD: Final = 17


_CONNECT: Final = struct.pack(">iiqiqi16s?", 45, 0, 0, 500, 0, 16, bytes(16), False)
"""ZooKeeper's ConnectRequest: no session yet, one of 0.5 s is wanted."""
_EXISTS: Final = 3


@dataclass(frozen=True)
class Speech:
    """What a kind of server answers. `greeting` begins each connection, and is answered too."""

    question: Callable[[int, int], bytes]
    """`question(number, size)`: a framed question of at least `size` bytes (at most some 32 KB)."""
    greeting: bytes = b""


@dataclass(frozen=True)
class Answer:
    """What came of a probe. `seconds` until the last answer (or the failure), `resent` packets of ours."""

    how: How
    seconds: float
    resent: int = 0
    answers: int = 0

    @property
    def passed(self) -> bool:
        """Whether every question was answered."""
        return self.how == "answered"

    def __str__(self) -> str:
        return f"{self.how} after {self.seconds * 1000:.0f} ms"


def question(number: int, size: int) -> bytes:
    """A framed ApiVersions v0 request of at least `size` bytes (at most some 32 KB)."""
    name = b"ackproof".ljust(min(max(0, size - OVERHEAD), _LARGEST_NAME), b".")
    body = struct.pack(">hhih", _API_VERSIONS, 0, number, len(name)) + name
    return struct.pack(">i", len(body)) + body


def zookeeper_question(number: int, size: int) -> bytes:
    """A framed `exists` request of at least `size` bytes (at most some 32 KB)."""
    name = b"/ackproof".ljust(min(max(0, size - ZOOKEEPER_OVERHEAD), _LARGEST_NAME), b".")
    body = struct.pack(">iii", number + 1, _EXISTS, len(name)) + name + b"\0"
    return struct.pack(">i", len(body)) + body


KAFKA: Final = Speech(question)
ZOOKEEPER: Final = Speech(zookeeper_question, _CONNECT)


def ask(
    address: tuple[str, int], *, timeout_s: float, size: int = 0, asks: int = 1, speech: Speech = KAFKA
) -> Answer:
    """Connect and ask `asks` questions of at least `size` bytes, all within `timeout_s` seconds."""
    began = time.monotonic()
    deadline = began + timeout_s
    line: socket.socket | None = None
    answers = 0

    def ended(how: How) -> Answer:
        resent = 0 if line is None else _resent(line)
        return Answer(how, time.monotonic() - began, resent, answers)

    try:
        line = socket.create_connection(address, timeout_s)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if speech.greeting and not _exchanged(line, speech.greeting, deadline):
            return ended("closed")
        for number in range(asks):
            if not _exchanged(line, speech.question(number, size), deadline):
                return ended("closed")
            answers += 1
        return ended("answered")
    except ConnectionRefusedError:
        return ended("refused")
    except (ConnectionResetError, BrokenPipeError):
        return ended("reset")
    except OSError:  # a time-out, or no way to that host
        return ended("silent")
    finally:
        if line is not None:
            line.close()


def closing(address: tuple[str, int], *, timeout_s: float, speech: Speech = KAFKA) -> float | None:
    """Ask once, end our sending, and wait for the other end: the seconds it took, None if it did not come."""
    deadline = time.monotonic() + timeout_s
    try:
        with contextlib.closing(socket.create_connection(address, timeout_s)) as line:
            if not _exchanged(line, speech.greeting or speech.question(0, 0), deadline):
                return None
            began = time.monotonic()
            line.shutdown(socket.SHUT_WR)
            line.settimeout(_left(deadline))
            return time.monotonic() - began if line.recv(1) == b"" else None
    except OSError:
        return None


def _exchanged(line: socket.socket, frame: bytes, deadline: float) -> bool:
    """Send a frame and read one. False when the other side closed."""
    line.settimeout(_left(deadline))
    line.sendall(frame)
    wanted = 4
    head = b""
    while wanted:
        line.settimeout(_left(deadline))
        data = line.recv(min(wanted, 65536))
        if not data:
            return False
        wanted -= len(data)
        if len(head) < 4:
            head += data
            if len(head) == 4:
                wanted = max(0, struct.unpack(">i", head)[0])
    return True


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _resent(line: socket.socket) -> int:
    """How many of our packets the kernel had to send again."""
    with contextlib.suppress(OSError):
        info = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
        if len(info) >= _TOTAL_RETRANS + 4:
            return int(struct.unpack_from("=I", info, _TOTAL_RETRANS)[0])
    return 0
