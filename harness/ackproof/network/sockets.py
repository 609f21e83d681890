"""The kernel's own account of TCP connections, over a netlink socket (sock_diag(7)): no tool, no root.

It knows nothing of proxies or packet rules: what it counts has arrived.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

_SOCK_DIAG_BY_FAMILY: Final = 20
_NLMSG_DONE: Final = 3
_NLMSG_ERROR: Final = 2
_NLM_F_REQUEST_DUMP: Final = 0x301
_NETLINK_SOCK_DIAG: Final = 4
_INET_DIAG_INFO: Final = 2
_ESTABLISHED: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
_MESSAGE: Final = struct.Struct("=BBBB")
# inet_diag_msg after its four bytes: ports (network order), two addresses, interface, cookie, and five numbers
_ID: Final = struct.Struct(">HH16s16s")
_INODE_AT: Final = 68
_ATTRIBUTES_AT: Final = 72
_RECEIVED_AT: Final = 128
"""Offset of tcpi_bytes_received in `struct tcp_info` (linux/tcp.h)."""
_SOCKET: Final = re.compile(r"socket:\[([0-9]+)\]")


@dataclass(frozen=True)
class Flow:
    """One connection. `received`: bytes that arrived here."""

    remote: tuple[str, int]
    inode: int
    received: int


@dataclass(frozen=True)
class Traffic:
    """The connections of a link at one moment, by their sockets' inodes; `at` in monotonic seconds."""

    at: float
    flows: Mapping[int, Flow] = field(default_factory=dict)

    def received_since(self, earlier: Traffic) -> int:
        """Bytes that came back between two looks, over old connections and new ones.

        What was sent says little: a proxy takes it and lets it vanish. An inode may be another connection's by now.
        """
        before = {inode: flow.received for inode, flow in earlier.flows.items()}
        return sum(max(0, flow.received - before.get(inode, 0)) for inode, flow in self.flows.items())


def flows() -> list[Flow]:
    """Every established TCP connection of this thread's network namespace, each of its ends a flow of its own.

    Raises OSError where the kernel has no sock_diag.
    """
    found: list[Flow] = []
    with closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)) as line:
        line.settimeout(2.0)
        for family in (socket.AF_INET, socket.AF_INET6):
            line.send(_request(family))
            found += _read(line, family)
    return found


def inodes_of(pid: int) -> frozenset[int]:
    """The sockets that a process has open. Empty when it is gone, or another user's."""
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


def _request(family: int) -> bytes:
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, 1 << _ESTABLISHED)
    body += bytes(48)
    head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
    return head + body


def _read(line: socket.socket, family: int) -> Iterator[Flow]:
    while True:
        data = line.recv(1 << 18)
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, *_ = _HEADER.unpack_from(data, at)
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR:
                code = struct.unpack_from("=i", data, at + _HEADER.size)[0]
                raise OSError(-code, f"sock_diag: {os.strerror(-code)}")
            flow = _flow(data[at + _HEADER.size : at + length], family)
            if flow is not None:
                yield flow
            at += (length + 3) & ~3


def _flow(message: bytes, family: int) -> Flow | None:
    _, remote_port, _, remote = _ID.unpack_from(message, _MESSAGE.size)
    inode = struct.unpack_from("=I", message, _INODE_AT)[0]
    at = _ATTRIBUTES_AT
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if length < 4:
            return None
        if kind == _INET_DIAG_INFO and length - 4 >= _RECEIVED_AT + 8:
            info = message[at + 4 : at + length]
            (received,) = struct.unpack_from("=Q", info, _RECEIVED_AT)
            return Flow((_address(remote, family), remote_port), inode, received)
        at += (length + 3) & ~3
    return None


def _address(raw: bytes, family: int) -> str:
    """As text; an IPv4 address in IPv6 clothes, as Java opens them, without these."""
    if family == socket.AF_INET:
        return str(ip_address(raw[:4]))
    address = ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
