"""The docker backend: a cluster whose nodes run in a container each, all in one network.

A node's folder is mounted into its container as the working folder, so that settings, logs and data are found where
the process backend has them. A Kafka node gets its settings as the image's variables (KAFKA_*).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput, NodeDied, WaitTimeout
from ackproof.cluster import clocks
from ackproof.cluster.containers.build import prepare_image
from ackproof.cluster.containers.container import (
    NODE_FOLDER,
    ContainerCodeAgent,
    ContainerProcess,
    NodeContainer,
    settings_as_environment,
)
from ackproof.cluster.containers.engine import (
    Engine,
    EngineFailed,
    connect,
    gateway,
    labels,
    make_bridge,
    remove_leftovers,
)
from ackproof.cluster.containers.images import ARCHIVE, LIBS, KafkaImage
from ackproof.cluster.metadata import metadata_of
from ackproof.cluster.node import NodeFiles, ProcessNode
from ackproof.cluster.own import START_WITHIN_S, OwnCluster
from ackproof.cluster.properties import settings
from ackproof.experiment.backends import Need
from ackproof.experiment.kafka import KafkaBuild
from ackproof.network.addresses import Address, Addresses, Lease, is_free, node_name
from ackproof.network.kernel import Namespaces, table_name
from ackproof.network.meshes import KernelMesh, MeshWiring
from ackproof.network.requests.links import NamespaceRequestLinks, RequestWiring
from ackproof.provision.jvm import (
    SERVER,
    archive_in_use,
    jvm_flags,
    log_configuration,
    logging_flags,
    node_flags,
)
from ackproof.provision.tools import clock_library, exporter_jar, java_agent

_SUBNET_TRIES: Final = 8


@dataclass(frozen=True)
class _Ground:
    """The container engine, network and images of one cluster. `image`: image of the cluster's own Kafka build.
    `gateway`: address of this machine in the network. `containers`: by node id."""

    engine: Engine
    image: KafkaImage
    network: str
    gateway: str
    addresses: DockerAddresses
    containers: dict[int, NodeContainer] = field(default_factory=dict)
    images: dict[int, KafkaImage] = field(default_factory=dict)
    """Images, by node id, of nodes that run another Kafka build than the cluster."""


class DockerCluster(OwnCluster):
    """A cluster of containers. The host formats the nodes' storage, with the Kafka installation of the host."""

    _engine: Engine | None = None
    _requests: NamespaceRequestLinks | None = None
    _laid: _Ground | None = None
    """Engine, network and images; None before the start. Read it through `_ground`."""

    def environment(self) -> dict[str, str]:
        ground = self._ground
        return super().environment() | {
            "java": ground.image.java,
            "image": f"{ground.image.reference} ({ground.image.identity})",
            "container engine": ground.engine.version,
        }

    # -- ground -----------------------------------------------------------------------------------------------------

    def _take_addresses(self, node_ids: tuple[int, ...]) -> DockerAddresses:
        self._engine = connect()
        image = prepare_image(self._engine, self.spec.kafka, self._progress)
        network = f"ackproof-{self._tag.run_id}"
        self._lease = self._make_network(self._engine, network, node_ids)
        block = self._lease.addresses.block
        with_metrics = self.spec.kafka_ids if Need.METRICS in self._needs else ()
        addresses = docker_addresses(block, self.spec.broker_ids, self.spec.controller_ids, with_metrics)
        self._laid = _Ground(self._engine, image, network, gateway(_subnet(block)), addresses)
        return addresses

    def _make_requests(self, wiring: RequestWiring) -> NamespaceRequestLinks:
        self._requests = NamespaceRequestLinks(wiring, self._spaces, self._ground.gateway)
        return self._requests

    def _make_mesh(self, wiring: MeshWiring) -> KernelMesh:
        behind = {} if self._requests is None else {"behind": self._requests.find_proxy_address}
        return KernelMesh(wiring, self._spaces, self._ground.gateway, **behind)

    @cached_property
    def _spaces(self) -> Namespaces:
        return Namespaces(table_name(self._tag.run_id), self._pid)

    def _make_network(self, engine: Engine, name: str, node_ids: tuple[int, ...]) -> Lease:
        """Make the cluster's network, and return the lease of a block of addresses that no other harness or leftover
        network uses. Raises `BadInput` if the networks of 8 leased blocks (`_SUBNET_TRIES`) cannot be made."""
        leases: list[Lease] = []

        def prefixes() -> Iterator[str]:
            while len(leases) < _SUBNET_TRIES:
                leases.append(self._acquire_lease(node_ids))
                yield _subnet(leases[-1].addresses.block)

        try:
            if make_bridge(engine, name, prefixes(), labels(self._tag, "network")) is not None:
                return leases.pop()
        finally:
            for passed in leases:
                passed.release()
        raise BadInput(
            f"{_SUBNET_TRIES} subnets of 10.213.0.0/16 are taken by other networks; `ackproof clean` removes "
            "those that dead runs left behind"
        )

    def _lay_more(self, files: NodeFiles) -> None:
        super()._lay_more(files)
        self._lay_logging(files, self.spec.kafka)
        if self._clocks:
            shutil.copyfile(clock_library(), files.clock_library)
        if Need.METRICS in self._needs:
            jar = exporter_jar(self._progress)
            shutil.copyfile(jar, files.folder / jar.name)

    def use_build(self, node_id: int, build: KafkaBuild) -> None:
        """Remove the node's container; at its next start the node gets a container with the image of this Kafka build.
        The node keeps its folder and addresses. Raises `BadInput` for an unknown build, `ProvisionFailed`,
        `EngineFailed` or `WaitTimeout` if its image cannot be made."""
        super().use_build(node_id, build)
        ground = self._ground
        ground.images[node_id] = prepare_image(ground.engine, build, self._progress)
        self._lay_logging(self._nodes[node_id].files, build)
        if (old := ground.containers.pop(node_id, None)) is not None:
            old.remove()

    def _lay_logging(self, files: NodeFiles, build: KafkaBuild) -> None:
        logging = log_configuration(build.version)
        shutil.copyfile(logging, files.folder / logging.name)

    def start(self, timeout_s: float = START_WITHIN_S) -> None:
        try:
            super().start(timeout_s)
        except (NodeDied, WaitTimeout) as error:
            if (image := self.spec.kafka.image) is None:
                raise
            said = " ".join(str(error).split())[:300]
            raise BadInput(
                f"the image {image} does not start a node ({said}); see what it does: docker run --rm {image}"
            ) from error

    def code_agent(self, node_id: int) -> ContainerCodeAgent:
        jars = self._builds.get(node_id, self._installed).jars
        container = self._ground.containers[node_id]
        return ContainerCodeAgent(self._nodes[node_id], jars.version, jars.classpath, container)

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _launch_together(self, nodes: Sequence[ProcessNode]) -> None:
        if not nodes:
            return
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            list(pool.map(ProcessNode.start, nodes))

    def _launch(self, node: ProcessNode) -> ContainerProcess:
        containers = self._ground.containers
        container = containers.get(node.id)
        if container is None:
            container = containers[node.id] = self._make_container(node)
        return container.start()

    def _make_container(self, node: ProcessNode) -> NodeContainer:
        ground, addresses = self._ground, self._ground.addresses
        published: dict[int, tuple[str, int]] = {}
        if node.is_broker:
            published[addresses.external_port] = addresses.client(node.id)
        if node.is_controller:
            published[addresses.controller_port] = addresses.controller(node.id)
        if node.id in addresses.exporters:
            published[addresses.exporter_port] = addresses.exporter(node.id)
        is_kafka, folder = self._is_kafka(node), Path(NODE_FOLDER)
        environment = self._variables(node) if is_kafka else {}
        if self._clocks:
            environment |= clocks.preload(
                folder / node.files.clock.name, folder / node.files.clock_library.name
            )
        return NodeContainer(
            ground.engine,
            self._tag,
            image=ground.images.get(node.id, ground.image).reference,
            role=node.name,
            hostname=node_name(node.id),
            network=ground.network,
            environment=environment,
            folder=node.files.folder,
            published=published,
            address=addresses.node(node.id),
            command=() if is_kafka else self._command(node),
        )

    def _variables(self, node: ProcessNode) -> dict[str, str]:
        flags, options, folder = node_flags(self.spec.heap), [_hosts_flag(node)], Path(NODE_FOLDER)
        if node.id in self.exporters():
            listens = Address("0.0.0.0", self._ground.addresses.exporter_port)
            jar = folder / exporter_jar(self._progress).name
            options.append(java_agent(jar, listens, folder / node.files.exporter.name))
        return {
            **settings_as_environment(settings(self.layout, node.id, node.files.data.name)),
            "CLUSTER_ID": self._cluster_id,
            "KAFKA_HEAP_OPTS": " ".join(flags[:2]),
            # These flags replace those of the image, which select another garbage collector.
            "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(flags[2:]),
            "KAFKA_OPTS": " ".join(options),
            "KAFKA_LOG4J_OPTS": " ".join(self._logging(node)),
            "LOG_DIR": NODE_FOLDER,
        }

    def _command(self, node: ProcessNode) -> tuple[str, ...]:
        """Return the command that starts a ZooKeeper server, which the start script of an image cannot do. A node that
        runs Kafka is started by this script and needs no command."""
        flags = [*jvm_flags(self.spec.heap), _hosts_flag(node), *self._logging(node)]
        classpath, file = f"{LIBS}/*", f"{NODE_FOLDER}/{node.files.properties.name}"
        return ("java", *flags, "-cp", classpath, self._main(node), file)

    def _logging(self, node: ProcessNode) -> list[str]:
        folder = Path(NODE_FOLDER)
        version = self._builds.get(node.id, self._installed).jars.version
        return logging_flags(version, folder / node.files.log.name, folder)

    def _main(self, node: ProcessNode) -> str:
        return metadata_of(self.spec).main(broker=node.is_broker)

    def _is_kafka(self, node: ProcessNode) -> bool:
        """Return True for a broker or KRaft controller, which the image's start script can start; False for a ZooKeeper
        server."""
        return self._main(node) == SERVER

    def _uses_archive(self, node: ProcessNode) -> bool:
        """Return False if a Kafka node runs without its class-data archive. Return True for a ZooKeeper server: images
        have no archive for it, so none is missing."""
        return not self._is_kafka(node) or bool(node.pid and archive_in_use(node.pid, Path(ARCHIVE)))

    # -- end --------------------------------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Remove containers and network. Raises `EngineFailed` if the engine fails; `ackproof clean` then removes
        them."""
        try:
            if self._engine is not None:
                remove_leftovers(self._engine, lambda marks: True, self._tag.run_id)
        except EngineFailed as error:
            raise EngineFailed(f"{error}; its containers stay until `ackproof clean`") from error
        finally:
            for container in self._laid.containers.values() if self._laid else ():
                container.close()
            if self._engine is not None:
                self._engine.close()
                self._engine = None
            super()._give_back()

    @property
    def _ground(self) -> _Ground:
        if self._laid is None:
            raise BadInput("this cluster was not started")
        return self._laid


def _hosts_flag(node: ProcessNode) -> str:
    return f"-Djdk.net.hosts.file={NODE_FOLDER}/{node.files.hosts.name}"


HOST: Final = "127.0.0.1"
_FIRST_PORT: Final = 10_240
_PORTS_OF_A_BLOCK: Final = 80
"""Published ports per block of addresses: enough for 40 nodes with two ports each, or for 26 nodes with three. All 254
blocks end below the ephemeral port range."""
_IN_CONTAINER: Final = 9092


def _subnet(block: int) -> str:
    """Return the first three octets of the addresses in the network of a cluster with this block."""
    return f"10.213.{block}"


@dataclass(frozen=True)
class DockerAddresses(Addresses):
    """The addresses of one cluster of containers. `clients`, `controllers`, `exporters`: published port of each node's
    listener, by node id."""

    clients: Mapping[int, int] = field(default_factory=dict)
    controllers: Mapping[int, int] = field(default_factory=dict)
    exporters: Mapping[int, int] = field(default_factory=dict)

    def node(self, node_id: int) -> str:
        """Return the address of the node's container in the cluster's network."""
        return f"{_subnet(self.block)}.{node_id}"

    def client(self, node_id: int) -> Address:
        """Return the address on this machine where a broker's client listener is published."""
        return Address(HOST, self.clients[node_id])

    def listens(self, node_id: int) -> Address:
        return Address(self.node(node_id), self.external_port)

    def controller(self, node_id: int) -> Address:
        """Return the address on this machine where a controller's listener is published."""
        return Address(HOST, self.controllers[node_id])

    def exporter(self, node_id: int) -> Address:
        """Return the address on this machine where a node's metrics exporter is published."""
        return Address(HOST, self.exporters[node_id])


def docker_addresses(
    block: int, brokers: Iterable[int], controllers: Iterable[int], exporters: Iterable[int] = ()
) -> DockerAddresses:
    """Return the addresses of these nodes in the network of a block, published at free ports of this machine.
    `block`: number of the leased block of addresses, from 1. `exporters`: nodes with a metrics exporter.

    Raises `BadInput` if too few ports are free.
    """
    first = _FIRST_PORT + _PORTS_OF_A_BLOCK * (block - 1)
    free = (port for port in range(first, first + _PORTS_OF_A_BLOCK) if is_free(Address(HOST, port)))
    try:
        return DockerAddresses(
            block,
            _IN_CONTAINER,
            {node: next(free) for node in brokers},
            {node: next(free) for node in controllers},
            {node: next(free) for node in exporters},
        )
    except StopIteration as error:
        last = first + _PORTS_OF_A_BLOCK - 1
        raise BadInput(f"too few ports of {HOST} are free between {first} and {last}") from error
