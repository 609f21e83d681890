"""Witnesses of a link that do not depend on proxies or packet rules: probe connections, and the kernel's counters.

A probe asks what every Kafka node answers on every listener: ApiVersions v0. The client id in its header may have up to
32 KB, so a request can be large enough to show a throttle or a lost large packet. A ZooKeeper server is asked whether a
znode exists, in a session that ends with the probe.

The kernel counts the bytes that arrived on each TCP connection; it is asked over a netlink socket (sock_diag(7)),
without a tool and without root.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

How = Literal["answered", "refused", "reset", "closed", "silent"]

_API_VERSIONS: Final = 18
_LARGEST_NAME: Final = 32_000
_TOTAL_RETRANS: Final = 100
"""Offset of tcpi_total_retrans in `struct tcp_info` (linux/tcp.h)."""
OVERHEAD: Final = 14
"""Bytes of a probe's Kafka request without the client id."""
ZOOKEEPER_OVERHEAD: Final = 17


_CONNECT: Final = struct.pack(">iiqiqi16s?", 45, 0, 0, 500, 0, 16, bytes(16), False)
"""ZooKeeper's ConnectRequest: a new session, of 0.5 s. It begins each connection, and is answered too."""
_EXISTS: Final = 3


@dataclass(frozen=True)
class ProbeAnswer:
    """Result of a probe. `answers`: number of requests that were answered; `resent`: retransmitted TCP segments.

    `how`: "answered" (all requests), "closed", "refused", "reset", or "silent" (no answer in time, or no route).
    `seconds`: time until the last answer or the failure.
    """

    how: How
    seconds: float
    resent: int = 0
    answers: int = 0

    @property
    def passed(self) -> bool:
        """True if the server answered every request of the probe."""
        return self.how == "answered"

    def __str__(self) -> str:
        return f"{self.how} after {self.seconds * 1000:.0f} ms"


def kafka_question(number: int, size: int) -> bytes:
    """Return a framed ApiVersions v0 request of at least `size` bytes (at most some 32 KB) with correlation id
    `number`."""
    name = b"ackproof".ljust(min(max(0, size - OVERHEAD), _LARGEST_NAME), b".")
    body = struct.pack(">hhih", _API_VERSIONS, 0, number, len(name)) + name
    return struct.pack(">i", len(body)) + body


def zookeeper_question(number: int, size: int) -> bytes:
    """Return a framed `exists` request of at least `size` bytes (at most some 32 KB) with the xid `number` + 1."""
    name = b"/ackproof".ljust(min(max(0, size - ZOOKEEPER_OVERHEAD), _LARGEST_NAME), b".")
    body = struct.pack(">iii", number + 1, _EXISTS, len(name)) + name + b"\0"
    return struct.pack(">i", len(body)) + body


def probe(
    address: tuple[str, int], *, timeout_s: float, size: int = 0, asks: int = 1, zookeeper: bool = False
) -> ProbeAnswer:
    """Connect and send `asks` requests of at least `size` bytes (at most some 32,000), one after the other, all within
    `timeout_s` seconds. A failed connection is a result (`ProbeAnswer.how`). `zookeeper`: the server is a ZooKeeper
    server."""
    make_question = zookeeper_question if zookeeper else kafka_question
    began = time.monotonic()
    deadline = began + timeout_s
    line: socket.socket | None = None
    answers = 0

    def ended(how: How) -> ProbeAnswer:
        resent = 0 if line is None else _resent(line)
        return ProbeAnswer(how, time.monotonic() - began, resent, answers)

    try:
        line = socket.create_connection(address, timeout_s)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if zookeeper and not _exchanged(line, _CONNECT, deadline):
            return ended("closed")
        for number in range(asks):
            if not _exchanged(line, make_question(number, size), deadline):
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


def measure_close(address: tuple[str, int], *, timeout_s: float, zookeeper: bool = False) -> float | None:
    """Send one request. After the answer shut down the sending side, and return the seconds from then until the server
    closes the connection.

    None: no connection, no answer, or not closed within `timeout_s` seconds. `zookeeper`: the server is a
    ZooKeeper server.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with contextlib.closing(socket.create_connection(address, timeout_s)) as line:
            if not _exchanged(line, _CONNECT if zookeeper else kafka_question(0, 0), deadline):
                return None
            began = time.monotonic()
            line.shutdown(socket.SHUT_WR)
            line.settimeout(_remaining_s(deadline))
            return time.monotonic() - began if line.recv(1) == b"" else None
    except OSError:
        return None


def _exchanged(line: socket.socket, frame: bytes, deadline: float) -> bool:
    """Send a request frame and read one response frame before the `deadline`. Return False if the other side closed the
    connection first."""
    line.settimeout(_remaining_s(deadline))
    line.sendall(frame)
    wanted = 4
    head = b""
    while wanted:
        line.settimeout(_remaining_s(deadline))
        data = line.recv(min(wanted, 65536))
        if not data:
            return False
        wanted -= len(data)
        if len(head) < 4:
            head += data
            if len(head) == 4:
                wanted = max(0, struct.unpack(">i", head)[0])
    return True


def _remaining_s(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _resent(line: socket.socket) -> int:
    """Return the number of packets of this connection that the kernel retransmitted; 0 if it does not tell."""
    with contextlib.suppress(OSError):
        info = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
        if len(info) >= _TOTAL_RETRANS + 4:
            return int(struct.unpack_from("=I", info, _TOTAL_RETRANS)[0])
    return 0


_SOCK_DIAG_BY_FAMILY: Final = 20
_NLMSG_DONE: Final = 3
_NLMSG_ERROR: Final = 2
_NLM_F_REQUEST_DUMP: Final = 0x301
_NETLINK_SOCK_DIAG: Final = 4
_INET_DIAG_INFO: Final = 2
_ESTABLISHED: Final = 1
_REQUEST: Final = struct.Struct("=IHHIIBBBBI48x")
"""nlmsghdr and inet_diag_req_v2 (linux/inet_diag.h)."""
_MESSAGE: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_FLOW: Final = struct.Struct("=6x2s16x16s28xI")
"""inet_diag_msg: remote port (network order), remote address and inode."""
_RECEIVED_AT: Final = 128
"""Offset of tcpi_bytes_received in `struct tcp_info` (linux/tcp.h)."""
_SOCKET: Final = re.compile(r"socket:\[([0-9]+)\]")


@dataclass(frozen=True)
class TcpFlow:
    """One TCP connection as seen from this machine. `remote`: IP address and port of the other end. `inode`: inode of
    the socket. `received`: bytes that have arrived here."""

    remote: tuple[str, int]
    inode: int
    received: int


@dataclass(frozen=True)
class Traffic:
    """TCP connections of a link at one moment (`flows`), by socket inode."""

    flows: Mapping[int, TcpFlow] = field(default_factory=dict)

    def received_since(self, earlier: Traffic) -> int:
        """Return the bytes that the link's source received since the moment `earlier`, on old and new connections.

        Bytes sent are no evidence: a proxy may accept and drop them. A count that fell adds nothing: the kernel may
        reuse an inode for another connection.
        """
        before = {inode: flow.received for inode, flow in earlier.flows.items()}
        return sum(max(0, flow.received - before.get(inode, 0)) for inode, flow in self.flows.items())


def read_tcp_flows() -> list[TcpFlow]:
    """Return every established TCP connection of this thread's network namespace. The two ends of a connection are two
    flows.

    Raises OSError if the kernel has no sock_diag, or does not answer.
    """
    found: list[TcpFlow] = []
    with contextlib.closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)) as line:
        line.settimeout(2.0)
        for family in (socket.AF_INET, socket.AF_INET6):
            asked = (family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, 1 << _ESTABLISHED)
            head = (_REQUEST.size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
            line.send(_REQUEST.pack(*head, *asked))
            found += _read_flows(line, family)
    return found


def read_socket_inodes(pid: int) -> frozenset[int]:
    """Return the inodes of a process's open sockets; empty if the process has ended, or belongs to another user."""
    found = set()
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                match = _SOCKET.fullmatch(str(descriptor.readlink()))
            except OSError:
                continue  # closed meanwhile
            if match:
                found.add(int(match[1]))
    except OSError:
        return frozenset()
    return frozenset(found)


def _read_flows(line: socket.socket, family: int) -> Iterator[TcpFlow]:
    size = 4 if family == socket.AF_INET else 16
    while True:
        for kind, message in _split(line.recv(1 << 18), _MESSAGE):
            if kind in (_NLMSG_DONE, _NLMSG_ERROR):
                if (code := -struct.unpack_from("=i", message)[0]) != 0:
                    remedy = "; modprobe tcp_diag loads its module" if code == errno.ENOENT else ""
                    raise OSError(code, f"sock_diag: {os.strerror(code)}{remedy}")
                return
            port, address, inode = _FLOW.unpack_from(message)
            # Java opens IPv4 connections as IPv4-mapped IPv6 addresses.
            host = socket.inet_ntop(family, address[:size]).removeprefix("::ffff:")
            for attribute, info in _split(message[_FLOW.size :], _ATTRIBUTE):
                if attribute == _INET_DIAG_INFO and len(info) >= _RECEIVED_AT + 8:
                    received = struct.unpack_from("=Q", info, _RECEIVED_AT)[0]
                    yield TcpFlow((host, int.from_bytes(port)), inode, received)


def _split(data: bytes, head: struct.Struct) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each netlink message or attribute. Both begin with their length and type."""
    at = 0
    while at + head.size <= len(data):
        length, kind, *_ = head.unpack_from(data, at)
        yield kind, data[at + head.size : at + length]
        at += max(head.size, (length + 3) & ~3)
