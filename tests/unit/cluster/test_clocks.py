"""Tests of nodes' wall clocks: readings from log lines and their bounds, the clock library, a machine without a
compiler."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ackproof.base.errors import MissingTool
from ackproof.cluster import clocks
from ackproof.cluster.backends import choice as backends
from ackproof.cluster.clocks import ClockReading, NodeClock
from ackproof.experiment.backends import Need
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.addresses import Address


class Server:
    """Fake node that logs `line` for each request of negative size. Its clock is `ahead` of this machine's."""

    def __init__(self, log: Path, line: str) -> None:
        self.ahead = timedelta()
        self._log = log
        self._line = line
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with link:
                if int.from_bytes(link.recv(4), "big", signed=True) < 0:
                    stamp = (datetime.now(UTC) + self.ahead).isoformat("T", "milliseconds")[:23]
                    with self._log.open("a") as log:
                        log.write(f"[{stamp}] WARN {self._line}\njava.lang.Exception: trace\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture(
    params=[
        "[SocketServer id=1] Unexpected error from /127.0.0.1 (channelId=1); closing connection (Selector)",
        "Close of session 0x0 (NIOServerCnxn)",
    ]
)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    log = tmp_path / "server.log"
    log.write_text("[2001-01-01T00:00:00.000] WARN Unexpected error from an old one (Selector)\n")
    made = Server(log, request.param)
    yield made
    made.close()


def test_it_is_read_from_what_the_node_logs(server: Server, tmp_path: Path) -> None:
    clock = NodeClock(tmp_path / "clock", tmp_path / "server.log", server.address)
    before = clock.read()
    assert abs(before.least) < 1 and abs(before.most) < 1
    server.ahead = timedelta(seconds=-90)
    moved = clock.read() - before
    assert moved.least <= -90 <= moved.most
    assert moved.near(-90, 45)
    assert not moved.near(0, 45)


def test_a_blurred_reading_is_near_nothing() -> None:
    assert ClockReading(-1, 1).near(0, 2)
    assert not ClockReading(-1, 1.1).near(0, 2)
    assert not ClockReading(0.5, 1).near(0, 2)


def test_a_process_takes_its_wall_clock_from_the_file_and_no_other_clock(tmp_path: Path) -> None:
    clock = NodeClock(tmp_path / "clock", tmp_path / "log", Address("127.0.0.1", 1))
    clock.shift(0.0)
    words = "import time; input(); print(time.time(), time.monotonic(), flush=True); " * 3
    with subprocess.Popen(
        [sys.executable, "-c", words],
        env={**os.environ, **clocks.preload(clock.file)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as told:
        assert told.stdin is not None and told.stdout is not None
        for shift in (3600.0, -1.5, 0.0):
            clock.shift(shift)
            before = time.time() + shift, time.monotonic()
            told.stdin.write("\n")
            told.stdin.flush()
            wall, monotonic = map(float, told.stdout.readline().split())
            assert before[0] - 0.01 <= wall <= time.time() + shift + 0.01
            assert before[1] <= monotonic <= time.monotonic()


def test_without_a_compiler_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for backend in ("process", "docker"):
        with pytest.raises(MissingTool, match=r"a C compiler is missing \(.*apt-get install gcc"):
            backends.prepare(backend, frozenset({Need.CLOCKS}), ClusterSpec())
