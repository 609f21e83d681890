"""What every backend offers: a `Cluster` of `Node`s."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.clocks import NodeClock
from ackproof.cluster.disks.node_disk import NodeDisk
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import ClusterSpec, TopicSpec
from ackproof.network.addresses import Address
from ackproof.network.mesh import Mesh
from ackproof.network.wire import Access, Connection
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import NodeDied, NodeEnded, NodeStarted, ProxyDied, Timeline

if TYPE_CHECKING:  # files are checked without what runs proxies
    from ackproof.network.requests.links import RequestLinks


class NodeState(StrEnum):
    """What the operating system says of a node's process."""

    RUNNING = "running"
    STOPPED = "stopped"
    """All its threads stand still (SIGSTOP)."""
    GONE = "gone"
    """There is no process: it never was started, or has ended."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as a broker's metadata shows it. `leader` -1: none. `eligible` is empty where ELR is off."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """Offsets of a partition, asked at its leader within one exchange. -1 is unknown.

    `start` is the log start offset, `log_end` the leader's own log end (asked as a debugging replica),
    `leader_epoch` the epoch in which all of them were seen.
    """

    leader: int
    leader_epoch: int
    start: int
    high_watermark: int
    last_stable: int
    log_end: int


@dataclass(frozen=True)
class NodeEvent:
    """Something that happened to a node's process, or to a proxy (`node` None), in the words of a timeline."""

    node: int | None
    what: NodeStarted | NodeDied | NodeEnded | ProxyDied


OnNodeEvent = Callable[[NodeEvent], None]


def to_timeline(timeline: Timeline) -> OnNodeEvent:
    """A receiver that writes node events into a run's timeline."""

    def write(event: NodeEvent) -> None:
        timeline.add(event.what, node=event.node)

    return write


@runtime_checkable
class Node(Protocol):
    """One node of a cluster, whoever runs it."""

    @property
    def id(self) -> int:
        """Its number: brokers from 1, isolated controllers from 101."""

    @property
    def name(self) -> str:
        """What it is called where people read it: `broker 1`."""

    @property
    def is_broker(self) -> bool:
        """Whether it holds partitions."""

    @property
    def is_controller(self) -> bool:
        """Whether it keeps the metadata: votes in the quorum, or is a ZooKeeper server."""

    def state(self) -> NodeState:
        """What the operating system says now; running, where that is out of reach."""

    def await_ready(self, timeout_s: float) -> None:
        """Wait until it answers and is registered and unfenced (broker), knows the quorum's leader
        (controller) or serves (ZooKeeper server).

        Raises `NodeDied` at once when it has no process, `WaitTimeout` after `timeout_s` seconds.
        """


@runtime_checkable
class LocalNode(Node, Protocol):
    """A node whose process and data are on this machine.

    An end of its process that is asked for here is expected; any other is a death by itself.
    """

    @property
    def pid(self) -> int | None:
        """The process that serves it, or served it last; None before the first start."""

    @property
    def disk(self) -> NodeDisk:
        """What it keeps its data on, as this machine sees it."""

    @property
    def clock(self) -> NodeClock | None:
        """Its wall clock, if its cluster was made so that it can be set."""

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of what it logged, and what it printed if it printed anything."""

    def start(self) -> None:
        """Start a process for it, and return at once. Raises `BadInput` when it has one."""

    def kill(self) -> None:
        """SIGKILL, and return at once. Nothing happens to a node that is gone."""

    def terminate(self) -> None:
        """SIGTERM (a controlled shutdown begins), and return at once."""

    def expect_end(self) -> None:
        """Until its next start its end is the doing of a fault (a full disk), and no death by itself."""

    def pause(self) -> None:
        """SIGSTOP, and return at once."""

    def resume(self) -> None:
        """SIGCONT, and return at once."""


def local(nodes: Iterable[Node]) -> tuple[LocalNode, ...]:
    """The same nodes, as a fault of processes or data needs them. Raises `FaultNotConfirmed` where one is not on
    this machine: validation refuses that before, by what the backend lacks (`experiment.backends`)."""
    found: list[LocalNode] = []
    for node in nodes:
        if not isinstance(node, LocalNode):
            raise FaultNotConfirmed(
                f"{node.name} belongs to a cluster that someone else runs: its process is out of reach"
            )
        found.append(node)
    return tuple(found)


def clock_of(node: Node) -> NodeClock:
    """The wall clock of a node. Raises `FaultNotConfirmed` where it cannot be set."""
    clock = node.clock if isinstance(node, LocalNode) else None
    if clock is None:
        raise FaultNotConfirmed(f"the clock of node {node.id} cannot be set: the cluster was not made for it")
    return clock


class Cluster(Protocol):
    """A cluster under test."""

    @property
    def spec(self) -> ClusterSpec:
        """What it was made from."""

    @property
    def nodes(self) -> Mapping[int, Node]:
        """All nodes by id; empty before it is started."""

    def node(self, node_id: int) -> Node:
        """The node with this id. Raises `BadInput` when there is none."""

    def brokers(self) -> tuple[Node, ...]:
        """The brokers by id."""

    def controllers(self) -> tuple[Node, ...]:
        """Those that keep the metadata, by id: the quorum's voters, or the ZooKeeper servers."""

    @property
    def bootstrap(self) -> str:
        """For clients: `address:port,…` of all brokers, addresses as IP literals."""

    @property
    def access(self) -> Access:
        """How its nodes are spoken to."""

    def client_addresses(self) -> Mapping[int, Address]:
        """Where each broker listens for clients, past all proxies: for the harness's own questions."""

    def exporters(self) -> Mapping[int, Address]:
        """Where each node tells its own metrics, past all proxies; empty where none does."""

    @property
    def mesh(self) -> Mesh | None:
        """Its links, where faults need to break some; else None."""

    @property
    def requests(self) -> RequestLinks | None:
        """Its links whose requests can be touched, where faults need some; else None."""

    def check(self) -> None:
        """Raises `NodeDied` when a node has died by itself and was not started again."""

    def controller(self) -> int | None:
        """The active controller, None while nobody says that it is."""

    def topic_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """The partitions of these topics as the brokers that answer see them; newest leader epoch wins."""

    def metadata_state(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """What the metadata quorum itself holds; empty where it does not tell (KRaft). A second at most."""

    def registered(self) -> frozenset[int] | None:
        """Brokers that the metadata quorum itself says are registered; None where it does not tell (KRaft). A second at
        most. Raises `WireError`."""

    def partition_ends(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionEnds]:
        """Offsets of every partition, asked at its leader; one whose leader is not there or silent is missing."""

    def running_links(self) -> Mapping[int, Connection]:
        """A connection to each broker that runs (not paused), for questions through `queries`."""

    def admin_link(self) -> Connection | None:
        """A connection to a broker that takes changes: any that runs, or the controller where it alone does."""

    def create_topics(self, topics: Mapping[str, TopicSpec], timeout_s: float = 30.0) -> None:
        """Create topics; returns when every running broker sees each leader and each ISR full, and leaders answer.

        Raises `BadInput` for what Kafka refuses, `NodeDied`, `WaitTimeout`.
        """

    def use_build(self, node_id: int, build: KafkaBuild) -> None:
        """From its next start on the node runs this Kafka. Raises `BadInput` where that cannot be."""

    def environment(self) -> dict[str, str]:
        """What a report tells of the ground that it stood on: versions, machine, load."""


class RunningCluster(Cluster, Protocol):
    """A cluster with its life: whoever made it starts it, and ends it whatever happened."""

    def start(self) -> None:
        """Start all nodes; returns when every broker answers and sees all of them unfenced.

        Raises `NodeDied` as soon as a node ends, `WaitTimeout`; then `stop` cleans up.
        """

    def stop(self) -> object:
        """End every node at once. May be called at any time and again; afterwards no node can be started."""

    def remove_data(self) -> None:
        """Remove what the nodes stored, and nothing else: logs of the nodes stay."""
