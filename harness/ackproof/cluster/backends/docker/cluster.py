"""The docker backend: the same cluster, each node in a container of its own, one network for all of them.

A node's folder is mounted into its container as the working folder, so that settings, logs and data are found where
the process backend has them. Its settings go in as the image's variables (KAFKA_*).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from ackproof.base.errors import BadInput
from ackproof.base.processes import RunTag
from ackproof.cluster import clocks, lease
from ackproof.cluster.backends.docker.addresses import DockerAddresses, docker_addresses
from ackproof.cluster.backends.docker.links import ContainerLinks
from ackproof.cluster.backends.process.node import NodeFiles, ProcessNode
from ackproof.cluster.containers import leftovers
from ackproof.cluster.containers.bridge import Bridge, SubnetTaken
from ackproof.cluster.containers.container import ContainerPlan, ContainerProcess, NodeContainer
from ackproof.cluster.containers.engine import Engine, EngineFailed, connect
from ackproof.cluster.containers.environment import JVM_FLAGS, settings_as_environment
from ackproof.cluster.containers.images import ARCHIVE, KafkaImage, image_for
from ackproof.cluster.containers.labels import labels
from ackproof.cluster.install import Installation
from ackproof.cluster.layout import Layout
from ackproof.cluster.metadata.choice import metadata_of
from ackproof.cluster.own import OwnCluster
from ackproof.cluster.properties import settings
from ackproof.cluster.protocol import OnNodeEvent
from ackproof.experiment.needs import Need
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision import clock
from ackproof.provision.archive import archive_in_use
from ackproof.provision.jvm import SERVER
from ackproof.provision.node_logging import configuration, logging_by
from ackproof.provision.progress import ProgressSink, ignore

T = TypeVar("T")

NODE_FOLDER: Final = "/mnt/node"
"""Where a node's own folder is in its container."""
_CONFIG: Final = "/opt/kafka/config"
_SUBNET_TRIES: Final = 8


class DockerCluster(OwnCluster):
    """A cluster of containers. `installed` gives what its nodes' storage is formatted with."""

    def __init__(
        self,
        spec: ClusterSpec,
        nodes_dir: Path,
        tag: RunTag,
        on_event: OnNodeEvent,
        *,
        installed: Installation | None = None,
        progress: ProgressSink = ignore,
        needs: Set[Need] = frozenset(),
    ) -> None:
        super().__init__(spec, nodes_dir, tag, on_event, installed=installed, progress=progress, needs=needs)
        self._engine: Engine | None = None
        self._image: KafkaImage | None = None
        self._bridge: Bridge | None = None
        self._addresses: DockerAddresses | None = None
        self._cluster_id = ""
        self._containers: dict[int, NodeContainer] = {}

    def environment(self) -> dict[str, str]:
        image, engine = self._ready(self._image), self._ready(self._engine)
        return super().environment() | {
            "java": image.java,
            "image": f"{image.reference} ({image.identity})",
            "container engine": engine.version,
        }

    # -- ground -----------------------------------------------------------------------------------------------------

    def _take_addresses(self, node_ids: tuple[int, ...]) -> DockerAddresses:
        self._engine = connect()
        self._image = image_for(self._engine, self.spec.kafka, self._progress)
        self._lease, self._bridge = self._network(node_ids)
        block = self._lease.addresses.block
        self._addresses = docker_addresses(block, self.spec.broker_ids, self.spec.controller_ids)
        return self._addresses

    def _make_breaker(self, layout: Layout) -> ContainerLinks:
        gateway = self._ready(self._bridge).gateway
        return ContainerLinks(layout, self._needs, self.nodes_dir, self._tag, self._pid, gateway)

    def _network(self, node_ids: tuple[int, ...]) -> tuple[lease.Lease, Bridge]:
        """A block that no other harness has, and that no network left behind has either."""
        passed: list[lease.Lease] = []
        try:
            for _ in range(_SUBNET_TRIES):
                leased = lease.acquire(node_ids, holder=self._holder())
                bridge = Bridge(f"ackproof-{self._tag.run_id}", f"10.213.{leased.addresses.block}", self._tag)
                try:
                    bridge.create()
                except SubnetTaken:
                    passed.append(leased)
                    bridge.close()
                    continue
                except BaseException:
                    leased.release()
                    bridge.close()
                    raise
                return leased, bridge
        finally:
            for leased in passed:
                leased.release()
        raise BadInput(
            f"{_SUBNET_TRIES} subnets of 10.213.0.0/16 are taken by other networks; `ackproof clean` removes "
            "those that dead runs left behind"
        )

    def _lay_more(self, files: NodeFiles, cluster_id: str) -> None:
        # what the image makes of its variables; and how the node logs, into its folder as everywhere
        (files.folder / "config").mkdir(exist_ok=True)
        logging = configuration(self.spec.kafka)
        shutil.copyfile(logging, files.folder / logging.name)
        if self._clocks:
            shutil.copyfile(clock.library(), files.clock_library)
        self._cluster_id = cluster_id

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _launch_together(self, nodes: Sequence[ProcessNode]) -> None:
        if not nodes:
            return
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            list(pool.map(ProcessNode.start, nodes))

    def _launch(self, node: ProcessNode) -> ContainerProcess:
        container = self._containers.get(node.id)
        if container is None:
            container = NodeContainer(self._plan(node), node.files.stdout)
            self._containers[node.id] = container
        return container.start(node.name)

    def _plan(self, node: ProcessNode) -> ContainerPlan:
        layout, addresses = self.layout, self._ready(self._addresses)
        published: dict[int, tuple[str, int]] = {}
        if node.is_broker:
            published[addresses.external_port] = addresses.client(node.id)
        if node.is_controller:
            published[addresses.controller_port] = addresses.controller(node.id)
        name = f"node-{node.id}.test"
        return ContainerPlan(
            image=self._ready(self._image).reference,
            name=f"ackproof-{self._tag.run_id}-{node.name}",
            hostname=name,
            network=self._ready(self._bridge).network,
            environment=self._variables(layout, node) | self._clock_variables(node),
            labels=labels(self._tag, node.name),
            user=self._ready(self._engine).user,
            workdir=NODE_FOLDER,
            mounts={node.files.folder: NODE_FOLDER, node.files.folder / "config": _CONFIG},
            published=published,
            address=addresses.node(node.id),
            aliases=(name,),
            command=self._command(node),
        )

    def _variables(self, layout: Layout, node: ProcessNode) -> dict[str, str]:
        if not self._is_kafka(node):
            return self._tag.environment(node.name)
        heap = layout.spec.heap >> 20
        return {
            **settings_as_environment(settings(layout, node.id, node.files.data.name)),
            "CLUSTER_ID": self._cluster_id,
            "KAFKA_HEAP_OPTS": f"-Xmx{heap}m -Xms{min(64, heap)}m",
            "KAFKA_JVM_PERFORMANCE_OPTS": f"{JVM_FLAGS} -Xmn{min(40, heap // 3)}m -XX:+ExitOnOutOfMemoryError",
            "KAFKA_OPTS": _names(node),
            "KAFKA_LOG4J_OPTS": " ".join(self._logging(node)),
            "LOG_DIR": NODE_FOLDER,
            **self._tag.environment(node.name),
        }

    def _clock_variables(self, node: ProcessNode) -> dict[str, str]:
        if not self._clocks:
            return {}
        folder = Path(NODE_FOLDER)
        return clocks.preload(folder / node.files.clock.name, folder / node.files.clock_library.name)

    def _command(self, node: ProcessNode) -> tuple[str, ...]:
        """What runs in its container: nothing but the image's own start, except for a ZooKeeper server."""
        if self._is_kafka(node):
            return ()
        heap = self.spec.heap >> 20
        words = [
            f"-Xmx{heap}m",
            f"-Xms{min(64, heap)}m",
            *JVM_FLAGS.split(),
            _names(node),
            *self._logging(node),
        ]
        # both images have ZooKeeper among Kafka's jars, and neither starts it
        return (
            "java",
            *words,
            "-cp",
            "/opt/kafka/libs/*",
            self._main(node),
            f"{NODE_FOLDER}/{node.files.properties.name}",
        )

    def _logging(self, node: ProcessNode) -> list[str]:
        folder = Path(NODE_FOLDER)
        return logging_by(folder / configuration(self.spec.kafka).name, folder / node.files.log.name)

    def _main(self, node: ProcessNode) -> str:
        return metadata_of(self.spec).main(broker=node.is_broker)

    def _is_kafka(self, node: ProcessNode) -> bool:
        """Whether the image's own start starts it."""
        return self._main(node) == SERVER

    def _uses_archive(self, node: ProcessNode) -> bool:
        """Only Kafka's own start takes it."""
        return not self._is_kafka(node) or bool(node.pid and archive_in_use(node.pid, Path(ARCHIVE)))

    # -- end --------------------------------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Remove containers and network. Raises `EngineFailed` when the engine does not: `ackproof clean` will."""
        try:
            if self._engine is not None:
                leftovers.remove(self._engine, lambda marks: True, self._tag.run_id)
        except EngineFailed as error:
            raise EngineFailed(f"{error}; its containers stay until `ackproof clean`") from error
        finally:
            for container in self._containers.values():
                container.close()
            if self._bridge is not None:
                self._bridge.close()
            if self._engine is not None:
                self._engine.close()
                self._engine = None
            super()._give_back()

    @staticmethod
    def _ready(value: T | None) -> T:
        if value is None:
            raise BadInput("this cluster was not started")
        return value


def _names(node: ProcessNode) -> str:
    """By which file its JVM resolves the names of its peers."""
    return f"-Djdk.net.hosts.file={NODE_FOLDER}/{node.files.hosts.name}"
