"""The class-data archive of an image: made in containers of the image itself, by nodes that lead, follow and serve.

An archive is valid for the jars of exactly these paths and times, and for this build of Java: those in the image.
"""

from __future__ import annotations

import re
import signal
import socket
from contextlib import ExitStack
from typing import Final

from ackproof.base.errors import WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.cluster.containers.container import NODE_FOLDER, ContainerPlan, ContainerProcess, NodeContainer
from ackproof.cluster.containers.engine import Engine, make_bridge, spoken
from ackproof.cluster.containers.environment import JVM_FLAGS, settings_as_environment
from ackproof.cluster.containers.leftovers import labels
from ackproof.provision.checkpoint import new_cluster_id
from ackproof.provision.jvm import warm_up
from ackproof.provision.progress import ProvisionFailed
from ackproof.rundir.layout import CaseDir

_CLIENTS: Final = 9094
_SUBNETS: Final = tuple(f"10.212.{third}" for third in range(1, 255))
_READY_WITHIN_S: Final = 120.0
_ENDS_WITHIN_S: Final = 90.0
_MAIN, _PEER = 1, 2
_VERSION: Final = re.compile(r'version "([^"]+)"')


def bake(engine: Engine, image: str, work: CaseDir, tag: RunTag) -> str:
    """Leave `kafka.jsa` in the folder `work`; the version of the image's Java. Two nodes: one is controller too.

    What it starts carries the labels of `tag`, and is removed by whoever called. Raises `ProvisionFailed`.
    """
    cluster_id = new_cluster_id()
    ports = _free_ports(2)
    with ExitStack() as open_things:
        network = f"ackproof-{tag.run_id}"
        if make_bridge(engine, network, _SUBNETS, labels(tag, "network")) is None:
            raise ProvisionFailed("no subnet of 10.212.0.0/16 is free")
        served: dict[int, ContainerProcess] = {}
        for node in (_MAIN, _PEER):
            container = _container(engine, image, node, ports, network, work, tag, cluster_id)
            open_things.callback(container.close)
            served[node] = container.start()
        bootstrap = f"127.0.0.1:{ports[_MAIN - 1]}"
        _await_both(bootstrap, served)
        said = _java_version(served[_MAIN].container)
        warm_up(bootstrap, leader=_MAIN, follower=_PEER)
        served[_PEER].signal(signal.SIGKILL)
        served[_MAIN].signal(signal.SIGTERM)
        try:
            served[_MAIN].wait(_ENDS_WITHIN_S)
        except WaitTimeout as error:
            raise ProvisionFailed(f"the node that writes the archive does not end: {error}") from error
    archive = work.nodes / str(_MAIN) / "kafka.jsa"
    if not archive.is_file():
        output = (work.nodes / str(_MAIN) / "stdout.log").read_text(encoding="utf-8", errors="replace")
        raise ProvisionFailed(
            f"the image's Java wrote no class-data archive: {' '.join(output.split())[-400:]}"
        )
    archive.rename(work.path / "kafka.jsa")
    return said


def _java_version(container: NodeContainer) -> str:
    said = spoken(container.container.exec_run)(["java", "-version"]).output
    found = _VERSION.search(said.decode("utf-8", "replace") if isinstance(said, bytes) else "")
    return found[1] if found else "unknown"


def _container(
    engine: Engine,
    image: str,
    node: int,
    ports: tuple[int, ...],
    network: str,
    work: CaseDir,
    tag: RunTag,
    cluster_id: str,
) -> NodeContainer:
    controller = node == _MAIN
    own, peers = f"node-{node}", f"1@node-{_MAIN}:9093"
    listeners = [
        "INTERNAL://:9092",
        f"EXTERNAL://:{_CLIENTS}",
        *(["CONTROLLER://:9093"] if controller else []),
    ]
    settings = {
        "process.roles": "broker,controller" if controller else "broker",
        "node.id": str(node),
        "controller.quorum.voters": peers,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": ",".join(listeners),
        "advertised.listeners": f"INTERNAL://{own}:9092,EXTERNAL://127.0.0.1:{ports[node - 1]}",
        "log.dirs": f"{NODE_FOLDER}/data",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    # hundreds of warnings about classes that cannot be archived are of no interest
    dump = f"-Xlog:disable -Xlog:all=error:stdout -XX:ArchiveClassesAtExit={NODE_FOLDER}/kafka.jsa"
    environment = {
        **settings_as_environment(settings),
        "CLUSTER_ID": cluster_id,
        "KAFKA_HEAP_OPTS": "-Xmx256m -Xms64m",
        "KAFKA_JVM_PERFORMANCE_OPTS": JVM_FLAGS,
        **({"KAFKA_OPTS": dump} if controller else {}),
    }
    return NodeContainer(
        engine,
        tag,
        ContainerPlan(
            image=image,
            role=own,
            hostname=own,
            network=network,
            environment=environment,
            folder=work.nodes / str(node),
            published={_CLIENTS: ("127.0.0.1", ports[node - 1])},
        ),
    )


def _await_both(bootstrap: str, served: dict[int, ContainerProcess]) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def registered() -> bool:
        for process in served.values():
            if process.poll() is not None:
                logs = spoken(process.container.container.logs)(tail=10).decode("utf-8", "replace")
                raise ProvisionFailed(f"{process.role} of the image ended: {' '.join(logs.split())[-400:]}")
        try:
            return len(admin.list_topics(timeout=1).brokers) == len(served)
        except KafkaException:
            return False

    wait_until(registered, what="two brokers of the new image in its metadata", timeout_s=_READY_WITHIN_S)


def _free_ports(count: int) -> tuple[int, ...]:
    """Ports of 127.0.0.1 that nobody listens at now. Taken meanwhile: the engine refuses, in words."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(each.getsockname()[1] for each in sockets)
    finally:
        for each in sockets:
            each.close()
