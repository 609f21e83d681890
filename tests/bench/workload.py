"""The rates of a producer with its ledger against a bare one, and of a reader against bare consume, on real brokers.

``python tests/bench/workload.py [rounds]``. Both sides in turn, each a process of its own with the same settings of
librdkafka; the bars (issue 4): producer ≥ 0.7, reader with decoding, checksum and ledger ≥ 0.5.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

import pyarrow.compute as pc

from ackproof.cluster.process import ProcessCluster
from ackproof.plan.spec import ClusterSpec, ProducerSpec, TopicSpec, WorkloadSpec
from ackproof.processes import RunTag
from ackproof.rundir.clock import RunClock
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import END, read_parts
from ackproof.rundir.payload_bulk import BulkEncoder
from ackproof.rundir.schema import CONSUMED, PRODUCED
from ackproof.workload.clients import Workload
from ackproof.workload.config import producer_config, reader_config
from ackproof.workload.final_read import End, FinalReadOrder, final_read
from ackproof.workload.settings import ConfigValue, Place

TOPICS = {"orders": TopicSpec(partitions=6)}
PLACES = tuple(Place("orders", number) for number in range(6))
LOAD_S = 3.0
VALUE = 100


@dataclass(frozen=True)
class Bench:
    """Where it is measured."""

    bootstrap: str
    folder: Path

    def case(self) -> tuple[CaseDir, RunClock, RunTag]:
        run = CaseDir(self.folder / secrets.token_hex(4))
        run.path.mkdir(parents=True)
        return run, RunClock.start(), RunTag(secrets.token_hex(8), self.folder, run.path)

    def bare(self, what: str, config: dict[str, ConfigValue]) -> float:
        """Records per second of a process that does nothing but produce, or consume."""
        words = [sys.executable, __file__, what, json.dumps(config)]
        return float(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)

    def producer(self, spec: ProducerSpec) -> float:
        """Records per second, from the first send to the last acknowledgement, as the ledger has it."""
        run, clock, tag = self.case()
        load = WorkloadSpec(producers=spec)
        workload = Workload(load, TOPICS, self.bootstrap, run, clock, tag)
        workload.start()
        time.sleep(LOAD_S)
        workload.stop()
        rows = read_parts(run.produced, PRODUCED)
        assert pc.sum(rows["outcome"]).as_py() == 0, "only acks"
        span_ns = pc.max(rows["done_ns"]).as_py() - pc.min(rows["sent_ns"]).as_py()
        return rows.num_rows / span_ns * 1e9

    def reader(self, ends: dict[Place, int]) -> float:
        """Records per second, from the first batch to the closed ledger."""
        run, clock, tag = self.case()

        class Known:
            def look(self, places: object) -> dict[Place, End]:
                return {place: End(1, 0, (1, 2, 3), 0, end, end, end) for place, end in ends.items()}

        order = FinalReadOrder(
            places=PLACES, isr_sizes={"orders": 3}, reader=0, bootstrap=self.bootstrap, settle_s=5.0
        )
        result = final_read(order, Known(), run, clock, tag)
        assert result.complete, result.reasons
        rows = read_parts(run.consumed, CONSUMED)
        end_ns = (run.consumed / "client=f0" / END).stat().st_mtime_ns - clock.wall_ns
        return rows.num_rows / (end_ns - pc.min(rows["read_ns"]).as_py()) * 1e9


def bare_produce(config: dict[str, ConfigValue]) -> float:
    """Produce the same records without a ledger: no journal, no delivery callback, no counters."""
    from confluent_kafka import Producer

    producer = Producer(config)
    produce, encode = producer.produce, BulkEncoder("00" * 8, 0, PLACES, 0, VALUE)
    count, began = 0, time.monotonic()
    while time.monotonic() - began < LOAD_S:
        for value, (topic, partition) in zip(encode.values(count, 510), cycle(PLACES), strict=False):
            while True:
                try:
                    produce(topic, value, None, partition)
                    break
                except BufferError:
                    producer.poll(0.01)
        count += 510
        producer.poll(0)
    producer.flush()
    return count / (time.monotonic() - began)


def bare_consume(config: dict[str, ConfigValue]) -> float:
    """Consume all partitions to their ends, without looking at the records."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(config)
    ends = [consumer.get_watermark_offsets(TopicPartition(*place), timeout=10)[1] for place in PLACES]
    consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in PLACES])
    total, count, began = sum(ends), 0, 0.0
    while count < total:
        messages = consumer.consume(1000, 0.05)
        if messages and not count:
            began = time.monotonic()
        count += len(messages)
    took = time.monotonic() - began
    consumer.close()
    return total / took


def ends_of(bootstrap: str) -> dict[Place, int]:
    """The log ends of all partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(reader_config({}, "read_uncommitted", bootstrap, "ends"))
    ends = {place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=10)[1] for place in PLACES}
    consumer.close()
    return ends


def show(name: str, ours: list[float], bare: list[float], bar: float) -> None:
    """One line of the table."""
    ratios = sorted(own / other for own, other in zip(ours, bare, strict=True))
    print(
        f"{name:28} {median(ours) / 1000:8.0f} k/s  bare {median(bare) / 1000:8.0f} k/s  "
        f"ratio {median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f}), bar {bar}  load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def measure(bench: Bench, rounds: int) -> None:
    """All measurements, side by side."""
    for name, spec in (
        ("producer acks=1", ProducerSpec(acks="1", value_size=VALUE)),
        ("producer acks=all", ProducerSpec(acks="all", value_size=VALUE)),
        ("producer acks=0", ProducerSpec(acks="0", value_size=VALUE)),
    ):
        ours, bare = [], []
        for _ in range(rounds):
            bare.append(bench.bare("produce", producer_config(spec, bench.bootstrap, "bare")))
            ours.append(bench.producer(spec))
        show(name, ours, bare, 0.7)
    ours, bare = [], []
    for _ in range(rounds):
        config = reader_config({}, "read_uncommitted", bench.bootstrap, "bare", final=False)
        bare.append(bench.bare("consume", config))
        ours.append(bench.reader(ends_of(bench.bootstrap)))
    show("reader", ours, bare, 0.5)


def main() -> None:
    """Start a cluster, measure, end it."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster is ended then too
    with tempfile.TemporaryDirectory(prefix="ackproof-bench-") as name:
        folder = Path(name)
        tag = RunTag(secrets.token_hex(8), folder, folder)
        cluster = ProcessCluster(ClusterSpec(), folder / "nodes", tag, lambda event: None)
        try:
            cluster.start()
            cluster.create_topics(TOPICS)
            measure(Bench(cluster.bootstrap, folder), rounds)
        finally:
            cluster.stop()


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] in ("produce", "consume"):
        run = bare_produce if sys.argv[1] == "produce" else bare_consume
        print(run(json.loads(sys.argv[2])))
    else:
        main()
