"""Helpers of the tests with real brokers: run an experiment, produce records, wait for leaders and ISRs."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from ackproof.base.wait import wait_until
from ackproof.cli.main import main_code
from ackproof.cluster.admin import features
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.queries import PartitionState
from ackproof.experiment.kafka import METADATA, features_of
from ackproof.rundir.layout import BatchDir
from ackproof.rundir.partition import TopicPartition


def run_experiment(folder: Path, text: str) -> tuple[BatchDir, str]:
    """Run an experiment by the command `ackproof run`; return its batch and the command's output. The exit code is not
    checked."""
    file = folder / "experiment.yaml"
    file.write_text(text, encoding="utf-8")
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        main_code(["run", str(file), "--out", str(folder / "runs")])
    return BatchDir((folder / "runs" / "latest").resolve()), output.getvalue()


def produce(cluster: ProcessCluster, topic: str, count: int, *, acks: str = "all", partition: int = 0) -> int:
    """Send records and return how many were acknowledged within 15 s."""
    acked = 0

    def delivered(error: KafkaError | None, _: Message) -> None:
        nonlocal acked
        acked += error is None

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "log_level": 0,
            "topic.metadata.refresh.interval.ms": 100,
            "message.timeout.ms": 15_000,
        }
    )
    for i in range(count):
        producer.produce(topic, str(i).encode(), partition=partition, on_delivery=delivered)
    producer.flush(20)
    return acked


def partition_of(cluster: ProcessCluster, topic: str, partition: int = 0) -> PartitionState:
    """Return the partition's state now; wait up to 10 s until a broker describes it."""
    place = TopicPartition(topic, partition)
    return wait_until(
        lambda: cluster.topic_state([topic]).get(place), what=f"{place} to be described", timeout_s=10
    )


def await_leader(cluster: ProcessCluster, topic: str, *, other_than: int, timeout_s: float = 15) -> int:
    """Wait until partition 0 of the topic has a leader other than `other_than`; return its id."""
    return wait_until(
        lambda: (leader := partition_of(cluster, topic).leader) > 0 and leader != other_than and leader,
        what=f"another leader than {other_than}",
        timeout_s=timeout_s,
        state=lambda: str(partition_of(cluster, topic)),
    )


def await_full_isr(cluster: ProcessCluster, topic: str, timeout_s: float = 20) -> None:
    """Wait until every partition of the topic has a leader and all replicas in sync."""
    wait_until(
        lambda: (
            (states := cluster.topic_state([topic]).values())
            and all(state.leader > 0 and set(state.isr) == set(state.replicas) for state in states)
        ),
        what=f"full ISRs of {topic}",
        timeout_s=timeout_s,
        state=lambda: str(list(cluster.topic_state([topic]).values())),
    )


def levels_in_force(cluster: ProcessCluster) -> dict[str, int]:
    """Return the feature levels that a broker says are in force. Assert that it supports the levels in the table of its
    release, kraft.version aside, and that metadata.version is in force at its highest level."""
    said = features(cluster.running_links()[1])
    known = dict(features_of(cluster.spec.kafka.version))
    assert {name: level for name, level in said.supported.items() if name != "kraft.version"} == known
    assert said.finalised[METADATA] == known[METADATA][1]
    return dict(said.finalised)
