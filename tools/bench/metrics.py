"""Benchmark of `observe: {metrics: true}`: CPU time of the brokers under load, and time until a cluster is up.

``python tools/bench/metrics.py [rounds]``. In each round two clusters of one controller and three brokers are started,
one after the other; one of them has exporters. Which one is first alternates. Then both get the same load at the same
time, and the cluster with exporters is scraped as in a run. CPU times of the brokers are read from /proc. In the first
seconds a JVM compiles the code that the scrapes use; for the time after that the bar (issue 18) is at most 3 % more
CPU."""

from __future__ import annotations

import secrets
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import psutil
from confluent_kafka import Consumer, Producer

from ackproof.base.processes import RunTag
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.install import Installation, install
from ackproof.experiment.backends import Need
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.observe.scraper import Scraper
from ackproof.provision.tools import exporter_jar
from ackproof.rundir.clock import RunClock
from ackproof.rundir.timeline import Timeline

BAR = 0.03
RATE, VALUE, PARTITIONS = 2000, b"x" * 100, 3
COMPILES_S, MEASURE_S = 30.0, 30.0
KINDS = ("without", "with")


class Load:
    """A producer of records with acks=all at a fixed rate, and a reader of these records."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.sent = 0
        self._producer = Producer({**settings, "acks": "all", "linger.ms": 5})
        self._consumer = Consumer({**settings, "group.id": "bench", "auto.offset.reset": "earliest"})
        self._consumer.subscribe(["t"])
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._send, self._read)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._producer.flush(10)
        self._consumer.close()

    def _send(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(0.01):
            while self.sent < (time.monotonic() - began) * RATE:
                self._producer.produce("t", VALUE, partition=self.sent % PARTITIONS)
                self.sent += 1
            self._producer.poll(0)

    def _read(self) -> None:
        while not self._stop.is_set():
            self._consumer.consume(500, 0.2)


def cpu_s(cluster: ProcessCluster) -> float:
    """Return user plus system time of all brokers so far, in seconds."""
    pids = [node.pid for node in cluster.brokers()]
    times = [psutil.Process(pid).cpu_times() for pid in pids if pid is not None]
    return sum(one.user + one.system for one in times)


def one_round(
    installed: Installation, folder: Path, order: tuple[str, ...]
) -> dict[str, tuple[float, float, float, float]]:
    """Start a cluster of each kind in this `order`, load both, and return four figures by kind: seconds until it was
    up; CPU seconds of its brokers until then; their CPU seconds per second in the first 30 s of load; the same in the
    30 s after that."""
    with ExitStack() as stack:
        clusters: dict[str, ProcessCluster] = {}
        up: dict[str, tuple[float, float]] = {}
        for kind in order:
            tag = RunTag(secrets.token_hex(8), folder, folder)
            needs = frozenset({Need.METRICS}) if kind == "with" else frozenset()
            cluster = ProcessCluster(
                ClusterSpec(), folder / kind / "nodes", tag, lambda _: None, installed=installed, needs=needs
            )
            clusters[kind] = cluster
            stack.callback(cluster.remove_data)
            stack.enter_context(cluster)
            began = time.perf_counter()
            cluster.start()
            up[kind] = time.perf_counter() - began, cpu_s(cluster)
            cluster.create_topics({"t": TopicSpec(partitions=PARTITIONS)})
        loads = {kind: stack.enter_context(Load(clusters[kind].bootstrap)) for kind in order}
        timeline = stack.enter_context(Timeline(folder / "timeline.jsonl", RunClock.start()))
        scraper = Scraper(clusters["with"], folder / "metrics.parquet", timeline)
        stack.callback(scraper.stop)
        scraper.start()
        began = {kind: cpu_s(clusters[kind]) for kind in order}
        time.sleep(COMPILES_S)
        before = {kind: (cpu_s(clusters[kind]), loads[kind].sent) for kind in order}
        time.sleep(MEASURE_S)
        after = {kind: (cpu_s(clusters[kind]), loads[kind].sent) for kind in order}
    sent = {kind: after[kind][1] - before[kind][1] for kind in order}
    assert max(sent.values()) < 1.01 * min(sent.values()), f"not the same load: {sent}"
    return {
        kind: (
            *up[kind],
            (before[kind][0] - began[kind]) / COMPILES_S,
            (after[kind][0] - before[kind][0]) / MEASURE_S,
        )
        for kind in order
    }


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    installed = install(ClusterSpec().kafka)
    exporter_jar()
    ratios: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory(prefix="ackproof-metrics-") as name:
        for number in range(rounds):
            folder = Path(name) / str(number)
            folder.mkdir()
            took = one_round(installed, folder, KINDS if number % 2 == 0 else KINDS[::-1])
            for kind, (up_s, up_cpu, first, behind) in took.items():
                print(
                    f"{kind:8} up in {up_s:5.2f} s ({up_cpu:5.2f} s of processor), under load {first * 100:5.2f} % "
                    f"of a processor, then {behind * 100:5.2f} %",
                    flush=True,
                )
            ratios.append(
                tuple(one / other for one, other in zip(took["with"], took["without"], strict=True))
            )
    for number, what in enumerate(
        ("time until up", "processor until up", "processor at first", "processor then")
    ):
        values = [one[number] for one in ratios]
        print(f"{what:20} {median(values) - 1:+.1%} ({min(values) - 1:+.1%} to {max(values) - 1:+.1%})")
    print(f"bar {BAR:+.0%}, {rounds} rounds, load average {psutil.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
