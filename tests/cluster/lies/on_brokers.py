"""Lies planted during a run on its brokers and clients, without the harness's knowledge."""

from __future__ import annotations

import os
import signal

from confluent_kafka import Producer

from ackproof.base.processes import find_children
from ackproof.base.wait import wait_until
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.protocol import NodeState
from ackproof.run.case import CaseRun
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.payload import encoder

from .log_files import cut_tail

CUT = 30
STRANGER = 100
"""Seq of a record of producer 0 that another client writes again."""
FIRST = 1
"""Partition (0 or 1) to which producer 0 sends seq 0; it follows from the seed of the stage's cases."""
FROZEN = 100
"""Number of sends without an outcome that must be reached before the producer is killed."""


def cluster_of(running: CaseRun) -> ProcessCluster:
    assert isinstance(running.cluster, ProcessCluster)
    return running.cluster


def cut_all_replicas(running: CaseRun) -> None:
    """Shut all brokers down, cut the same tail off each log of orders/0, and start them again. The file `cut` of the
    run has the new log end and the number of records."""
    brokers = cluster_of(running).brokers()
    for broker in brokers:
        broker.terminate()
    wait_until(
        lambda: all(broker.state() is NodeState.GONE for broker in brokers),
        what="all brokers to be gone",
        timeout_s=30,
    )
    cuts = {cut_tail(broker.files.data, "orders-0", CUT) for broker in brokers}
    ((end, count),) = cuts
    (running.run.path / "cut").write_text(f"{end} {count}")
    for broker in brokers:
        broker.start()
    for broker in brokers:
        broker.await_ready(60)


def send_again(running: CaseRun, *, elsewhere: bool = False, damaged: bool = False) -> None:
    """Write a record of producer 0 once more from another client. `elsewhere`: True for the other partition. `damaged`:
    True to flip a bit of it."""
    run_id = CaseFile.load(running.run.case_json).run_id
    own = (STRANGER + FIRST) % 2
    value = bytearray(encoder(run_id, 0, "orders", own, 100)(STRANGER))
    value[-10] ^= damaged
    producer = Producer({"bootstrap.servers": cluster_of(running).bootstrap, "log_level": 0})
    producer.produce("orders", bytes(value), partition=1 - own if elsewhere else own)
    assert producer.flush(10) == 0


def send_once_more(running: CaseRun) -> None:
    """Wait until a record of producer 0 is acknowledged; then write it three times more: unchanged, damaged, and to the
    other partition."""
    workload = running.workload
    assert workload is not None
    counters = workload.counters("p0")
    # Outcomes of two partitions come in batches, not strictly by seq: twice as many leave no doubt.
    wait_until(lambda: counters.total() > 2 * STRANGER, what="the original to be acknowledged", timeout_s=10)
    send_again(running)
    send_again(running, damaged=True)
    send_again(running, elsewhere=True)


def kill_node_2(running: CaseRun) -> None:
    node = cluster_of(running).node(2)
    node.kill()
    wait_until(lambda: node.state() is NodeState.GONE, what="node 2 to be gone", timeout_s=10)


def kill_the_follower(running: CaseRun) -> None:
    (leader, *_) = {state.leader for state in cluster_of(running).topic_state(["orders"]).values()}
    cluster_of(running).node(2 if leader == 1 else 1).kill()


def kill_a_producer_between_send_and_outcome(running: CaseRun) -> None:
    """Pause the broker, so that sends get no outcome; then kill the producer with SIGKILL, and resume the broker."""
    workload, node = running.workload, cluster_of(running).node(1)
    assert workload is not None
    node.pause()
    wait_until(lambda: node.state() is NodeState.STOPPED, what="the broker to stand still", timeout_s=5)
    counters = workload.counters("p0")
    wait_until(
        lambda: counters.sent >= counters.total() + FROZEN,
        what="sends without outcome",
        timeout_s=10,
    )
    run_id = CaseFile.load(running.run.case_json).run_id
    (child,) = [child for child in find_children(run_id) if child.role == "p0"]
    os.kill(child.pid, signal.SIGKILL)
    node.resume()
    node.await_ready(30)
