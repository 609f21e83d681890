"""Benchmark: start of a cluster of one controller and three brokers, against the same four JVMs started by hand.

``python tools/bench/start.py [rounds]``. Measures the time from the first JVM to the first record that acks=all
acknowledges on three replicas. Both ways alternate. By hand means without the harness: the same Java, jars, archives,
flags and logging. Settings are Kafka's own except those of `BY_HAND`: short time-outs of the quorum, few threads, no
log cleaner. So the ratio shows what the harness adds, and the time by hand shows the speed of the machine. The bar
(issue 5) is 2.5 s on a machine on which the JVMs by hand take 1.7-2.1 s."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import psutil
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.install import Installation, install
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.provision.checkpoint import CHECKPOINT
from ackproof.provision.jvm import SERVER, Role, java_command, jvm_flags, logging_flags

BAR = 2.5 / 1.9
CONTROLLER, BROKERS = 1, (2, 3, 4)
PORT, HOST = 29092, "127.0.90.{}"
PATIENCE_S = 60.0
BY_HAND = """\
process.roles={role}
node.id={node}
listeners={listener}://{host}:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters={controller}@{quorum}:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}
num.network.threads=1
num.io.threads=2
background.threads=2
log.cleaner.enable=false
auto.create.topics.enable=false
controller.quorum.election.timeout.ms=300
controller.quorum.fetch.timeout.ms=500
controller.quorum.retry.backoff.ms=20
replica.fetch.wait.max.ms=100
"""


def by_hand(installed: Installation, folder: Path) -> float:
    """Start the four JVMs without the harness; return the seconds until the first acknowledged record."""
    began = time.perf_counter()
    with ExitStack() as running:
        for node in (CONTROLLER, *BROKERS):
            process = subprocess.Popen(
                _command(installed, node, folder / str(node)),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            running.callback(process.wait)
            running.callback(process.kill)
        bootstrap = f"{HOST.format(BROKERS[0])}:{PORT}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "log_level": 0})
        wait_until(lambda: _all_there(admin), what="three brokers", timeout_s=PATIENCE_S, interval_s=0.02)
        admin.create_topics([NewTopic("t", 3, len(BROKERS))])["t"].result()
        _first_ack(bootstrap)
        return time.perf_counter() - began


def _command(installed: Installation, node: int, folder: Path) -> list[str]:
    """Write the folder of a formatted node; return the command line that runs the node."""
    role: Role = "controller" if node == CONTROLLER else "broker"
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text(f"version=1\ncluster.id={'A' * 22}\nnode.id={node}\n", "utf-8")
    if node == CONTROLLER:
        shutil.copyfile(installed.checkpoint, folder / CHECKPOINT)
    settings = folder / "server.properties"
    listener = "CONTROLLER" if node == CONTROLLER else "PLAINTEXT"
    settings.write_text(
        BY_HAND.format(
            role=role,
            node=node,
            listener=listener,
            host=HOST.format(node),
            port=PORT,
            controller=CONTROLLER,
            quorum=HOST.format(CONTROLLER),
            folder=folder,
        ),
        "utf-8",
    )
    archive = installed.archives.get(role)
    flags = [*jvm_flags(), *logging_flags(installed.jars.version, folder / "node.log")]
    if archive:
        flags.append(f"-XX:SharedArchiveFile={archive}")
    return java_command(installed.java, installed.jars, SERVER, [str(settings)], flags)


def _all_there(admin: AdminClient) -> bool:
    try:
        return len(admin.list_topics(timeout=0.3).brokers) == len(BROKERS)
    except KafkaException:
        return False


def ours(installed: Installation, folder: Path) -> float:
    """Start a cluster with the harness; return the seconds until the first acknowledged record."""
    tag = RunTag(secrets.token_hex(8), folder, folder)
    began = time.perf_counter()
    cluster = ProcessCluster(ClusterSpec(), folder / "nodes", tag, lambda event: None, installed=installed)
    with cluster:
        cluster.start()
        cluster.create_topics({"t": TopicSpec()})
        _first_ack(cluster.bootstrap)
        took = time.perf_counter() - began
    cluster.remove_data()
    return took


def _first_ack(bootstrap: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "topic.metadata.refresh.interval.ms": 100,
            "log_level": 0,
        }
    )
    producer.produce("t", b"x")
    if left := producer.flush(PATIENCE_S):
        raise TimeoutError(f"{left} records were not acknowledged within {PATIENCE_S:g} s")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    installed = install(ClusterSpec().kafka)
    times: dict[str, list[float]] = {"by hand": [], "ackproof": []}
    with tempfile.TemporaryDirectory(prefix="ackproof-start-") as name:
        for number in range(rounds):
            turns = [("by hand", by_hand), ("ackproof", ours)]
            for what, start in turns if number % 2 == 0 else reversed(turns):
                times[what].append(start(installed, Path(name) / f"{number}-{start.__name__}"))
    for what, took in times.items():
        print(f"{what:10} {median(took):5.2f} s ({min(took):.2f}-{max(took):.2f})")
    ratios = [own / other for own, other in zip(times["ackproof"], times["by hand"], strict=True)]
    print(
        f"ratio {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}), bar {BAR:.2f}, {rounds} rounds, "
        f"load {psutil.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
