"""Benchmark of ackproof's producers and readers against bare ones, on real brokers: records per second.

``python tools/bench/workload.py [rounds] [producer|java|reader …]``; by default producer and reader. Both sides take
turns, each as a process of its own with the same client settings; the median of the rounds counts. Each load goes to an
empty topic. Logs and ledgers are in memory (/dev/shm) if there is room, so that no shared disk decides; TMPDIR sets
another folder.

The bars (issue 4): producer ≥ 0.7, reader with decoding, checksum and ledger ≥ 0.5. "reader, strangers" reads records
of another run, as in a topic that others write to as well. "java" is the producer on the Java client, against a program
that only sends (BareProducer.java); bar 0.9 (issue 43)."""

from __future__ import annotations

import gc
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import pyarrow.compute as pc
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.clients.contract import ConfigValue
from ackproof.clients.final_read import End, final_read
from ackproof.clients.final_readers import FinalReadOrder
from ackproof.clients.java import adapter as java_adapter
from ackproof.clients.java.runtime import MAIN, client_command
from ackproof.clients.librdkafka.adapter import producer_config, reader_config
from ackproof.clients.workload import Workload
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.experiment.client import JAVA, ClientChoice
from ackproof.experiment.kafka import DEFAULT
from ackproof.experiment.spec import ClusterSpec, ProducerSpec, TopicSpec, WorkloadSpec
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import END
from ackproof.rundir.payload_bulk import BulkEncoder
from ackproof.rundir.schema import CONSUMED, PRODUCED
from ackproof.rundir.timeline import Timeline

TOPICS = {"orders": TopicSpec(partitions=6, config={"file.delete.delay.ms": 0})}
PLACES = tuple(TopicPartition("orders", number) for number in range(6))
LOAD_S = 3.0
JAVA_LOAD_S = 12.0
VALUE = 100
READ = 3_000_000
"""Number of records that a reader reads: enough for its start and end not to matter."""
BARE_JAVA = Path(__file__).with_name("BareProducer.java")
WARM_UP = 1_000_000
"""Number of records that a Java producer sends before it is measured: by then its code is compiled."""
MEMORY, ROOM = Path("/dev/shm"), 8 << 30
RUN, OTHER_RUN = "00" * 8, "11" * 8


class Cost(NamedTuple):
    """Cost of producing. `rate`: records per second. `cpu_us`: CPU time per record, in microseconds."""

    rate: float
    cpu_us: float


@dataclass(frozen=True)
class Bench:
    """The cluster on which everything is measured, and the folder for the runs' files."""

    cluster: ProcessCluster
    folder: Path

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def empty(self) -> None:
        """Delete the topic and create it again, so that the disk has no earlier records."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for deleted in admin.delete_topics(list(TOPICS)).values():
            deleted.result()
        wait_until(
            lambda: not admin.list_topics(timeout=10).topics.keys() & TOPICS.keys(),
            what="the topic to be gone",
            timeout_s=30,
        )
        self.cluster.create_topics(TOPICS)

    def case(self, run_id: str = RUN) -> tuple[CaseDir, RunClock, RunTag]:
        run = CaseDir(self.folder / secrets.token_hex(4))
        run.path.mkdir(parents=True)
        return run, RunClock.start(), RunTag(run_id, self.folder, run.path)

    def bare(self, what: str, config: dict[str, ConfigValue]) -> float:
        """Return the records per second of a process that only produces, or only consumes. `what`: `produce` or
        `consume`."""
        if what == "produce":
            self.empty()
        words = [sys.executable, __file__, f"bare-{what}", json.dumps(config)]
        return float(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)

    def bare_java(self, config: dict[str, ConfigValue]) -> Cost:
        """Return the cost of a Java program that only produces, with the flags and jars of the harness's Java
        client."""
        self.empty()
        settings = self.folder / "bare.properties"
        settings.write_text(
            "".join(f"{name}={value}\n" for name, value in {**config, "max.block.ms": 60_000}.items()),
            encoding="utf-8",
        )
        java = client_command("producer", settings, DEFAULT)
        own = java.index(MAIN)
        words = [*java[:own], str(BARE_JAVA), str(settings), str(JAVA_LOAD_S), str(VALUE), str(WARM_UP)]
        words += map(str, PLACES)
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        return Cost(*map(float, done.stdout.split()))

    def java(self, spec: ProducerSpec) -> Cost:
        """Return the cost of the harness's Java producer, measured after its warm-up."""
        self.empty()
        run, clock, tag = self.case()
        workload = Workload(
            WorkloadSpec(producers=spec), TOPICS, self.bootstrap, Timeline(run.timeline, clock), tag
        )
        workload.start()
        process = psutil.Process(workload.running()["p0"].pid)
        wait_until(lambda: workload.acked() > WARM_UP, what="compiled code", timeout_s=60)
        spent, acked, began = sum(process.cpu_times()[:2]), workload.acked(), time.monotonic()
        time.sleep(JAVA_LOAD_S)
        records, took = workload.acked() - acked, time.monotonic() - began
        spent = sum(process.cpu_times()[:2]) - spent
        workload.stop()
        return Cost(records / took, spent / records * 1e6)

    def load(self) -> None:
        """Add records until the topic has at least `READ`."""
        producer = Producer(producer_config(ProducerSpec(acks="1"), self.bootstrap, "load"))
        missing = READ - sum(ends_of(self.bootstrap).values())
        encode = BulkEncoder(RUN, 1, PLACES, 0, VALUE)
        for seq in range(0, missing, 510):
            for value, (topic, partition) in zip(encode.values(seq, 510), cycle(PLACES), strict=False):
                send(producer, topic, value, partition)
            producer.poll(0)
        producer.flush()

    def producer(self, spec: ProducerSpec) -> float:
        """Return the records per second of the harness's producer, from the first send to the last acknowledgement in
        its ledger."""
        self.empty()
        run, clock, tag = self.case()
        load = WorkloadSpec(producers=spec)
        workload = Workload(load, TOPICS, self.bootstrap, Timeline(run.timeline, clock), tag)
        workload.start()
        time.sleep(LOAD_S)
        workload.stop()
        rows = read_parts(run.produced, PRODUCED)
        assert pc.sum(rows["outcome"]).as_py() == 0, "only acks"
        span_ns = pc.max(rows["done_ns"]).as_py() - pc.min(rows["sent_ns"]).as_py()
        return rows.num_rows / span_ns * 1e9

    def reader(self, ends: dict[TopicPartition, int], run_id: str) -> float:
        """Return the records per second of the final reader, from its first batch to its closed ledger. `run_id`: the
        run whose records it expects."""
        run, clock, tag = self.case(run_id)

        def known(places: object) -> dict[TopicPartition, End]:
            return {place: End(1, 0, (1, 2, 3), 0, end, end, end) for place, end in ends.items()}

        order = FinalReadOrder(
            places=PLACES, isr_sizes={"orders": 3}, reader=0, bootstrap=self.bootstrap, settle_s=5.0
        )
        result = final_read(order, known, clock, tag)
        assert result.complete, result.reasons
        rows = read_parts(run.consumed, CONSUMED)
        assert pc.all(rows["intact"]).as_py()
        assert pc.all(pc.equal(pc.equal(rows["producer"], -1), run_id != RUN)).as_py()
        end_ns = (run.consumed / "client=f0" / END).stat().st_mtime_ns - clock.wall_ns
        return rows.num_rows / (end_ns - pc.min(rows["read_ns"]).as_py()) * 1e9


def send(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    """Produce one record; wait while the queue is full."""
    while True:
        try:
            return producer.produce(topic, value, None, partition)
        except BufferError:
            producer.poll(0.01)


def bare_produce(config: dict[str, ConfigValue]) -> float:
    """Produce the records of the harness by the same calls, without journal, delivery callback and counters; return
    records per second."""
    producer = Producer(config)
    offer, encode = producer.produce_batch, BulkEncoder(RUN, 0, PLACES, 0, VALUE)
    count, began = 0, time.monotonic()
    while time.monotonic() - began < LOAD_S:
        values = encode.values(count, 510)
        for nth, (topic, partition) in enumerate(PLACES):
            messages: list[dict[str, object]] = [{"value": value} for value in values[nth :: len(PLACES)]]
            while (taken := offer(topic, messages, partition)) < len(messages):
                messages = [{"value": message["value"]} for message in messages[taken:]]
                producer.poll(0.01)
        count += 510
        producer.poll(0)
    producer.flush()
    return count / (time.monotonic() - began)


def bare_consume(config: dict[str, ConfigValue]) -> float:
    """Consume all partitions to their ends without decoding the records; return records per second."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as ClientPartition

    consumer = Consumer(config)
    ends = [consumer.get_watermark_offsets(ClientPartition(*place), timeout=10)[1] for place in PLACES]
    consumer.assign([ClientPartition(place.topic, place.partition, 0) for place in PLACES])
    total, count, began = sum(ends), 0, 0.0
    while count < total:
        messages = consumer.consume(1000, 0.05)
        if messages and not count:
            began = time.monotonic()
        count += len(messages)
    took = time.monotonic() - began
    consumer.close()
    return total / took


def ends_of(bootstrap: str) -> dict[TopicPartition, int]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as ClientPartition

    consumer = Consumer(reader_config({}, "read_uncommitted", bootstrap, "ends"))
    ends = {place: consumer.get_watermark_offsets(ClientPartition(*place), timeout=10)[1] for place in PLACES}
    consumer.close()
    return ends


def show(name: str, ours: list[float], bare: list[float], bar: float) -> None:
    """Print one line: medians of both sides, the median and range of the ratios of the rounds, and the bar."""
    ratios = sorted(own / other for own, other in zip(ours, bare, strict=True))
    print(
        f"{name:28} {median(ours) / 1000:8.0f} k/s  bare {median(bare) / 1000:8.0f} k/s  "
        f"ratio {median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f}), bar {bar}  load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def side_by_side(
    name: str, rounds: int, ours: Callable[[], float], bare: Callable[[], float], bar: float
) -> None:
    """Measure both sides `rounds` times, alternately first, and print a line about them (`show`). `ours`, `bare`:
    return records per second. `bar`: least ratio, which is only printed."""
    rates: dict[Callable[[], float], list[float]] = {ours: [], bare: []}
    for number in range(rounds):
        for one in (bare, ours) if number % 2 == 0 else (ours, bare):
            rates[one].append(one())
    show(name, rates[ours], rates[bare], bar)


def measure(bench: Bench, rounds: int, what: Sequence[str]) -> None:
    """Run the measurements named in `what` (`producer`, `java`, `reader`), and print a line for each."""
    for acks in ("1", "all", "0") if "producer" in what else ():
        spec = ProducerSpec(acks=acks, value_size=VALUE)
        config = producer_config(spec, bench.bootstrap, "bare")
        side_by_side(
            f"producer acks={acks}",
            rounds,
            partial(bench.producer, spec),
            partial(bench.bare, "produce", config),
            0.7,
        )
    for acks in ("all", "1") if "java" in what else ():
        spec = ProducerSpec(acks=acks, value_size=VALUE, client=ClientChoice(JAVA))
        config = java_adapter.producer_config(spec, bench.bootstrap, "bare")
        costs: list[tuple[Cost, Cost]] = []
        for _ in range(rounds):
            bare = bench.bare_java(config)
            costs.append((bench.java(spec), bare))
        show(
            f"Java producer acks={acks}", [own.rate for own, _ in costs], [one.rate for _, one in costs], 0.9
        )
        own_us, bare_us = (median(side.cpu_us for side in sides) for sides in zip(*costs, strict=True))
        print(
            f"  processor: {own_us:.1f} us a record, bare {bare_us:.1f} us: {bare_us / own_us:.2f}",
            flush=True,
        )
    if "reader" in what:
        bench.load()
        ends = ends_of(bench.bootstrap)
        config = reader_config({}, "read_uncommitted", bench.bootstrap, "bare", final=False)
        for name, run_id in (("reader", RUN), ("reader, strangers", OTHER_RUN)):
            side_by_side(
                name, rounds, partial(bench.reader, ends, run_id), partial(bench.bare, "consume", config), 0.5
            )


def enough(place: Path) -> bool:
    """Return True if more than `ROOM` bytes are free both in the folder and in the machine's memory, which a folder in
    /dev/shm uses. False if the folder does not exist."""
    return place.is_dir() and min(shutil.disk_usage(place).free, psutil.virtual_memory().available) > ROOM


def main() -> None:
    numbers = [word for word in sys.argv[1:] if word.isdigit()]
    what = [word for word in sys.argv[1:] if not word.isdigit()] or ["producer", "reader"]
    rounds = int(numbers[0]) if numbers else 5
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster is ended then too
    memory = MEMORY if "TMPDIR" not in os.environ and enough(MEMORY) else None
    with tempfile.TemporaryDirectory(prefix="ackproof-bench-", dir=memory) as name:
        folder = Path(name)
        tag = RunTag(secrets.token_hex(8), folder, folder)
        cluster = ProcessCluster(ClusterSpec(), folder / "nodes", tag, lambda event: None)
        try:
            cluster.start()
            cluster.create_topics(TOPICS)
            measure(Bench(cluster, folder), rounds, what)
        finally:
            cluster.stop()


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1].startswith("bare-"):
        gc.disable()  # as our own clients do
        run = bare_produce if sys.argv[1] == "bare-produce" else bare_consume
        print(run(json.loads(sys.argv[2])))
    else:
        main()
