"""The process backend: a cluster of real Kafka nodes, each a JVM of this machine."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.base.processes import Child, RunTag
from ackproof.cluster import clocks, lease
from ackproof.cluster.backends.process.links import ProcessLinks
from ackproof.cluster.backends.process.node import NodeFiles, ProcessNode
from ackproof.cluster.disks import file_systems as disks
from ackproof.cluster.environment import environment_of
from ackproof.cluster.install import install, with_features
from ackproof.cluster.launch import Installation, Role, command, launch, lay_data, write_files, write_hosts
from ackproof.cluster.layout import Layout
from ackproof.cluster.network.mesh import Mesh
from ackproof.cluster.own import OwnCluster
from ackproof.cluster.protocol import OnNodeEvent
from ackproof.experiment.needs import LINKS, Need
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision.archive import archive_in_use
from ackproof.provision.progress import ProgressSink, ignore


class ProcessCluster(OwnCluster):
    """A cluster of JVMs on leased loopback addresses.

    `installed` is found or made by provisioning when it is not given. `needs`: what faults need of the ground; links
    go through proxies only where they say so.
    """

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
        super().__init__(spec, nodes_dir, tag, on_event, progress=progress)
        self._installed = installed
        self._needs = needs
        self._own_disks = disks.to_be_made(needs)
        self._clocks = Need.CLOCKS in needs
        self._proxies: ProcessLinks | None = None
        self._lease: lease.Lease | None = None
        self._without_archive: list[int] = []
        self._other: dict[int, Installation] = {}

    @property
    def mesh(self) -> Mesh | None:
        """The links that go through proxies; None when no fault needs any, and before `start`."""
        return None if self._proxies is None else self._proxies.mesh

    def check(self) -> None:
        """Raises `NodeDied` when a node has died by itself, `LinkError` when the proxies' server has."""
        super().check()
        if self._proxies is not None:
            self._proxies.mesh.check()

    def environment(self) -> dict[str, str]:
        """Versions, machine and load, for the report."""
        return environment_of(self._ready(), self._without_archive)

    def use_release(self, node_id: int, version: str) -> None:
        """See `Cluster`."""
        self._other[node_id] = install(version, self._progress)

    def _lay_ground(self, node_ids: tuple[int, ...]) -> Layout:
        installed = self._installed or install(self.spec.kafka, self._progress)
        self._installed = with_features(installed, self.spec.features, self._progress)
        self._lease = lease.acquire(node_ids, holder=f"{self._tag.run_id} {self._tag.case_dir}")
        layout = Layout(self.spec, self._lease.addresses, Need.CLIENT_LINKS in self._needs)
        if self._needs & LINKS:
            self._proxies = ProcessLinks(layout, self._needs, self.nodes_dir, self._tag, self._pid)
            self._proxies.start(self._lease.descriptor)
        return layout

    def _lay_data(self, layout: Layout, cluster_id: str, node_id: int) -> None:
        lay_data(layout, node_id, NodeFiles(self.nodes_dir / str(node_id)), self._ready(), cluster_id)

    def _lay_out(self, layout: Layout, node_id: int, files: NodeFiles, cluster_id: str) -> None:
        write_files(layout, node_id, files, self._ready(), cluster_id)
        write_hosts(layout, node_id, files, self._proxies.route if self._proxies else layout.addresses.direct)

    def _launch(self, node_id: int) -> Child:
        if self._ending or self._lease is None:
            raise BadInput(f"node {node_id} cannot be started: the cluster has ended")
        node = self._nodes[node_id]
        installed = self._other.get(node_id) or self._ready()
        argv = command(self.layout, node.files, installed, _role(node))
        return launch(
            argv,
            node.files,
            tag=self._tag,
            name=node.name,
            lease_descriptor=self._lease.descriptor,
            env=clocks.preload(node.files.clock) if self._clocks else None,
        )

    def _all_started(self) -> None:
        # Java drops an archive that does not fit without a word.
        installed = self._ready()
        self._without_archive = [i for i, node in self._nodes.items() if not _uses_archive(node, installed)]

    def _give_back(self) -> None:
        if self._proxies is not None:
            self._proxies.end()
        if self._lease is not None:
            self._lease.release()

    def _pid(self, node_id: int) -> int | None:
        node = self._nodes.get(node_id)
        return None if node is None else node.pid

    def _ready(self) -> Installation:
        if self._installed is None:
            raise BadInput("this cluster was not started")
        return self._installed


def _role(node: ProcessNode) -> Role:
    """Whose archive fits it: a combined node runs what a broker runs, and more."""
    return "broker" if node.is_broker else "controller"


def _uses_archive(node: ProcessNode, installed: Installation) -> bool:
    archive = installed.archives.get(_role(node))
    return archive is not None and node.pid is not None and archive_in_use(node.pid, archive)
