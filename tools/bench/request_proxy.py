"""Benchmark of the request proxy against Toxiproxy and no proxy: `python tools/bench/request_proxy.py`.

A client and a server that answers each frame in order, as a broker does, talk over loopback. Three figures are
measured. Throughput: MB/s of Produce requests of 1 MB with five in flight. Latency: median round trip of a small
request. Latency under load: the same while another link through the same proxy carries Produce requests of 50 KB at
up to 20 MB/s. The four paths take turns, so that other load on the machine affects all alike; the table has the
medians of the rounds."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ackproof.base.processes import RunTag
from ackproof.network.addresses import Address
from ackproof.network.requests.links import RequestProxy
from ackproof.network.requests.rules import FrameSide, Rule, RuleKind
from ackproof.network.toxiproxy import ProxyRoute, ProxyServer
from ackproof.provision.tools import toxiproxy_server

HOST: Final = "127.0.0.1"
LARGE: Final = 1 << 20
IN_FLIGHT: Final = 5
METADATA: Final = 3
BESIDE: Final = 20e6


def frame(api: int, correlation: int, body: bytes) -> bytes:
    """Return a request of version 3 with its header and length prefix. `api`: the API key."""
    head = struct.pack(">hhih", api, 3, correlation, 5) + b"bench"
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce(correlation: int, size: int) -> bytes:
    """Return a Produce request with acks=all and `size` bytes of filler in place of records."""
    return frame(0, correlation, struct.pack(">hh", -1, -1) + bytes(size))


def serve(port: int) -> None:
    """Answer every frame on a port with its correlation id and 40 bytes; never returns."""
    listening = socket.create_server((HOST, port))
    while True:
        line, _ = listening.accept()
        threading.Thread(target=_answer, args=(line,), daemon=True).start()


def _answer(line: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        _answer_all(line)


def _answer_all(line: socket.socket) -> None:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(LARGE + 64))
    while True:
        have = 0
        need = 12
        while have < need:
            count = line.recv_into(buffer[have:need] if have >= 12 else buffer[have:12])
            if not count:
                return
            have += count
            if have >= 12:
                need = struct.unpack_from(">i", buffer)[0] + 4
        (correlation,) = struct.unpack_from(">i", buffer, 8)
        line.sendall(struct.pack(">ii", 44, correlation) + bytes(40))


def throughput(address: Address, seconds: float) -> float:
    """Return the MB/s of Produce requests of 1 MB to an address, five in flight, measured for this many seconds."""
    sent = 0
    data = produce(7, LARGE)
    with socket.create_connection(address) as line:
        began = time.perf_counter()
        open_ = 0
        while time.perf_counter() - began < seconds:
            while open_ < IN_FLIGHT:
                line.sendall(data)
                open_ += 1
            _exactly(line, 48)
            open_ -= 1
            sent += len(data)
        return sent / (time.perf_counter() - began) / 1e6


def latency(address: Address, rounds: int) -> list[float]:
    """Return the round trips in ms of `rounds` requests of 200 bytes."""
    took = []
    with socket.create_connection(address) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(rounds):
            data = frame(METADATA, number, bytes(180))
            began = time.perf_counter()
            line.sendall(data)
            _exactly(line, 48)
            took.append((time.perf_counter() - began) * 1e3)
    return took


@contextmanager
def busy(address: Address) -> Iterator[None]:
    """While the block lasts, send at most `BESIDE` bytes per second to an address: requests of 50 KB, each after the
    answer to the one before."""
    over = threading.Event()

    def send() -> None:
        data = produce(7, 50_000)
        with socket.create_connection(address) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not over.wait(len(data) / BESIDE):
                line.sendall(data)
                _exactly(line, 48)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _exactly(line: socket.socket, size: int) -> None:
    while size:
        data = line.recv(size)
        if not data:
            raise ConnectionError("closed")
        size -= len(data)


@contextmanager
def roads(folder: Path) -> Iterator[dict[str, Address]]:
    """Start the server and the proxies; yield the addresses that lead to the server, by name of the path."""
    ports = _free_ports(7)
    node = Address(HOST, ports[0])
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(node.port,), daemon=True)
    server.start()
    tag = RunTag("bench", folder, folder)
    with ExitStack() as stack:
        stack.callback(server.kill)
        spare = stack.enter_context(socket.socket())
        toxiproxy = ProxyServer(toxiproxy_server(), Address(HOST, ports[1]), folder=folder, tag=tag)
        stack.callback(toxiproxy.end)
        toxiproxy.start(lease_descriptor=spare.fileno())
        toxiproxy.api.add([ProxyRoute("t", Address(HOST, ports[2]), node)])
        ours = RequestProxy(Address(HOST, ports[3]), folder=folder, tag=tag)
        stack.callback(ours.end)
        ours.start(lease_descriptor=spare.fileno())
        ours.add(
            [ProxyRoute("o", Address(HOST, ports[4]), node), ProxyRoute("r", Address(HOST, ports[5]), node)]
        )
        ours.lay(Rule("fetches", RuleKind.HOLD, FrameSide.REQUEST, 1, ("r",)))
        yield {
            "no proxy": node,
            "Toxiproxy": Address(HOST, ports[2]),
            "requests": Address(HOST, ports[4]),
            "requests, with a rule for another API": Address(HOST, ports[5]),
        }


def _free_ports(count: int) -> list[int]:
    lines = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [int(line.getsockname()[1]) for line in lines]
    finally:
        for line in lines:
            line.close()


_OTHERS: Final = {
    "no proxy": "no proxy",
    "Toxiproxy": "Toxiproxy",
    "requests": "requests, with a rule for another API",
    "requests, with a rule for another API": "requests",
}
"""For each path on which latency is measured: the path that carries the load meanwhile. Both lead through the same
proxy."""


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--asks", type=int, default=3000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, roads(Path(folder)) as ways:
        rates: dict[str, list[float]] = {name: [] for name in ways}
        trips: dict[str, list[float]] = {name: [] for name in ways}
        beside: dict[str, list[float]] = {name: [] for name in ways}
        late: dict[str, list[float]] = {name: [] for name in ways}
        others = {name: ways[other] for name, other in _OTHERS.items()}
        time.sleep(1.0)
        for _ in range(given.rounds):
            for name, address in ways.items():
                rates[name].append(throughput(address, given.seconds))
                took = latency(address, given.asks)
                trips[name].append(statistics.median(took))
                late[name].append(statistics.quantiles(took, n=100)[98])
                with busy(others[name]):
                    beside[name].append(statistics.median(latency(address, given.asks // 3)))
        print("| | MB/s | round trip, median | added | p99 | beside a busy link |\n|---|---|---|---|---|---|")
        plain = statistics.median(trips["no proxy"])
        for name in ways:
            trip = statistics.median(trips[name])
            print(
                f"| {name} | {statistics.median(rates[name]):,.0f} | {trip:.3f} ms | {trip - plain:.3f} ms "
                f"| {statistics.median(late[name]):.3f} ms | {statistics.median(beside[name]):.3f} ms |"
            )


if __name__ == "__main__":
    main()
