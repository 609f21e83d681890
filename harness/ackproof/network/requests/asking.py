"""A witness's question over a link, and how far the kernel saw it come: it knows nothing of rules.

A request of a size that no other has is asked as the link's source would ask it. What comes back is one half; the
other is whether it arrived at the node's process, by the kernel's count of what its connections have received: others
come and go meanwhile, and have received something else.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from dataclasses import dataclass
from typing import Final, Literal

from ackproof.base.errors import WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.cluster.addresses import Address
from ackproof.network.requests.contents import error_of
from ackproof.network.requests.questions import Named, question, version_of
from ackproof.network.sockets import Flow, flows, inodes_of

How = Literal["answered", "closed", "silent", "refused"]
_SIZES: Final = range(12_000, 23_000)
"""Bytes of the asker's name, drawn anew for each question: what arrives in exactly its size, or twice that, is it. None
is twice another."""
_ARRIVES_WITHIN_S: Final = 0.3
"""Over loopback it takes a millisecond, and a busy machine's proxy some more."""


@dataclass(frozen=True)
class Asked:
    """What came of a question. `seconds` until the answer (or the end of waiting)."""

    how: How
    seconds: float
    arrived: int
    """How often a request of that size arrived at the node; 0 also where its connection was closed."""
    error: int | None = None
    """Kafka's code in the answer, where its API has one for the whole."""
    arrived_s: float = 0.0
    """After how many seconds it had arrived as often."""

    @property
    def answered(self) -> bool:
        return self.how == "answered"

    def __str__(self) -> str:
        times = {0: "did not arrive", 1: "arrived", 2: "arrived twice"}.get(
            self.arrived, f"arrived {self.arrived} times"
        )
        return f"{times}, {self.how} after {self.seconds * 1000:.0f} ms"


class Here:
    """Who asks and who is asked, in the one namespace that they share. `pid`: the process of the node that is asked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def connect(self, address: Address, timeout_s: float) -> socket.socket:
        """A connection from where the link's source is. Raises OSError."""
        return socket.create_connection(address, timeout_s)

    def flows(self) -> list[Flow]:
        """The connections where the node is."""
        return flows()


@dataclass(frozen=True)
class Asking:
    """How a question is asked.

    `look_after_s`: when it is looked whether it has arrived (default: once it is answered, or is not going to be);
    `wanted`: how often it is to arrive, the last time `later_s` after the first, which is waited for and a moment more.
    `named`: a partition that it names; `elsewhere`: one that the question beside it names.
    """

    timeout_s: float
    look_after_s: float | None = None
    wanted: int = 1
    later_s: float = 0.0
    named: Named | None = None
    elsewhere: Named | None = None


def ask(where: Here, address: Address, api: str, asking: Asking) -> Asked:
    """Ask a node, whose peer says that it is at `address`."""
    timeout_s, look_after_s = asking.timeout_s, asking.look_after_s
    before = {flow.inode for flow in where.flows()}
    began = time.monotonic()
    frame = question(api, size=random.choice(_SIZES), named=asking.named)
    try:
        with contextlib.closing(where.connect(address, timeout_s)) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.sendall(frame)
            arrived = None
            how, came = _answer(line, began + (timeout_s if look_after_s is None else look_after_s))
            if look_after_s is not None:
                arrived = _arrived(where, before, len(frame), asking)
            if how == "silent" and look_after_s is not None:
                how, came = _answer(line, began + timeout_s)
            took = time.monotonic() - began
            if arrived is None:
                arrived = 0 if how == "closed" else _arrived(where, before, len(frame), asking)
            arrived_s = time.monotonic() - began
            return Asked(how, took, arrived, error_of(api, version_of(api), came), arrived_s)
    except ConnectionRefusedError:
        return Asked("refused", time.monotonic() - began, 0)
    except (ConnectionResetError, BrokenPipeError):
        return Asked("closed", time.monotonic() - began, 0)
    except OSError:  # no way to that host
        return Asked("silent", time.monotonic() - began, 0)


def _answer(line: socket.socket, until: float) -> tuple[How, bytes]:
    """Wait for the first bytes of an answer: a node sends one only when it has all of it."""
    line.settimeout(max(0.001, until - time.monotonic()))
    try:
        came = line.recv(1024)
    except TimeoutError:
        return "silent", b""
    return "answered" if came else "closed", came


def _arrived(where: Here, before: set[int], size: int, asking: Asking) -> int:
    """How often a request of this size arrived at new connections of the process; the times wanted are waited for."""
    most = 0

    def look() -> bool:
        nonlocal most
        own = inodes_of(where.pid)
        received = [flow.received for flow in where.flows() if flow.inode in own and flow.inode not in before]
        most = max((count // size for count in received if count % size == 0), default=0)
        return most >= asking.wanted

    with contextlib.suppress(WaitTimeout):
        within_s = _ARRIVES_WITHIN_S + asking.later_s
        wait_until(look, what="a request to arrive", timeout_s=within_s, interval_s=0.01)
    return most
