"""A cluster that ackproof starts itself: starts and ends its nodes, and asks them through the protocol.

`OwnCluster` is abstract: `backends.process` and `backends.docker` lease addresses, make links and launch processes.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput, WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.cluster import queries
from ackproof.cluster.backends.links import CLIENTS_BY_PROXY, Paths
from ackproof.cluster.clocks import NodeClock
from ackproof.cluster.disks import file_systems
from ackproof.cluster.disks.node_disk import NodeDisk, disks_of, make_all
from ackproof.cluster.install import Installation, environment_of, install, with_features
from ackproof.cluster.metadata import metadata_of
from ackproof.cluster.metadata.protocol import ASK_S, MetadataQuorum
from ackproof.cluster.node import NodeFiles, NodeProcess, ProcessNode, Watcher
from ackproof.cluster.properties import check_settings, render, settings
from ackproof.cluster.protocol import Cluster, NodeEvent, NodeState, OnNodeEvent
from ackproof.cluster.queries import PartitionState
from ackproof.cluster.readiness import Readiness, create_topics, give_head_start
from ackproof.experiment.backends import Need
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.network.addresses import Address, Addresses, Layout, Lease, acquire_lease, hosts_file
from ackproof.network.meshes import MeshWiring, ProxyMesh
from ackproof.network.requests.links import RequestLinks, RequestWiring
from ackproof.network.wire import Access, Connection
from ackproof.provision.checkpoint import new_cluster_id
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.provision.tools import exporter_settings
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import NodeStarted

START_WITHIN_S: Final = 90.0
"""Time-out in seconds of a cluster's start. Even without a class-data archive a loaded machine takes a tenth of it."""
FREE_WITHIN_S: Final = 60.0  # longer than any ZooKeeper session lives after its process


class OwnCluster(Cluster, contextlib.AbstractContextManager["OwnCluster"]):
    """A cluster that ackproof starts itself; a backend implements the abstract methods.

    `nodes_dir` gets a folder per node. `on_event` is called, on any thread, with starts and ends of nodes and ends of
    proxies. `tag` marks its processes. Without `installed`, `start` finds or makes the installation and reports to
    `progress`. `needs`: preparations that faults require. Raises `BadInput` for invalid settings.
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
        check_settings(spec)
        self.spec = spec
        self.nodes_dir = nodes_dir.absolute()
        self._tag = tag
        self._on_event = on_event
        self._progress = progress
        self._installation = installed
        self._needs = needs
        self._clocks = Need.CLOCKS in needs
        self._cluster_id = new_cluster_id()
        self._nodes: dict[int, ProcessNode] = {}
        self._links: dict[int, Connection] = {}
        self._quorum: MetadataQuorum | None = None
        self._disks: dict[int, NodeDisk] = {}
        self._lease: Lease | None = None
        self._layout: Layout | None = None
        self._paths = Paths(self._make_mesh, self._make_requests, on_event)
        self._without_archive: list[int] = []
        self._builds: dict[int, Installation] = {}
        """Installations, by node id, of nodes that run another Kafka than the cluster."""
        self._jars: frozenset[Path] = frozenset()  # of every other Kafka that a node ran
        self._watcher: Watcher | None = None
        self._ending = False

    # -- added by a backend -------------------------------------------------------------------------------------------

    @abstractmethod
    def _take_addresses(self, node_ids: tuple[int, ...]) -> Addresses:
        """Lease addresses for all nodes before files are written. Keep the lease in `_lease`; return the addresses."""

    def _make_mesh(self, wiring: MeshWiring) -> ProxyMesh:
        """Return the links that faults can cut or slow, here through Toxiproxy. Called only if the run has such
        faults."""
        return ProxyMesh(wiring)

    def _make_requests(self, wiring: RequestWiring) -> RequestLinks:
        """Return the links through the request proxy, which can hold, drop, delay, repeat or answer single requests.
        Called only if a fault needs the proxy, before `_make_mesh`."""
        return RequestLinks(wiring)

    def _lay_more(self, files: NodeFiles) -> None:
        """Write the files that only some clusters need: here the metrics exporter's settings. A backend adds more."""
        if Need.METRICS in self._needs:
            files.exporter.write_text(exporter_settings(), encoding="utf-8")

    @abstractmethod
    def _launch(self, node: ProcessNode) -> NodeProcess:
        """Start a process for the node and return it."""

    def _launch_together(self, nodes: Sequence[ProcessNode]) -> None:
        """Start these nodes for the first time; a backend may start them at the same time."""
        for node in nodes:
            node.start()

    @abstractmethod
    def _uses_archive(self, node: ProcessNode) -> bool:
        """Return True if the node's JVM uses its class-data archive; Java ignores an unfit one silently."""

    def _give_back(self) -> None:
        """Release addresses and links after every node is gone. May be called again."""
        with contextlib.ExitStack() as ends:
            if self._lease is not None:
                ends.callback(self._lease.release)
            self._paths.end()

    def use_build(self, node_id: int, build: KafkaBuild) -> None:
        self._builds[node_id] = install(build, self._progress)
        self._jars = self._jars.union(self._builds[node_id].jars.classpath)

    def jars(self) -> frozenset[Path]:
        return self._jars.union(self._installed.jars.classpath)

    def environment(self) -> dict[str, str]:
        return environment_of(self._installed, self._without_archive, self.spec)

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float = START_WITHIN_S) -> None:
        """Start all nodes, controllers first; return when every broker answers and sees all brokers unfenced.

        Brokers of `start_order` start one after the other. `timeout_s`: limit in seconds for each of them, then for all
        others. Raises `NodeDied` as soon as a node ends, `WaitTimeout` after a limit; then `stop` cleans up. Raises
        `BadInput` if it was started before. Errors of installation, addresses, links and disks are passed on.
        """
        if self._watcher is not None:
            raise BadInput("this cluster was started already")
        ids = tuple(dict.fromkeys((*self.spec.broker_ids, *self.spec.controller_ids)))
        addresses = self._take_addresses(ids)
        installed = self._installation or install(self.spec.kafka, self._progress)
        self._installation = with_features(installed, self.spec.features, self._progress)
        self._layout = layout = Layout(self.spec, addresses, bool(CLIENTS_BY_PROXY & self._needs))
        if self._lease is not None:
            self._paths.lay(layout, self._needs, self.nodes_dir, self._tag, self._pid, self._lease.descriptor)
        self._watcher = watcher = Watcher()
        servers = {node_id: addresses.controller(node_id) for node_id in self.spec.controller_ids}
        self._quorum = metadata_of(self.spec).quorum(
            servers, lambda node: self._nodes[node].state() is NodeState.RUNNING
        )
        # Controllers first: brokers have to wait for them.
        order = sorted(layout.node_ids, key=layout.is_broker)
        own = file_systems.to_be_made(self._needs)
        # Set before the disks are made: if making one fails, `stop` unmounts the others.
        self._disks = disks_of(self.spec, self.nodes_dir, order, self._lay_data, systems_of_their_own=own)
        if own:
            make_all(self._disks.values(), self.spec.disk, self._tag.run_id)
        for node_id in order:
            files = NodeFiles(self.nodes_dir / str(node_id))
            self._lay_out(node_id, files)
            self._nodes[node_id] = self._make_node(node_id, files, watcher)
            if layout.is_broker(node_id):
                address = layout.addresses.client(node_id)
                self._links[node_id] = Connection(address, timeout_s=ASK_S, access=self.access)
        isolated = [node for node in self._nodes.values() if not node.is_broker]
        self._launch_together(isolated)
        give_head_start(isolated)
        for node_id in self.spec.start_order:
            self._nodes[node_id].start()
            self._await_ready(self._nodes[node_id], timeout_s)
        others = [broker for broker in self.spec.broker_ids if broker not in self.spec.start_order]
        self._launch_together([self._nodes[broker] for broker in others])
        waiting, readiness, all_brokers = dict(self._nodes), self._readiness, self.spec.broker_ids

        def all_ready() -> bool:
            self.check()
            while waiting and readiness.sees(next(iter(waiting.values())), all_brokers):
                del waiting[next(iter(waiting))]
            return not waiting

        wait_until(
            all_ready,
            what=f"{len(self._nodes)} nodes to be registered and unfenced",
            timeout_s=timeout_s,
            state=lambda: f"not yet: {', '.join(node.name for node in waiting.values())}",
            logs=lambda: next(iter(waiting.values())).log_tail(),
        )
        self._without_archive = [i for i, node in self._nodes.items() if not self._uses_archive(node)]

    def stop(self) -> None:
        """End every node by SIGKILL. May be called at any time and again. Raises `WaitTimeout` if a process outlives
        SIGKILL for 10 s. Raises `DiskError`, `LinkError` or `EngineFailed` if disks, links or containers stay."""
        self._ending = True
        for disk in self._disks.values():
            disk.thaw()
        for node in self._nodes.values():
            node.kill()
        with (
            contextlib.ExitStack() as ends
        ):  # in reverse order; one that fails keeps none of the others from its end
            for disk in self._disks.values():
                ends.callback(disk.unmount)
            ends.callback(self._give_back)
            for one in (self._quorum, *self._links.values(), self._watcher):
                if one is not None:
                    ends.callback(one.close)

    def remove_data(self) -> None:
        """Remove the data folders of all nodes, the images of their file systems, and the copies that faults made."""
        for disk in self._disks.values():
            disk.remove()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- nodes and addresses--------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[int, ProcessNode]:
        return self._nodes

    @property
    def layout(self) -> Layout:
        """Nodes and their addresses. Raises `BadInput` before `start`."""
        if self._layout is None:
            raise BadInput("this cluster was not started")
        return self._layout

    @property
    def bootstrap(self) -> str:
        return ",".join(str(self.layout.advertised(broker)) for broker in self.spec.broker_ids)

    @property
    def access(self) -> Access:
        return metadata_of(self.spec).access

    def client_addresses(self) -> dict[int, Address]:
        return {broker: self.layout.addresses.client(broker) for broker in self.spec.broker_ids}

    def exporters(self) -> dict[int, Address]:
        return self.layout.exporters() if Need.METRICS in self._needs else {}

    @property
    def mesh(self) -> ProxyMesh | None:
        return self._paths.mesh

    @property
    def requests(self) -> RequestLinks | None:
        return self._paths.requests

    # -- state --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `NodeDied` if a node died by itself, `LinkError` if the mesh's proxy died or packet rules failed."""
        for node in self._nodes.values():
            if node.death is not None:
                raise node.death
        self._paths.check()

    def controller(self) -> int | None:
        return None if self._quorum is None else self._quorum.controller()

    def metadata_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        return {} if self._quorum is None else self._quorum.partitions(topics)

    def registered(self) -> frozenset[int] | None:
        return self.quorum.registered()

    def create_topics(self, topics: Mapping[str, TopicSpec], timeout_s: float = 30.0) -> None:
        create_topics(self, topics, timeout_s)
        for disk in self._disks.values():
            disk.sync()

    def running_links(self) -> dict[int, Connection]:
        return {i: link for i, link in self._links.items() if self._nodes[i].state() is NodeState.RUNNING}

    @property
    def quorum(self) -> MetadataQuorum:
        """The servers that keep the metadata. Raises `BadInput` before `start`."""
        if self._quorum is None:
            raise BadInput("this cluster was not started")
        return self._quorum

    def admin_link(self) -> Connection | None:
        links = self.running_links()
        if self.spec.metadata.broker_controls:
            return links.get(self.controller() or -1)
        return queries.first_answering_link(links)

    # -- internals-----------------------------------------------------------------------------------------------------

    @property
    def _installed(self) -> Installation:
        if self._installation is None:
            raise BadInput("this cluster was not started")
        return self._installation

    @property
    def _readiness(self) -> Readiness:
        return Readiness(self.quorum, self._links, self.running_links)

    def _pid(self, node_id: int) -> int | None:
        node = self._nodes.get(node_id)
        return node.pid if node is not None and node.alive else None

    def _acquire_lease(self, node_ids: Sequence[int]) -> Lease:
        return acquire_lease(node_ids, holder=f"{self._tag.run_id} {self._tag.case_dir}")

    def _lay_data(self, node_id: int) -> None:
        """Format the node's empty data folders for this cluster."""
        data, checkpoint = self._disks[node_id].data, self._installed.checkpoint
        metadata_of(self.spec).lay_data(self.layout, node_id, data, checkpoint, self._cluster_id)

    def _lay_out(self, node_id: int, files: NodeFiles) -> None:
        """Write a node's server.properties, hosts file and a backend's files (`_lay_more`); format its data folders."""
        files.folder.mkdir(parents=True, exist_ok=True)
        files.properties.write_text(render(settings(self.layout, node_id, files.data.name)), encoding="utf-8")
        self._lay_data(node_id)
        address = self.layout.addresses.node
        others = (peer for peer in self.layout.node_ids if peer != node_id)
        peers = {peer: self._paths.route(node_id, peer) or address(peer) for peer in others}
        files.hosts.write_text(hosts_file(node_id, address(node_id), peers), encoding="utf-8")
        self._lay_more(files)

    def _make_node(self, node_id: int, files: NodeFiles, watcher: Watcher) -> ProcessNode:
        clock = NodeClock(files.clock, files.log, self.layout.listens(node_id)) if self._clocks else None
        if clock is not None:
            clock.shift(0.0)
        return ProcessNode(
            node_id,
            f"{self.layout.title(node_id)}-{node_id}",
            is_broker=self.layout.is_broker(node_id),
            is_controller=self.layout.is_controller(node_id),
            files=files,
            disk=self._disks[node_id],
            launch=partial(self._launch_when_free, node_id),
            watcher=watcher,
            on_event=self._forward,
            ready=self._await_ready,
            clock=clock,
        )

    def _launch_when_free(self, node_id: int) -> NodeProcess:
        """Start a process for the node. A broker exits if ZooKeeper still has its old registration: first wait, 60 s at
        most, for the end of its last session. Raises `BadInput` if the cluster has ended."""
        quorum = self._quorum
        if quorum is not None and self._nodes[node_id].pid is not None:
            with contextlib.suppress(WaitTimeout):
                wait_until(
                    lambda: self._ending or not quorum.bars(node_id),
                    what=f"the last session of node {node_id} to end",
                    timeout_s=FREE_WITHIN_S,
                )
        if self._ending:
            raise BadInput(f"node {node_id} cannot be started: the cluster has ended")
        return self._launch(self._nodes[node_id])

    def _forward(self, event: NodeEvent) -> None:
        self._on_event(event)
        if isinstance(event.what, NodeStarted) and event.node is not None:
            self._paths.renew(event.node)

    def _await_ready(self, node: ProcessNode, timeout_s: float) -> None:
        def ready() -> bool:
            if node.death is not None:
                raise node.death
            return self._readiness.takes_part(node)

        wait_until(
            ready,
            what=f"{node.name} to answer, registered and unfenced",
            timeout_s=timeout_s,
            state=lambda: node.state().value,
            logs=node.log_tail,
        )
