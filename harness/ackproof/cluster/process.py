"""The process backend: a KRaft cluster of real Kafka nodes, each a JVM of this machine."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ackproof.cluster import lease, queries
from ackproof.cluster.addresses import Address, Route
from ackproof.cluster.environment import environment_of
from ackproof.cluster.install import install, with_features
from ackproof.cluster.launch import Installation, Role, command, launch, write_files, write_hosts
from ackproof.cluster.node import NodeFiles, ProcessNode
from ackproof.cluster.properties import Layout, check_settings
from ackproof.cluster.protocol import (
    NodeState,
    OnNodeEvent,
    PartitionEnds,
    PartitionState,
    TopicPartition,
)
from ackproof.cluster.topics import create_topics
from ackproof.cluster.views import ends_at, merge
from ackproof.cluster.watcher import Watcher
from ackproof.cluster.wire import Connection, WireError
from ackproof.errors import BadInput, WaitTimeout
from ackproof.plan.spec import ClusterSpec, TopicSpec
from ackproof.processes import Child, RunTag
from ackproof.provision.archive import archive_in_use
from ackproof.provision.checkpoint import new_cluster_id
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.wait import wait_until

START_WITHIN_S: Final = 90.0
"""A cold cluster without an archive on a loaded machine takes a tenth of this."""
GRACEFUL_WITHIN_S: Final = 10.0
HEAD_START_S: Final = 1.0
_ASK_S: Final = 1.0
"""How long one look at one node may take."""


class ProcessCluster:
    """A cluster of JVMs on leased loopback addresses.

    `nodes_dir` gets a folder per node; `on_event` hears of every node that starts or ends, the moment it does, on
    another thread. `installed` is found or made by provisioning when it is not given (`progress` tells of it).
    `route` says where a node reaches a peer. Nothing is started before `start`.

    Raises `BadInput` for settings that cannot be.
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
        route: Callable[[Layout], Route] = lambda layout: layout.addresses.direct,
    ) -> None:
        check_settings(spec)
        self.spec = spec
        self.nodes_dir = nodes_dir.absolute()
        self._tag = tag
        self._on_event = on_event
        self._installed = installed
        self._progress = progress
        self._route = route
        self._nodes: dict[int, ProcessNode] = {}
        self._links: dict[int, Connection] = {}
        self._quorum_links: dict[int, Connection] = {}
        self._lease: lease.Lease | None = None
        self._layout: Layout | None = None
        self._watcher: Watcher | None = None
        self._ending = False
        self._without_archive: list[int] = []

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float = START_WITHIN_S) -> None:
        """Start all nodes at once; returns when every broker answers and sees all of them unfenced.

        Raises `NodeDied` as soon as a node ends, `WaitTimeout` after `timeout_s` seconds; then `stop` cleans up.
        """
        if self._watcher is not None:
            raise BadInput("this cluster was started already")
        installed = self._installed or install(self.spec.kafka, self._progress)
        self._installed = installed = with_features(installed, self.spec.features, self._progress)
        ids = tuple(dict.fromkeys((*self.spec.broker_ids, *self.spec.controller_ids)))
        self._lease = lease.acquire(ids, holder=f"{self._tag.run_id} {self._tag.case_dir}")
        self._layout = layout = Layout(self.spec, self._lease.addresses)
        self._watcher = watcher = Watcher()
        cluster_id, route = new_cluster_id(), self._route(layout)
        # Controllers first: brokers have to wait for them.
        for node_id in (*layout.isolated_controllers, *layout.spec.broker_ids):
            files = NodeFiles(self.nodes_dir / str(node_id))
            write_files(layout, node_id, files, installed, cluster_id)
            write_hosts(layout, node_id, files, route)
            self._nodes[node_id] = self._make_node(layout, node_id, files, watcher)
            if layout.is_broker(node_id):
                self._links[node_id] = Connection(layout.addresses.client(node_id), timeout_s=_ASK_S)
            if layout.is_controller(node_id):
                self._quorum_links[node_id] = Connection(
                    layout.addresses.controller(node_id), timeout_s=_ASK_S
                )
        isolated = [node for node in self._nodes.values() if not node.is_broker]
        for node in isolated:
            node.start()
        self._give_head_start(isolated)
        for broker in self.brokers():
            broker.start()
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
        # Java drops an archive that does not fit without a word.
        self._without_archive = [i for i, node in self._nodes.items() if not _uses_archive(node, installed)]

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
                late += _stop_together(group, timeout_s)
        for node in self._nodes.values():
            node.kill()
        try:
            if self._watcher is not None:
                self._watcher.close()
        finally:
            for link in (*self._links.values(), *self._quorum_links.values()):
                link.close()
            if self._lease is not None:
                self._lease.release()
        return late

    def remove_data(self) -> None:
        """Remove `nodes/*/data`, and nothing else."""
        for data in self.nodes_dir.glob("*/data"):
            shutil.rmtree(data, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """The quorum's voters by id."""
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
        return ",".join(str(address) for address in self.client_addresses().values())

    def client_addresses(self) -> dict[int, Address]:
        """Where clients reach each broker."""
        return {broker: self.layout.addresses.client(broker) for broker in self.spec.broker_ids}

    # -- what it says -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises `NodeDied` when a node has died by itself and was not started again."""
        for node in self._nodes.values():
            if node.death is not None:
                raise node.death

    def controller(self) -> int | None:
        """The active controller: of those that say that they lead the quorum, the one with the newest epoch."""
        leads = []
        for node_id, link in self._quorum_links.items():
            if self._nodes[node_id].state() is NodeState.RUNNING:
                with contextlib.suppress(WireError):
                    quorum = queries.quorum(link)
                    leads.append((quorum.epoch, quorum.leader))
        return max(leads)[1] if leads else None

    def topic_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """The partitions of these topics as the running brokers see them; the newest leader epoch wins."""
        wanted = tuple(topics)
        views = []
        for link in self.running_links().values():
            with contextlib.suppress(WireError):
                views.append(queries.partitions(link, wanted))
        return merge(views)

    def partition_ends(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionEnds]:
        """Offsets of every partition, asked at its leader; one without a leader that answers is missing."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for place, state in self.topic_state(topics).items():
            by_leader.setdefault(state.leader, []).append(place)
        found: dict[TopicPartition, PartitionEnds] = {}
        for leader, places in by_leader.items():
            if leader in self._links and self._nodes[leader].state() is NodeState.RUNNING:
                with contextlib.suppress(WireError):
                    found |= ends_at(leader, self._links[leader], places)
        return found

    def create_topics(self, topics: Mapping[str, TopicSpec], timeout_s: float = 30.0) -> None:
        """Create topics; returns when every running broker sees each leader and each ISR full, and leaders answer.

        Raises `BadInput` for what Kafka refuses, `NodeDied`, `WaitTimeout`.
        """
        create_topics(self, topics, timeout_s)

    def environment(self) -> dict[str, str]:
        """Versions, machine and load, for the report."""
        if self._installed is None:
            raise BadInput("this cluster was not started")
        return environment_of(self._installed, self._without_archive)

    def running_links(self) -> dict[int, Connection]:
        """A connection to each broker whose process runs (not paused), for questions through `queries`."""
        return {i: link for i, link in self._links.items() if self._nodes[i].state() is NodeState.RUNNING}

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

    def _make_node(self, layout: Layout, node_id: int, files: NodeFiles, watcher: Watcher) -> ProcessNode:
        return ProcessNode(
            node_id,
            broker=layout.is_broker(node_id),
            controller=layout.is_controller(node_id),
            files=files,
            launch=partial(self._launch, node_id),
            watcher=watcher,
            on_event=self._on_event,
            await_ready=self._await_ready,
        )

    def _launch(self, node_id: int) -> Child:
        if self._ending or self._lease is None or self._installed is None:
            raise BadInput(f"node {node_id} cannot be started: the cluster has ended")
        node = self._nodes[node_id]
        argv = command(self.layout, node.files, self._installed, _role(node))
        return launch(
            argv, node.files, tag=self._tag, name=node.name, lease_descriptor=self._lease.descriptor
        )

    def _is_ready(self, node: ProcessNode, *, all_brokers: bool) -> bool:
        """Whether the node answers and takes part. `all_brokers`: and sees every broker of the cluster unfenced."""
        try:
            if node.is_controller and queries.quorum_leader(self._quorum_links[node.id], _ASK_S / 2) < 0:
                return False
            if not node.is_broker:
                return True
            own_view = queries.brokers(self._links[node.id], _ASK_S / 2)
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
                return broker in queries.brokers(link, _ASK_S / 2)
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


def _stop_together(nodes: list[ProcessNode], timeout_s: float) -> list[int]:
    """SIGTERM to all; those that still live after `timeout_s` seconds."""
    for node in nodes:
        node.terminate()
    try:
        wait_until(
            lambda: not any(node.alive for node in nodes), what="nodes to shut down", timeout_s=timeout_s
        )
    except WaitTimeout:
        return [node.id for node in nodes if node.alive]
    return []


def _role(node: ProcessNode) -> Role:
    """Whose archive fits it: a combined node runs what a broker runs, and more."""
    return "broker" if node.is_broker else "controller"


def _uses_archive(node: ProcessNode, installed: Installation) -> bool:
    archive = installed.archives.get(_role(node))
    return archive is not None and node.pid is not None and archive_in_use(node.pid, archive)
