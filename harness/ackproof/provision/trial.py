"""A small real cluster on 127.0.0.1, for what provisioning needs one for: class-data archives and the doctor.

It is not the cluster under test (that is the cluster room): no leases, no faults, gone when the block ends.
"""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from ackproof.base.errors import NodeDied
from ackproof.base.processes import Child, RunTag, spawn
from ackproof.base.wait import wait_until
from ackproof.provision.checkpoint import CHECKPOINT, bootstrap_checkpoint, meta_properties, new_cluster_id
from ackproof.provision.failure import ProvisionFailed
from ackproof.provision.jars import KafkaJars
from ackproof.provision.java import Java
from ackproof.provision.jvm import SERVER, java_command
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.rundir.layout import CaseDir

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0

_HOST = "127.0.0.1"
_PORTS = range(18_000, 32_000)
"""Below the ephemeral range: no outgoing connection of anybody takes one."""
_SETTINGS = """\
num.network.threads=1
num.io.threads=2
background.threads=2
log.cleaner.enable=false
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
controller.quorum.election.timeout.ms=300
controller.quorum.fetch.timeout.ms=2000
"""


@dataclass(frozen=True)
class TrialNode:
    """One node: `roles` as Kafka writes them ("broker", "controller", "broker,controller"); further JVM flags."""

    node_id: int
    roles: str
    flags: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"{self.roles.replace(',', '-')}-{self.node_id}"

    @property
    def is_broker(self) -> bool:
        """Whether clients can talk to it."""
        return "broker" in self.roles


@dataclass
class Trial:
    """A context: inside it the cluster runs and answers, after it all its processes are gone.

    The first node with the role of a controller is the only one with it. `folder` takes settings, logs and data.
    Raises `NodeDied` with the last log lines, `WaitTimeout`.
    """

    jars: KafkaJars
    java: Java
    nodes: Sequence[TrialNode]
    folder: Path
    progress: ProgressSink = ignore
    _children: dict[int, Child] = field(default_factory=dict)
    _ports: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{_HOST}:{self._ports[node.node_id, 'BROKER']}" for node in self._brokers())

    def __enter__(self) -> Self:
        checkpoint = bootstrap_checkpoint(self.jars, self.java, progress=self.progress)
        free = _free_ports(2 * len(self.nodes))
        for node in self.nodes:
            self._ports[node.node_id, "CONTROLLER"], self._ports[node.node_id, "BROKER"] = (
                free.pop(),
                free.pop(),
            )
        cluster_id = new_cluster_id()
        try:
            for node in self.nodes:
                self._start(node, cluster_id, checkpoint)
            self._await_answer()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def stop(self, node_id: int) -> None:
        """Ask a node to stop (SIGTERM) and wait until it no longer answers; what it does at its exit goes on."""
        self._children[node_id].signal(signal.SIGTERM)
        role = "BROKER" if (node_id, "BROKER") in self._listening() else "CONTROLLER"
        wait_until(
            lambda: not _answers(self._ports[node_id, role]) or self._children[node_id].poll() is not None,
            what=f"node {node_id} to stop",
            timeout_s=STOP_TIMEOUT_S,
            logs=lambda: self._tail(node_id),
        )

    def await_exit(self, node_id: int) -> int:
        """Wait until a node that was stopped has ended. Its exit status."""
        return self._children[node_id].wait(STOP_TIMEOUT_S)

    def _home(self, node: TrialNode) -> Path:
        # where a run has its nodes, too: `ackproof clean` removes the data of a killed one
        return CaseDir(self.folder).nodes / node.name

    def output(self, node_id: int) -> str:
        """What the JVM of a node has written to its standard output and error."""
        home = next(self._home(node) for node in self.nodes if node.node_id == node_id)
        return (home / "stdout.log").read_text(encoding="utf-8", errors="replace")

    def pid(self, node_id: int) -> int:
        return self._children[node_id].pid

    def _start(self, node: TrialNode, cluster_id: str, checkpoint: Path) -> None:
        home = self._home(node)
        data = home / "data"
        data.mkdir(parents=True)
        (data / "meta.properties").write_text(meta_properties(cluster_id, node.node_id), encoding="utf-8")
        if "controller" in node.roles:
            (data / CHECKPOINT).write_bytes(checkpoint.read_bytes())
        (home / "server.properties").write_text(self._properties(node, data), encoding="utf-8")
        self._children[node.node_id] = spawn(
            java_command(
                self.java,
                self.jars,
                SERVER,
                [str(home / "server.properties")],
                log=home / "server.log",
                flags=node.flags,
            ),
            run=RunTag(f"provision-{os.getpid()}", self.folder, self.folder),
            role=node.name,
            cwd=home,
            stdout=home / "stdout.log",
        )

    def _properties(self, node: TrialNode, data: Path) -> str:
        voter = next(each.node_id for each in self.nodes if "controller" in each.roles)
        names = {"broker": "BROKER", "controller": "CONTROLLER"}
        listeners = [
            f"{names[role]}://{_HOST}:{self._ports[node.node_id, names[role]]}"
            for role in node.roles.split(",")
        ]
        lines = [
            f"process.roles={node.roles}",
            f"node.id={node.node_id}",
            f"controller.quorum.voters={voter}@{_HOST}:{self._ports[voter, 'CONTROLLER']}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT",
            f"listeners={','.join(listeners)}",
            f"log.dirs={data}",
        ]
        if node.is_broker:
            lines += ["inter.broker.listener.name=BROKER", f"advertised.listeners={listeners[0]}"]
        return "\n".join(lines) + "\n" + _SETTINGS

    def _await_answer(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        brokers = self._brokers()
        wait_until(
            lambda: self._all_alive() and all(_answers(port) for port in self._listening().values()),
            what=f"Kafka {self.jars.version} to listen",
            timeout_s=START_TIMEOUT_S,
            logs=lambda: "\n".join(self._tail(node.node_id) for node in self.nodes),
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def registered() -> bool:
            self._all_alive()
            try:
                return len(admin.list_topics(timeout=1).brokers) == len(brokers)
            except KafkaException:
                return False

        wait_until(
            registered,
            what=f"{len(brokers)} brokers of Kafka {self.jars.version} in its metadata",
            timeout_s=START_TIMEOUT_S,
            logs=lambda: "\n".join(self._tail(node.node_id) for node in self.nodes),
        )

    def _brokers(self) -> list[TrialNode]:
        return [node for node in self.nodes if node.is_broker]

    def _listening(self) -> dict[tuple[int, str], int]:
        """The listeners that are really there."""
        return {
            (node.node_id, role): self._ports[node.node_id, role]
            for node in self.nodes
            for role in ("BROKER", "CONTROLLER")
            if role.lower() in node.roles
        }

    def _all_alive(self) -> bool:
        for node in self.nodes:
            if (status := self._children[node.node_id].poll()) is not None:
                raise NodeDied(
                    f"{node.name} ended with status {status}; last lines:\n{self._tail(node.node_id)}"
                )
        return True

    def _tail(self, node_id: int) -> str:
        home = next(self._home(node) for node in self.nodes if node.node_id == node_id)
        lines: list[str] = []
        for path in (home / "stdout.log", home / "server.log"):
            if path.is_file():
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        return "\n".join(lines)

    def _kill(self) -> None:
        for child in self._children.values():
            child.signal(signal.SIGKILL)
        for child in self._children.values():
            child.wait(STOP_TIMEOUT_S)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now. Somebody may take one before a node does: it then dies and says so."""
    free: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise ProvisionFailed(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop} on {_HOST}")


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((_HOST, port), timeout=1):
            return True
    except OSError:
        return False
