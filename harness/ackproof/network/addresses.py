"""Loopback addresses of a cluster. Each cluster leases a block, 127.C.x.y::

127.C.1.i        node i: its INTERNAL and CONTROLLER listeners, node-i.test for the other nodes; its exporter and agent
127.C.2.i        node i for clients (EXTERNAL), which know it by this IP address
127.C.(50+i).j   where node i reaches node j when that directed link goes through a proxy
127.C.50.j       where clients reach broker j when these links go through proxies
127.C.4.1        the server of the proxies, and the request proxy

A link may go through both proxies: first Toxiproxy, then the request proxy at the same address and other ports.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ackproof.base.errors import BadInput
from ackproof.experiment.spec import ClusterSpec
from ackproof.rundir.registry import state_directory

LARGEST_NODE: Final = 204
"""Greatest node id that fits the scheme: 50 + id must be an octet, at most 254."""


class Address(NamedTuple):
    """Host (an IP literal or a name) and TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Addresses:
    """Addresses of one cluster. `block`: the octet C in 127.C.x.y. `base_port`: the first of a node's five ports."""

    block: int
    base_port: int

    def node(self, node_id: int) -> str:
        """Return the IP address where node `node_id` listens for its peers."""
        return f"127.{self.block}.1.{node_id}"

    def client(self, node_id: int) -> Address:
        """Return the address on this machine at which clients reach broker `node_id` without a proxy."""
        return Address(f"127.{self.block}.2.{node_id}", self.external_port)

    def listens(self, node_id: int) -> Address:
        """Return the address to which broker `node_id` binds its client listener (EXTERNAL). A process binds the
        address that `client` returns; a container binds an address in the cluster's own network."""
        return self.client(node_id)

    def link(self, viewer: int, peer: int) -> str:
        """Return the IP address of the proxies for the directed link from `viewer` (0: clients) to `peer`."""
        return f"127.{self.block}.{50 + viewer}.{peer}"

    def for_clients(self, node_id: int) -> Address:
        """Return the address at which the proxy listens for the link from clients to broker `node_id`."""
        return Address(self.link(0, node_id), self.external_port)

    @property
    def proxies(self) -> Address:
        """Address at which the Toxiproxy server takes commands."""
        return Address(f"127.{self.block}.4.1", self.base_port)

    @property
    def requests(self) -> Address:
        """Address at which the request proxy takes commands."""
        return Address(self.proxies.host, self.base_port + 1)

    @staticmethod
    def behind(first: Address) -> Address:
        """Return the address of a link's second proxy (the request proxy). `first`: address of its first proxy
        (Toxiproxy)."""
        return Address(first.host, first.port + 3)

    def controller(self, node_id: int) -> Address:
        """Return the address where controller `node_id` answers requests about the quorum."""
        return Address(self.node(node_id), self.controller_port)

    def exporter(self, node_id: int) -> Address:
        """Return the address of node `node_id`'s metrics exporter."""
        return Address(self.node(node_id), self.exporter_port)

    def code_agent(self, node_id: int) -> Address:
        """Return the address at which node `node_id` takes Byteman rules for its code, once the agent is attached."""
        return Address(self.node(node_id), self.base_port + 4)

    @property
    def internal_port(self) -> int:
        """Port of the INTERNAL listener: replication and requests between brokers."""
        return self.base_port

    @property
    def controller_port(self) -> int:
        """Port of the CONTROLLER listener: the quorum, and requests of brokers to controllers."""
        return self.base_port + 1

    @property
    def external_port(self) -> int:
        """Port of the EXTERNAL listener, for clients."""
        return self.base_port + 2

    @property
    def exporter_port(self) -> int:
        return self.base_port + 3

    def listening(self, node_ids: Iterable[int]) -> list[Address]:
        """Return every address that nodes with these ids may listen at."""
        return [
            address
            for node_id in node_ids
            for address in (
                Address(self.node(node_id), self.internal_port),
                Address(self.node(node_id), self.controller_port),
                self.client(node_id),
                self.exporter(node_id),
                self.code_agent(node_id),
            )
        ]


def node_name(node_id: int) -> str:
    """Return the host name by which peers know a node, such as `node-1.test`. Only hosts files resolve it: no DNS
    server knows names below `test` (RFC 6761)."""
    return f"node-{node_id}.test"


def hosts_file(viewer: int, own_address: str, peers: Mapping[int, str]) -> str:
    """Return the text of `viewer`'s hosts file (`-Djdk.net.hosts.file`), which replaces the resolver of its JVM.

    It names localhost, each peer, and the node itself at `own_address`. It also has this machine's host name, which a
    JVM looks up. `peers`: node id → address at which this node shall look for the peer.
    """
    lines = ["127.0.0.1 localhost"]
    machine = socket.gethostname()
    if machine != "localhost":
        lines.append(f"{own_address} {machine}")
    lines.append(f"{own_address} {node_name(viewer)}")
    lines += [f"{address} {node_name(peer)}" for peer, address in peers.items()]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Layout:
    """Nodes of a cluster and their addresses, from which the nodes' settings files are computed."""

    spec: ClusterSpec
    addresses: Addresses
    clients_by_proxy: bool = False
    """True if brokers advertise to clients the addresses of proxies in front of them."""

    def advertised(self, broker: int) -> Address:
        """Return the address at which clients reach a broker: the address of its proxy if there is one, else the
        broker's own."""
        return self.addresses.for_clients(broker) if self.clients_by_proxy else self.addresses.client(broker)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Ids of all nodes: brokers first, then the controllers or ZooKeeper servers that are no brokers."""
        return tuple(dict.fromkeys((*self.spec.broker_ids, *self.spec.controller_ids)))

    def exporters(self) -> dict[int, Address]:
        """Return the address of each node's metrics exporter; ZooKeeper servers have none."""
        return {node: self.addresses.exporter(node) for node in self.spec.kafka_ids}

    def listens(self, node_id: int) -> Address:
        """Return the address to which the harness sends requests: a broker's client listener, else the controller's or
        ZooKeeper server's."""
        where = self.addresses.client if self.is_broker(node_id) else self.addresses.controller
        return where(node_id)

    def is_broker(self, node_id: int) -> bool:
        """Return True if the node is a broker; a controller may be one too."""
        return node_id in self.spec.broker_ids

    def is_controller(self, node_id: int) -> bool:
        """Return True if the node is a voter of the KRaft quorum, or a ZooKeeper server."""
        return node_id in self.spec.controller_ids

    def title(self, node_id: int) -> str:
        """Return the kind of a node in words: broker, controller or ZooKeeper server."""
        return "broker" if self.is_broker(node_id) else self.spec.metadata.server


BLOCKS: Final = range(1, 255)
"""Blocks that can be leased. 127.0.x.y is reserved for the machine itself."""
_BASE_PORTS: Final = (29092, 27092, 25092, 23092, 21092)
"""Values of `base_port` to try, in this order. Another program that listens on *all* addresses makes its port
unusable in every block."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Lease(AbstractContextManager["Lease"]):
    """Exclusive use of a block of addresses. It lasts until this process calls `release` or ends, and every
    process that inherited `descriptor` has ended. `name`: socket that claims the block in this network namespace, which
    `release` closes; None without one."""

    def __init__(self, addresses: Addresses, descriptor: int, name: socket.socket | None = None) -> None:
        self.addresses = addresses
        self._descriptor: int | None = descriptor
        self._name = name

    @property
    def descriptor(self) -> int:
        """File descriptor of the lock, for every process that uses the addresses. Raises `BadInput` after
        `release`."""
        if self._descriptor is None:
            raise BadInput("the lease of this cluster's addresses was given back")
        return self._descriptor

    def release(self) -> None:
        """Release the block in this process. It stays leased while another process holds its file descriptor. A second
        call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._name is not None:
            self._name.close()
            self._name = None

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire_lease(node_ids: Iterable[int], *, holder: str, state: Path | None = None) -> Lease:
    """Lease a block whose addresses for these nodes are free. `holder` is written into the lock file.

    `state`: the folder of the lock files (default: this user's state directory). The block that was unused for longest
    is taken, so that a late client of a dead cluster does not find a new cluster at its address. Raises `BadInput` if
    no block is free, if a node id is out of range, or if the loopback interface is down; OSError if the lock files
    cannot be written.
    """
    nodes = tuple(node_ids)
    if unfit := [node for node in nodes if not 1 <= node <= LARGEST_NODE]:
        raise BadInput(f"node ids must be from 1 to {LARGEST_NODE}, not {', '.join(map(str, unfit))}")
    _require_loopback()
    folder = (state or state_directory()) / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    for block in sorted(BLOCKS, key=lambda block: _last_used(folder, block)):
        descriptor = os.open(_lock_file(folder, block), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        name = _claim(block)
        addresses = _lock(descriptor, block, nodes) if name is not None else None
        if addresses is not None:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{holder}\n".encode(), 0)
            return Lease(addresses, descriptor, name)
        os.close(descriptor)
        if name is not None:
            name.close()
    raise BadInput(
        f"no block of loopback addresses is free: each of 127.1.0.0/16 … 127.254.0.0/16 is leased in {folder} "
        "or its ports are in use; `ackproof clean` ends what dead runs left behind"
    )


def _lock_file(folder: Path, block: int) -> Path:
    return folder / f"{block}.lock"


def _last_used(folder: Path, block: int) -> float:
    try:
        return _lock_file(folder, block).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _claim(block: int) -> socket.socket | None:
    """Claim a block by binding a Unix socket to its name in this network namespace. Return the socket, which holds the
    name until it is closed; None if a living harness has the name."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0ackproof/lease/{block}")
    except OSError as error:
        name.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return name


def _lock(descriptor: int, block: int, nodes: tuple[int, ...]) -> Addresses | None:
    """Lock the block. Return its addresses if the lock was free and no process listens there, else None."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    for base_port in _base_ports():
        addresses = Addresses(block, base_port)
        if all(is_free(address) for address in addresses.listening(nodes)):
            return addresses
    return None


def _base_ports() -> list[int]:
    """Return those of `_BASE_PORTS` whose five ports are below the range that the kernel uses for outgoing connections;
    all of `_BASE_PORTS` if none has them there."""
    try:
        lowest = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = 32768
    return [port for port in _BASE_PORTS if port + 4 < lowest] or list(_BASE_PORTS)


def _require_loopback() -> None:
    """Raise `BadInput` if the loopback interface is down. Listening would work but connecting would not, and
    nodes would die a minute later."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("127.1.0.1", 9))  # a datagram socket that connects only looks for a route
        except OSError as error:
            raise BadInput(
                f"the loopback interface cannot be used ({error.strerror}); as root: ip link set lo up"
            ) from error


def is_free(address: Address) -> bool:
    """Return True if this process can listen at an address now; False also if the machine has no such address. Old
    connections (TIME_WAIT) do not matter."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
                return False
            raise
    return True
