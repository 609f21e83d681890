"""The interfaces that every backend implements: a `Cluster` of `Node`s."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ackproof.base.errors import BadInput, FaultNotConfirmed
from ackproof.cluster import queries
from ackproof.cluster.clocks import NodeClock
from ackproof.cluster.disks.node_disk import NodeDisk
from ackproof.cluster.queries import PartitionEnds, PartitionState
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.network.addresses import Address
from ackproof.network.mesh import Mesh
from ackproof.network.wire import Access, Connection, WireError
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import NodeDied, NodeEnded, NodeStarted, ProxyDied, Timeline

if TYPE_CHECKING:  # checks of experiment files need not load what runs proxies or reaches into JVMs
    from ackproof.cluster.code_rules import CodeAgent
    from ackproof.network.requests.links import RequestLinks


class NodeState(StrEnum):
    """State of a node's process, as the operating system knows it."""

    RUNNING = "running"
    """The node has a process, and not all threads of the process are stopped."""
    STOPPED = "stopped"
    """All threads of the node's process are stopped (SIGSTOP), or its container is frozen."""
    GONE = "gone"
    """The node has no process: it was never started, or its process has ended."""


@dataclass(frozen=True)
class NodeEvent:
    """A start or end of a node's process, or the end of a proxy (`node` None), as an event for the timeline."""

    node: int | None
    what: NodeStarted | NodeDied | NodeEnded | ProxyDied


OnNodeEvent = Callable[[NodeEvent], None]
"""Receiver of node events. It may be called on any thread."""


def to_timeline(timeline: Timeline) -> OnNodeEvent:
    """Return a receiver that writes node events into a run's timeline."""

    def write(event: NodeEvent) -> None:
        timeline.add(event.what, node=event.node)

    return write


@runtime_checkable
class Node(Protocol):
    """One node of a cluster, started by ackproof or attached."""

    @property
    def id(self) -> int:
        """Node id. In clusters that ackproof starts, brokers count from 1, isolated controllers and ZooKeeper servers
        from 101."""

    @property
    def name(self) -> str:
        """Name of the node in messages, such as `broker-1`."""

    @property
    def is_broker(self) -> bool:
        """True if the node is a broker, which can host replicas."""

    @property
    def is_controller(self) -> bool:
        """True if the node keeps the metadata: a voter of the quorum, or a ZooKeeper server."""

    def state(self) -> NodeState:
        """Return the state of the node's process now; `running` if the backend cannot know it."""

    def await_ready(self, timeout_s: float) -> None:
        """Wait until the node is ready.

        A broker is ready once it is registered and unfenced, a controller once it knows the quorum's leader, a
        ZooKeeper server once it answers requests. Raises `NodeDied` at once if its process has ended by itself,
        `WaitTimeout` after `timeout_s` seconds.
        """


@runtime_checkable
class LocalNode(Node, Protocol):
    """A node whose process and data are on this machine.

    If its process ends and none of these methods caused that, the node has died by itself (`NodeDied`). For a node in
    a container, methods that start, end, pause or resume it raise `EngineFailed` if the container engine fails.
    """

    @property
    def pid(self) -> int | None:
        """Process id of the node's present or last process; None before the first start."""

    @property
    def disk(self) -> NodeDisk:
        """The node's log dirs and file systems on this machine."""

    @property
    def clock(self) -> NodeClock | None:
        """The node's wall clock; None if the cluster was not made for setting clocks."""

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the node's log and of its output, at most `lines` of each; '' if there are none."""

    def start(self) -> None:
        """Start a process for the node without waiting until it is ready. In ZooKeeper mode a broker's restart first
        waits until its last session has ended, at most a minute. Raises `BadInput` if the node has a process, or if the
        cluster was stopped."""

    def kill(self) -> None:
        """Send SIGKILL to the node's process and return at once; does nothing if it has ended."""

    def terminate(self) -> None:
        """Send SIGTERM, which begins a controlled shutdown, and return at once; does nothing if the process has
        ended."""

    @property
    def exit_status(self) -> int | None:
        """Exit status of the node's last process (negative: the signal that ended it); None while a process runs, and
        before the first start."""

    def expect_end(self, status: int | None = None) -> None:
        """Until the next start, do not report an end of the node's process as `NodeDied`: a fault such as a full disk
        may cause it. `status`: only an end with this exit status is expected; None: any end."""

    def pause(self) -> None:
        """Send SIGSTOP to the node's process, or freeze its container; does nothing if it has ended."""

    def resume(self) -> None:
        """Send SIGCONT to the node's process, or thaw its container; does nothing if it has ended."""


def local(nodes: Iterable[Node]) -> tuple[LocalNode, ...]:
    """Check that each node is a process of this machine, so that faults can reach it and its data. Return the same
    nodes, typed as `LocalNode`. Raises `FaultNotConfirmed` if a process is out of reach.

    Before a run, validation refuses faults that need such nodes if the backend has none (`experiment.backends`).
    """
    found: list[LocalNode] = []
    for node in nodes:
        if not isinstance(node, LocalNode):
            raise FaultNotConfirmed(
                f"{node.name} belongs to a cluster that someone else runs: its process is out of reach"
            )
        found.append(node)
    return tuple(found)


def clock_of(node: Node) -> NodeClock:
    """Return the wall clock of a node. Raises `FaultNotConfirmed` if it cannot be set."""
    clock = node.clock if isinstance(node, LocalNode) else None
    if clock is None:
        raise FaultNotConfirmed(f"the clock of node {node.id} cannot be set: the cluster was not made for it")
    return clock


class Cluster(ABC):
    """A cluster under test. Its creator starts it, and must stop it in any case."""

    spec: ClusterSpec
    """The cluster as the experiment describes it."""

    @abstractmethod
    def start(self) -> None:
        """Start all nodes; return when every broker answers and sees all brokers unfenced. In an attached cluster, only
        find the brokers.

        Raises `NodeDied` as soon as a node ends, `WaitTimeout` if it takes too long; then `stop` cleans up. Raises
        `BadInput` if the cluster cannot be started or found.
        """

    @abstractmethod
    def stop(self) -> None:
        """End every node at once. For an attached cluster, only close the connections. May be called at any time and
        again; afterwards no node can be started."""

    @abstractmethod
    def remove_data(self) -> None:
        """Remove the data folders of all nodes; of an attached cluster, only delete the topics that were made for the
        run. The nodes' log files and settings stay."""

    # -- nodes and addresses ----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def nodes(self) -> Mapping[int, Node]:
        """Every node by its id, also those that are down; empty before the start. Of an attached cluster: the brokers
        that it listed at the start."""

    def node(self, node_id: int) -> Node:
        """Return the node with this id. Raises `BadInput` if the cluster has no such node."""
        try:
            return self.nodes[node_id]
        except KeyError:
            known = ", ".join(map(str, sorted(self.nodes))) or "none"
            raise BadInput(f"there is no node {node_id}; there are: {known}") from None

    def brokers(self) -> tuple[Node, ...]:
        """Return all brokers, also those that are down, sorted by node id."""
        return tuple(node for _, node in sorted(self.nodes.items()) if node.is_broker)

    def controllers(self) -> tuple[Node, ...]:
        """Return the quorum's voters or the ZooKeeper servers, also those that are down, sorted by node id. Empty for
        an attached cluster."""
        return tuple(node for _, node in sorted(self.nodes.items()) if node.is_controller)

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Bootstrap servers for clients: `address:port,…` of all brokers, with IP literals; of an attached cluster,
        as the user gave them."""

    @property
    @abstractmethod
    def access(self) -> Access:
        """Parameters for connecting to the nodes: API versions that they understand, and credentials."""

    @abstractmethod
    def client_addresses(self) -> Mapping[int, Address]:
        """Return the address of each broker's client listener that bypasses all proxies, for the harness itself."""

    def exporters(self) -> Mapping[int, Address]:
        """Return the address of each node's metrics exporter, which bypasses all proxies; empty without metrics."""
        return {}

    def code_agent(self, node_id: int) -> CodeAgent:
        """Return the agent that loads rules into the code of a node (Byteman). Raises `FaultNotConfirmed` if its JVM is
        out of reach."""
        raise FaultNotConfirmed(f"the JVM of node {node_id} is out of reach: ackproof did not start it")

    @property
    def mesh(self) -> Mesh | None:
        """Links between nodes and from clients that faults can break; None if no fault of the run breaks links."""
        return None

    @property
    def requests(self) -> RequestLinks | None:
        """Links through the request proxy, which can hold, drop, delay, repeat or answer single requests; None if no
        fault of the run needs it."""
        return None

    # -- state ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def check(self) -> None:
        """Raise `NodeDied` if a node has died by itself and was not started again. Raise `LinkError` if the proxy of
        `mesh` has ended, or if packet rules could not be set in a restarted container. Does nothing for an attached
        cluster."""

    @abstractmethod
    def controller(self) -> int | None:
        """Return the id of the active controller; None while none is known, or if no server answers."""

    def metadata_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """Return the partitions' state according to the ZooKeeper servers; empty with KRaft, for an attached cluster,
        or if no server answers."""
        return {}

    def registered(self) -> frozenset[int] | None:
        """Return the brokers that are registered with the ZooKeeper servers; None with KRaft, and for an attached
        cluster. Raises `WireError` if ZooKeeper does not answer."""
        return None

    def topic_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """Return the state of these topics' partitions: from ZooKeeper, else merged from the brokers that run.
        Partitions that no server reports are missing."""
        wanted = tuple(topics)
        quorum_view = self.metadata_state(wanted)
        views = []
        for link in self.running_links().values():
            with contextlib.suppress(WireError):
                views.append(queries.partitions(link, wanted))
        return queries.merge_views(views) | quorum_view

    def partition_ends(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionEnds]:
        """Return the offsets of the partitions of these topics, as their leaders give them. A partition without a
        leader that runs and answers is missing."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for place, state in self.topic_state(topics).items():
            by_leader.setdefault(state.leader, []).append(place)
        links = self.running_links()
        ends: dict[TopicPartition, PartitionEnds] = {}
        for leader, places in by_leader.items():
            if leader in links:
                with contextlib.suppress(WireError):
                    ends |= queries.partition_ends_at(leader, links[leader], places)
        return ends

    @abstractmethod
    def running_links(self) -> Mapping[int, Connection]:
        """Return a connection to each broker that runs and is not paused, by broker id, for the requests of
        `cluster.queries`. In an attached cluster, return one to every broker."""

    @abstractmethod
    def admin_link(self) -> Connection | None:
        """Return a connection to a broker that accepts changes: in KRaft mode any running broker, in ZooKeeper mode the
        controller. If the controller of an attached cluster is unknown, return one to any of its brokers. None if there
        is no such broker."""

    @abstractmethod
    def create_topics(self, topics: Mapping[str, TopicSpec], timeout_s: float = 30.0) -> None:
        """Create topics; return when every running broker sees all leaders and full ISRs, and leaders answer.

        Raises `BadInput` if a topic exists already or is invalid for Kafka, `NodeDied` if a node ends, `WaitTimeout` if
        it takes too long.
        """

    @abstractmethod
    def use_build(self, node_id: int, build: KafkaBuild) -> None:
        """Let the node run this Kafka from its next start on. The node must be down: a container is removed. Raises
        `BadInput` if the backend or node cannot run it, `NodeDied`, `ProvisionFailed`, `EngineFailed` or `WaitTimeout`
        if it cannot be fetched or made."""

    def jars(self) -> frozenset[Path]:
        """Return the jars of every Kafka that the nodes ran; none for an attached cluster. Raises `BadInput` before the
        start of a cluster that ackproof starts."""
        return frozenset()

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Return versions, machine and load as text by name, for the report."""
