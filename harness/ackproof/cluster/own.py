"""A cluster of our own, whatever its nodes run in: their lives in order, and questions through the protocol.

A backend lays the ground and launches: `backends.process` and `backends.docker`.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Self

from ackproof.base.errors import BadInput, WaitTimeout
from ackproof.base.processes import RunTag
from ackproof.base.wait import wait_until
from ackproof.cluster import queries
from ackproof.cluster.access import Access
from ackproof.cluster.addresses import Address
from ackproof.cluster.asked import AskedCluster
from ackproof.cluster.backends.process.node import NodeFiles, ProcessNode, stop_together
from ackproof.cluster.clocks import NodeClock
from ackproof.cluster.disks.node_disk import Disks
from ackproof.cluster.layout import Layout
from ackproof.cluster.metadata.choice import metadata_of
from ackproof.cluster.metadata.protocol import ASK_S, MetadataQuorum
from ackproof.cluster.network.mesh import Mesh
from ackproof.cluster.properties import check_settings
from ackproof.cluster.protocol import (
    NodeState,
    OnNodeEvent,
    PartitionState,
)
from ackproof.cluster.topics import create_topics
from ackproof.cluster.watcher import Served, Watcher
from ackproof.cluster.wire import Connection, WireError
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.provision.checkpoint import new_cluster_id
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.rundir.partition import TopicPartition

START_WITHIN_S: Final = 90.0
"""A cold cluster without an archive on a loaded machine takes a tenth of this."""
GRACEFUL_WITHIN_S: Final = 10.0
HEAD_START_S: Final = 1.0
FREE_WITHIN_S: Final = 60.0
"""More than any session that ends by itself."""


class OwnCluster(AskedCluster):
    """What the clusters of all backends have in common.

    `nodes_dir` gets a folder per node; `on_event` hears of every node that starts or ends, the moment it does, on
    another thread. `progress` tells of what has to be made first. Nothing is started before `start`.

    Raises `BadInput` for settings that cannot be.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        nodes_dir: Path,
        tag: RunTag,
        on_event: OnNodeEvent,
        *,
        progress: ProgressSink = ignore,
    ) -> None:
        check_settings(spec)
        self.spec = spec
        self.nodes_dir = nodes_dir.absolute()
        self._tag = tag
        self._on_event = on_event
        self._progress = progress
        self._nodes: dict[int, ProcessNode] = {}
        self._links: dict[int, Connection] = {}
        self._quorum: MetadataQuorum | None = None
        self._disks = Disks()
        self._own_disks = False
        self._clocks = False
        self._layout: Layout | None = None
        self._watcher: Watcher | None = None
        self._ending = False

    # -- what a backend adds ------------------------------------------------------------------------------------------

    @abstractmethod
    def _lay_ground(self, node_ids: tuple[int, ...]) -> Layout:
        """Provide what all nodes need (jars or an image, addresses) before any of them is laid out."""

    @abstractmethod
    def _lay_out(self, layout: Layout, node_id: int, files: NodeFiles, cluster_id: str) -> None:
        """Write the files of a node for its first start."""

    def _lay_data(self, layout: Layout, cluster_id: str, node_id: int) -> None:
        """Write what a node's empty data folders must hold for a start; nothing where it formats them itself."""

    @abstractmethod
    def _launch(self, node_id: int) -> Served:
        """Start a process for the node. Raises `BadInput` when the cluster has ended."""

    def _launch_together(self, nodes: Sequence[ProcessNode]) -> None:
        """The first start of several nodes."""
        for node in nodes:
            node.start()

    def _all_started(self) -> None:
        """Every node is ready: look at what can be seen only now."""

    @abstractmethod
    def _give_back(self) -> None:
        """Every node is gone: give back what `_lay_ground` took. May be called again."""

    def use_release(self, node_id: int, version: str) -> None:
        """See `Cluster`. A backend may not be able to."""
        raise BadInput(f"node {node_id} cannot change to Kafka {version}: not possible on this backend")

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Versions, machine and load, for the report. Raises `BadInput` before `start`."""

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float = START_WITHIN_S) -> None:
        """Start all nodes at once; returns when every broker answers and sees all of them unfenced.

        Raises `NodeDied` as soon as a node ends, `WaitTimeout` after `timeout_s` seconds; then `stop` cleans up.
        """
        if self._watcher is not None:
            raise BadInput("this cluster was started already")
        ids = tuple(dict.fromkeys((*self.spec.broker_ids, *self.spec.controller_ids)))
        self._layout = layout = self._lay_ground(ids)
        self._watcher = watcher = Watcher()
        self._quorum = self._make_quorum(layout)
        cluster_id = new_cluster_id()
        # Controllers first: brokers have to wait for them.
        order = (*layout.isolated_controllers, *layout.spec.broker_ids)
        lay = partial(self._lay_data, layout, cluster_id)
        self._disks.make(self.spec, self.nodes_dir, order, lay, self._tag.run_id if self._own_disks else None)
        for node_id in order:
            files = NodeFiles(self.nodes_dir / str(node_id))
            self._lay_out(layout, node_id, files, cluster_id)
            self._nodes[node_id] = self._make_node(layout, node_id, files, watcher)
            if layout.is_broker(node_id):
                address = layout.addresses.client(node_id)
                self._links[node_id] = Connection(address, timeout_s=ASK_S, access=self.access)
        isolated = [node for node in self._nodes.values() if not node.is_broker]
        self._launch_together(isolated)
        self._give_head_start(isolated)
        self._launch_together(self.brokers())
        waiting = dict(self._nodes)

        def all_ready() -> bool:
            self.check()
            for node_id, node in list(waiting.items()):
                if not self._is_ready(node, all_brokers=True):
                    return False
                del waiting[node_id]
            return True

        wait_until(
            all_ready,
            what=f"{len(self._nodes)} nodes to be registered and unfenced",
            timeout_s=timeout_s,
            state=lambda: f"not yet: {', '.join(node.name for node in waiting.values())}",
            logs=lambda: next(iter(waiting.values())).log_tail(),
        )
        self._all_started()

    def stop(self, *, graceful: bool = False, timeout_s: float = GRACEFUL_WITHIN_S) -> list[int]:
        """End every node: brokers before controllers, by SIGTERM if `graceful`, else by SIGKILL at once.

        Returns the nodes that did not shut down within `timeout_s` seconds and were killed. May be called at any
        time and again; afterwards no node can be started.
        """
        self._ending = True
        late: list[int] = []
        if graceful:
            isolated = [node for node in self._nodes.values() if not node.is_broker]
            for group in ([node for node in self._nodes.values() if node.is_broker], isolated):
                late += stop_together(group, timeout_s)
        self._disks.thaw()
        for node in self._nodes.values():
            node.kill()
        try:
            if self._watcher is not None:
                self._watcher.close()
        finally:
            for link in self._links.values():
                link.close()
            if self._quorum is not None:
                self._quorum.close()
            self._give_back()
        self._disks.unmount()
        return late

    def remove_data(self) -> None:
        """Remove `nodes/*/data` and the file systems below it, and nothing else."""
        self._disks.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- who and where ----------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[int, ProcessNode]:
        """All nodes by id; empty before `start`."""
        return self._nodes

    def node(self, node_id: int) -> ProcessNode:
        """The node with this id. Raises `BadInput` when there is none."""
        try:
            return self._nodes[node_id]
        except KeyError:
            known = ", ".join(map(str, sorted(self._nodes))) or "none"
            raise BadInput(f"there is no node {node_id}; there are: {known}") from None

    def brokers(self) -> tuple[ProcessNode, ...]:
        """The brokers by id."""
        return tuple(node for _, node in sorted(self._nodes.items()) if node.is_broker)

    def controllers(self) -> tuple[ProcessNode, ...]:
        """Those that keep the metadata, by id: the quorum's voters, or the ZooKeeper servers."""
        return tuple(node for _, node in sorted(self._nodes.items()) if node.is_controller)

    @property
    def layout(self) -> Layout:
        """Who listens where. Raises `BadInput` before `start`."""
        if self._layout is None:
            raise BadInput("this cluster was not started")
        return self._layout

    @property
    def bootstrap(self) -> str:
        """For clients: all brokers' addresses."""
        return ",".join(str(self.layout.advertised(broker)) for broker in self.spec.broker_ids)

    @property
    def access(self) -> Access:
        """How its nodes are spoken to."""
        return metadata_of(self.spec).access

    def client_addresses(self) -> dict[int, Address]:
        """Where each broker listens for clients, past all proxies."""
        return {broker: self.layout.addresses.client(broker) for broker in self.spec.broker_ids}

    @property
    def mesh(self) -> Mesh | None:
        """Its links, where faults need to break some and this backend can."""
        return None

    # -- what it says -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises `NodeDied` when a node has died by itself and was not started again."""
        for node in self._nodes.values():
            if node.death is not None:
                raise node.death

    def controller(self) -> int | None:
        """The active controller, as those say that keep the metadata."""
        return None if self._quorum is None else self._quorum.controller()

    def metadata_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """What the metadata quorum itself holds, where it tells."""
        return {} if self._quorum is None else self._quorum.partitions(topics)

    def create_topics(self, topics: Mapping[str, TopicSpec], timeout_s: float = 30.0) -> None:
        """Create topics; returns when every running broker sees each leader and each ISR full, and leaders answer.

        Raises `BadInput` for what Kafka refuses, `NodeDied`, `WaitTimeout`.
        """
        create_topics(self, topics, timeout_s)
        self._disks.sync()

    def running_links(self) -> dict[int, Connection]:
        """A connection to each broker whose process runs (not paused), for questions through `queries`."""
        return {i: link for i, link in self._links.items() if self._nodes[i].state() is NodeState.RUNNING}

    @property
    def quorum(self) -> MetadataQuorum:
        """The servers that keep the metadata, looked at from outside. Raises `BadInput` before `start`."""
        if self._quorum is None:
            raise BadInput("this cluster was not started")
        return self._quorum

    def admin_link(self) -> Connection | None:
        """A connection to a broker that takes changes: any that runs, or the controller where it alone does."""
        links = self.running_links()
        if self.spec.metadata.broker_controls:
            return links.get(self.controller() or -1)
        return next(iter(links.values()), None)

    # -- within -------------------------------------------------------------------------------------------------------

    def _give_head_start(self, controllers: list[ProcessNode]) -> None:
        """Let controllers reach their first log line (0.3 s) before brokers compete with them for cores.

        Brokers that find no quorum back off and come later than they would have: worth 0.1 to 0.3 s on two cores.
        """
        with contextlib.suppress(WaitTimeout):
            wait_until(
                lambda: all(node.files.log.exists() or not node.alive for node in controllers),
                what="controllers to log",
                timeout_s=HEAD_START_S,
                interval_s=0.005,
            )

    def _make_quorum(self, layout: Layout) -> MetadataQuorum:
        addresses = {node_id: layout.addresses.controller(node_id) for node_id in layout.spec.controller_ids}
        return metadata_of(self.spec).quorum(
            addresses, lambda node_id: self._nodes[node_id].state() is NodeState.RUNNING
        )

    def _make_node(self, layout: Layout, node_id: int, files: NodeFiles, watcher: Watcher) -> ProcessNode:
        return ProcessNode(
            node_id,
            broker=layout.is_broker(node_id),
            controller=layout.is_controller(node_id),
            name=f"{layout.title(node_id)}-{node_id}",
            files=files,
            disk=self._disks[node_id],
            launch=partial(self._launch_when_free, node_id),
            watcher=watcher,
            on_event=self._on_event,
            await_ready=self._await_ready,
            clock=self._make_clock(layout, node_id, files) if self._clocks else None,
        )

    @staticmethod
    def _make_clock(layout: Layout, node_id: int, files: NodeFiles) -> NodeClock:
        addresses = layout.addresses
        address = addresses.client if layout.is_broker(node_id) else addresses.controller
        clock = NodeClock(files.clock, files.log, address(node_id))
        clock.shift(0.0)
        return clock

    def _launch_when_free(self, node_id: int) -> Served:
        """Launch; with ZooKeeper a broker that was killed only once its session has ended, as it would exit."""
        quorum = self._quorum
        if quorum is not None and self._nodes[node_id].pid is not None:
            with contextlib.suppress(WaitTimeout):
                wait_until(
                    lambda: self._ending or not quorum.bars(node_id),
                    what=f"the last session of node {node_id} to end",
                    timeout_s=FREE_WITHIN_S,
                )
        return self._launch(node_id)

    def _is_ready(self, node: ProcessNode, *, all_brokers: bool) -> bool:
        """Whether the node answers and takes part. `all_brokers`: and sees every broker of the cluster unfenced."""
        try:
            if node.is_controller and not (self._quorum and self._quorum.serves(node.id)):
                return False
            if not node.is_broker:
                return True
            own_view = queries.brokers(self._links[node.id], ASK_S / 2)
            if all_brokers:
                return own_view >= set(self.spec.broker_ids)
            return node.id in own_view and self._peers_see(node.id)
        except WireError:
            return False

    def _peers_see(self, broker: int) -> bool:
        """Whether the first other broker that answers sees it unfenced: its own view may be as old as its pause."""
        for peer, link in self.running_links().items():
            if peer == broker:
                continue
            with contextlib.suppress(WireError):
                return broker in queries.brokers(link, ASK_S / 2)
        return True

    def _await_ready(self, node: ProcessNode, timeout_s: float) -> None:
        def ready() -> bool:
            if node.death is not None:
                raise node.death
            return self._is_ready(node, all_brokers=False)

        wait_until(
            ready,
            what=f"{node.name} to answer, registered and unfenced",
            timeout_s=timeout_s,
            state=lambda: node.state().value,
            logs=node.log_tail,
        )
