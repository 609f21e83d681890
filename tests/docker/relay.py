"""A Unix socket that relays between the container engine and its clients. A test can end the relay, as if the engine
had died."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

ENGINE = "/var/run/docker.sock"


class Relay:
    """Forwards all bytes between the clients of `address` and the engine."""

    def __init__(self, address: Path) -> None:
        self.address = address
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(address))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.die()

    def die(self) -> None:
        """Close all connections, and accept no more."""
        self.address.unlink(missing_ok=True)
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(5)
        for each in (self._listener, *self._open):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(ENGINE)
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                thread = threading.Thread(target=_pass_on, args=(one, other), daemon=True)
                self._threads.append(thread)
                thread.start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
