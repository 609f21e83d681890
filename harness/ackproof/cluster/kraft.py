"""A KRaft cluster, whatever its nodes run in: their lives in order, and questions through the protocol.

A backend lays the ground and launches: `ackproof.cluster.process` and `ackproof.cluster.docker`.
"""

from __future__ import annotations

import contextlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ackproof.cluster import queries
from ackproof.cluster.addresses import Address
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
from ackproof.cluster.watcher import Served, Watcher
from ackproof.cluster.wire import Connection, WireError
from ackproof.errors import BadInput, WaitTimeout
from ackproof.network.mesh import Mesh
from ackproof.plan.spec import ClusterSpec, TopicSpec
from ackproof.processes import RunTag
from ackproof.provision.checkpoint import new_cluster_id
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.wait import wait_until

START_WITHIN_S: Final = 90.0
"""A cold cluster without an archive on a loaded machine takes a tenth of this."""
GRACEFUL_WITHIN_S: Final = 10.0
HEAD_START_S: Final = 1.0
_ASK_S: Final = 1.0
"""How long one look at one node may take."""


class KraftCluster(ABC):
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
        self._quorum_links: dict[int, Connection] = {}
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

    @abstractmethod
    def _launch(self, node_id: int) -> Served:
        """Start a process for the node. Raises `BadInput` when the cluster has ended."""

    def _launch_together(self, nodes: Sequence[ProcessNode]) -> None:
        """The first start of several nodes."""
        for node in nodes:
            node.start()

    def _all_started(self) -> None:  # noqa: B027 — a backend may have nothing to look at
        """Every node is ready: look at what can be seen only now."""

    @abstractmethod
    def _give_back(self) -> None:
        """Every node is gone: give back what `_lay_ground` took. May be called again."""

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
        cluster_id = new_cluster_id()
        # Controllers first: brokers have to wait for them.
        for node_id in (*layout.isolated_controllers, *layout.spec.broker_ids):
            files = NodeFiles(self.nodes_dir / str(node_id))
            self._lay_out(layout, node_id, files, cluster_id)
            self._nodes[node_id] = self._make_node(layout, node_id, files, watcher)
            if layout.is_broker(node_id):
                self._links[node_id] = Connection(layout.addresses.client(node_id), timeout_s=_ASK_S)
            if layout.is_controller(node_id):
                self._quorum_links[node_id] = Connection(
                    layout.addresses.controller(node_id), timeout_s=_ASK_S
                )
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
                late += _stop_together(group, timeout_s)
        for node in self._nodes.values():
            node.kill()
        try:
            if self._watcher is not None:
                self._watcher.close()
        finally:
            for link in (*self._links.values(), *self._quorum_links.values()):
                link.close()
            self._give_back()
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
        return ",".join(str(self.layout.advertised(broker)) for broker in self.spec.broker_ids)

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
