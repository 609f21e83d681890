"""Tests of liveness classes on real brokers and clients: planted failures are named and judged, healthy runs have
none."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from ackproof.base.wait import wait_until
from ackproof.cluster.install import Installation
from ackproof.run.case import CaseRun
from ackproof.run.phases import Phase
from ackproof.rundir.observed import RecoveryFile
from ackproof.rundir.outcome import Verdict

from .conftest import NEWEST
from .helpers import partition_of
from .lies.on_brokers import cluster_of
from .lies.stage import Judged, Stage

pytestmark = pytest.mark.cluster
HEALTHY = """\
cluster: {brokers: 1, combined: true}
topics: {orders: {partitions: 2, replication_factor: 1}}
workload:
  producers: {count: 2, acks: all, idempotence: true, rate: 400/s, delivery_timeout: 3s}
  consumers: {live: 1}
  duration: 1s
"""
STUCK = "evidence: {recovery: {stuck-producer: 4s, stuck-reader: 4s}}\n"
FAULT = """\
faults:
  - pause_client: {client: producer(0)}
    at: 200ms
    for: 300ms
"""
LOSES_A_LOG_DIR = """\
cluster: {brokers: 1, controllers: 1, log_dirs: 2}
topics: {orders: {partitions: 1, replication_factor: 1}}
workload:
  producers: {count: 1, acks: all, rate: 400/s, delivery_timeout: 3s}
  duration: 1s
evidence: {recovery: {leaderless: 4s}}
"""
HANGING = """\
cluster:
  brokers: 3
  controllers: 1
  config:
    broker.session.timeout.ms: 2000
    replica.lag.time.max.ms: 1500
    unclean.leader.election.interval.ms: 1000
    transaction.abort.timed.out.transaction.cleanup.interval.ms: 1000
topics:
  orders:
    # the producer that takes its place must not come to orders/0 again: that would end the transaction
    assignment: [[1, 2], [1, 2], [3, 1], [3, 1], [3, 1], [3, 1], [3, 1], [3, 1], [3, 1], [3, 1], [3, 1], [3, 1]]
    config: {min.insync.replicas: 1, unclean.leader.election.enable: "true"}
workload:
  producers: {count: 1, acks: all, idempotence: true, rate: 1/s, transaction_size: 2, transaction_timeout: 5s}
  duration: 20s
faults:
  - pause: {target: broker(2)}          # between the first record of a transaction and its marker
    when: acked(orders/0) >= 2
    for: 12s
  - kill_client: {client: producer(0)}  # once that transaction is over, and the next has begun elsewhere
    when: acked(orders/2) >= 2
  - kill: {target: broker(1)}
    after: {fault: 2, by: 100ms}
    restart_after: 12s
evidence: {ack_after_healing: false, recovery: {hanging-transaction: 12s}}
seed: 22  # its producer begins with partition 0
"""


@pytest.fixture(scope="module")
def stage(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    yield Stage(tmp_path_factory.mktemp("liveness"), installs(NEWEST))


def judged(stage: Stage, name: str) -> Judged:
    return stage.judge()[name]


def starved(one: Judged) -> bool:
    """Return True if the machine was too slow to blame Kafka. Assert that the verdict is then INCONCLUSIVE."""
    open_ones = [each for each in one.verdict.classes if each.forbidden is None and "starved" in each.why]
    assert not open_ones or one.verdict.verdict is Verdict.INCONCLUSIVE
    return bool(open_ones)


def _stop(client: str) -> Callable[[CaseRun], None]:
    """Return a hook that stops a client with SIGSTOP, without the harness's knowledge."""

    def stop(running: CaseRun) -> None:
        assert running.workload is not None
        os.kill(running.workload.running()[client].pid, signal.SIGSTOP)

    return stop


def _lose_log_dir(running: CaseRun) -> None:
    """Make the log dir of orders/0 fail without a fault of the plan: a folder takes the place of its checkpoint
    file."""
    cluster = cluster_of(running)
    for path in cluster.node(1).disk.log_dirs:
        if (path / "orders-0").exists():
            checkpoint = path / "replication-offset-checkpoint"
            checkpoint.unlink(missing_ok=True)
            (checkpoint / "in the way").mkdir(parents=True)
    wait_until(
        lambda: partition_of(cluster, "orders").leader < 0,
        what="the broker to give up its log dir",
        timeout_s=60,
    )


@pytest.mark.nightly  # the next one stands still with every push
def test_a_partition_whose_only_log_dir_is_lost(stage: Stage) -> None:
    stage.play("leaderless", LOSES_A_LOG_DIR, {Phase.HEAL: _lose_log_dir})
    one = judged(stage, "leaderless")
    assert one.audit.counts["leaderless"] == 1
    if starved(one):
        return
    assert one.verdict.verdict is Verdict.FAIL, one.reasons
    assert (
        "leaderless: 1 leaderless partition. Forbidden: no fault of this run keeps all its in-sync replicas from "
        "leading" in one.reasons
    )
    assert "brokers [1] run, and have it in none of their log dirs" in one.reasons


def test_a_producer_and_a_reader_that_stand_still(stage: Stage) -> None:
    def both(running: CaseRun) -> None:
        _stop("p1")(running)
        _stop("r0")(running)

    stage.play("stopped", HEALTHY + FAULT + STUCK, {Phase.HEAL: both})
    one = judged(stage, "stopped")
    assert one.audit.counts["stuck-producer"] == one.audit.counts["stuck-reader"] == 1
    if starved(one):
        return
    assert one.verdict.verdict is Verdict.FAIL, one.reasons
    assert (
        "stuck-producer: 1 stuck producer. Forbidden: a producer is answered where another one is, and where its "
        "records are committed, within 4 s: producer p1" in one.reasons
    )
    assert "stuck-reader: 1" in one.reasons
    assert one.reasons.count("its process stands still (SIGSTOP)") == 2


def test_a_run_in_health_names_nothing_and_waits_for_nothing(stage: Stage) -> None:
    stage.play("healthy", HEALTHY + FAULT)
    one = judged(stage, "healthy")
    assert one.verdict.verdict is Verdict.PASS, one.reasons
    seen = RecoveryFile.load(one.run.recovery)
    assert (seen.unrecovered, seen.undecided) == ((), ())
    assert seen.waited_s < 5


THREE_CONTROLLERS = """\
cluster: {brokers: 1, controllers: 3}
topics: {orders: {partitions: 1, replication_factor: 1}}
workload:
  producers: {count: 1, acks: all, rate: 400/s, delivery_timeout: 3s}
  duration: 1s
evidence: {recovery: {no-controller: 4s}}
"""


@pytest.fixture
def cut_controllers() -> Iterator[Callable[[CaseRun], None]]:
    """Hook that drops every packet to and from the controllers' ports, by a table of nftables that the harness does not
    know."""
    table = ["inet", "ackproof_planted"]

    def cut(running: CaseRun) -> None:
        cluster = cluster_of(running)
        files = [node.files.properties.read_text("utf-8") for node in cluster.controllers()]
        ends = {end for text in files for end in re.findall(r"CONTROLLER://([0-9.]+):(\d+)", text)}
        assert len(ends) == 3, files
        rules = "\n".join(
            f"ip {side}addr {address} tcp {side}port {port} drop" for address, port in ends for side in "sd"
        )
        chain = f"chain out {{\ntype filter hook output priority 0\n{rules}\n}}"
        subprocess.run(["nft", f"table {' '.join(table)} {{\n{chain}\n}}"], check=True)

    yield cut
    subprocess.run(["nft", "delete", "table", *table], check=False)


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="tables of rules need root and nft")
def test_controllers_that_all_run_and_elect_none(
    stage: Stage, cut_controllers: Callable[[CaseRun], None]
) -> None:
    stage.play("no-controller", THREE_CONTROLLERS, {Phase.HEAL: cut_controllers})
    one = judged(stage, "no-controller")
    assert one.audit.counts["no-controller"] == 1
    if starved(one):
        return
    assert one.verdict.verdict is Verdict.FAIL, one.reasons
    assert (
        "no-controller: 1 cluster without a controller. Forbidden: a majority of the controllers elects one"
        in one.reasons
    )
    assert "controllers [101, 102, 103] of [101, 102, 103] run, and none is active" in one.reasons


@pytest.mark.nightly
def test_a_transaction_whose_marker_an_unclean_election_took(stage: Stage) -> None:
    stage.play("hanging", HANGING)
    one = judged(stage, "hanging")
    assert one.audit.counts["hanging-transaction"] >= 1, RecoveryFile.load(one.run.recovery)
    (said,) = [each for each in one.verdict.classes if each.anomaly == "hanging-transaction"]
    assert said.forbidden is False
    assert "KAFKA-20716" in said.why
