"""What this process has sent and nobody has read yet: the end of an acks=0 producer must not be what loses records.

With acks=0 a record counts as acknowledged once it is in a socket. A client that closes then, while a broker is
behind and owes it an answer to something else (a metadata request), resets the connection when that answer comes:
what lay in the socket is gone, although nothing was broken. Applications that just exit lose it the same way; the
harness must not, or every loss at acks=0 would partly be its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_ESTABLISHED: Final = "01"
_TABLES: Final = ("tcp", "tcp6")
_MAPPED: Final = "0000000000000000FFFF0000"
"""How an IPv4 address begins in the table of a socket that takes both families, as a JVM's does (::ffff:a.b.c.d)."""


class _Socket(NamedTuple):
    local: str
    remote: str
    unsent: int
    unread: int
    inode: str


def unread_bytes(net: Path = Path("/proc/net"), own: frozenset[str] | None = None) -> int:
    """Bytes on their way over this process's TCP connections: not yet taken by the other machine or, where the other
    end is on this one (`/proc/net` shows both), not yet read by the other process.

    `own`: inodes of the sockets that count; those of this process if not given.
    """
    mine = _own_inodes() if own is None else own
    sockets = [socket for table in _TABLES for socket in _sockets(net / table)]
    peers = {(socket.local, socket.remote): socket for socket in sockets}
    total = 0
    for socket in sockets:
        if socket.inode in mine:
            peer = peers.get((socket.remote, socket.local))
            total += socket.unsent + (peer.unread if peer is not None else 0)
    return total


def _own_inodes() -> frozenset[str]:
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since it was listed
            name = os.readlink(descriptor)  # noqa: PTH115 — `socket:[1]` is no path
            if name.startswith("socket:["):
                found.add(name[len("socket:[") : -1])
    return frozenset(found)


def _sockets(table: Path) -> Iterator[_Socket]:
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return  # a machine without this family
    for line in lines:
        words = line.split()
        if len(words) > 9 and words[3] == _ESTABLISHED:
            unsent, _, unread = words[4].partition(":")
            local, remote = (address.removeprefix(_MAPPED) for address in words[1:3])
            yield _Socket(local, remote, int(unsent, 16), int(unread, 16), words[9])
