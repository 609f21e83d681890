"""Tests of `ask_question`: the answer, and the number of arrivals that the kernel shows, also among other traffic."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from ackproof.network.addresses import Address
from ackproof.network.requests.questions import QuestionPlan, ask_question

Answer = Callable[[socket.socket, bytes], None]


def read(line: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        data += line.recv(1 << 16)
    return data


def with_error(line: socket.socket, frame: bytes) -> None:
    line.sendall(struct.pack(">iixihx", 12, 1, 0, 41))


def nothing(line: socket.socket, frame: bytes) -> None:
    """Keep the connection open, and send no answer."""


@contextlib.contextmanager
def node(answer: Answer) -> Iterator[Address]:
    """Yield the address of a fake node in this process. It accepts one connection, reads a frame and calls `answer`."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                line, _ = listening.accept()
                taken.append(line)
                answer(line, read(line))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address(*listening.getsockname())
        thread.join(5.0)
    for line in taken:
        line.close()


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (with_error, ("answered", 1, 41)),
        (nothing, ("silent", 1, None)),
        (lambda line, frame: line.close(), ("closed", 0, None)),
    ],
)
def test_what_came_of_it(answer: Answer, seen: tuple[str, int, int | None]) -> None:
    with node(answer) as address:
        asked = ask_question(os.getpid(), address, "BrokerHeartbeat", QuestionPlan(0.4))
    assert (asked.how, asked.arrived, asked.error) == seen


def test_nobody_is_there() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = Address(*free.getsockname())
    assert ask_question(os.getpid(), address, "Fetch", QuestionPlan(0.4)).how == "refused"


def test_what_others_send_meanwhile_is_not_it() -> None:
    """The request stays in the backlog of a server that accepts nothing. Meanwhile this process receives larger
    requests of another client."""
    stop = threading.Event()
    came: list[int] = []

    def take() -> None:
        with contextlib.suppress(OSError):
            while not stop.is_set():
                line, _ = there.accept()
                with line:
                    while data := line.recv(1 << 16):
                        came.append(len(data))

    def send() -> None:
        while not stop.is_set():
            with socket.create_connection(there.getsockname()) as one:
                one.sendall(bytes(100_003))
                stop.wait(0.05)

    with (
        socket.create_server(("127.0.0.1", 0)) as there,
        socket.create_server(("127.0.0.1", 0)) as asleep,
    ):
        threads = [threading.Thread(target=one, daemon=True) for one in (take, send)]
        for thread in threads:
            thread.start()
        asked = ask_question(os.getpid(), Address(*asleep.getsockname()), "Fetch", QuestionPlan(0.4))
        stop.set()
        threads[1].join(5.0)
        with contextlib.suppress(OSError), socket.create_connection(there.getsockname(), 1.0):
            pass  # so that who takes looks up
        threads[0].join(5.0)
    assert (asked.how, asked.arrived) == ("silent", 0)
    assert sum(came) > 100_000
