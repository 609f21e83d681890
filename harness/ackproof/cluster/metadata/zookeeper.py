"""ZooKeeper mode: settings and ports of nodes, and the servers seen from outside. Kafka 3.9 brings ZooKeeper 3.8.

A ZooKeeper server takes the place of a controller: it listens for clients at a controller's address and port, so that
links from brokers to controllers lead to it. The servers talk to each other at a node's internal and external port.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from ackproof.cluster import queries
from ackproof.cluster.disks.node_disk import log_dirs
from ackproof.cluster.metadata.protocol import ASK_S, MetadataQuorum, Runs, listener_settings
from ackproof.cluster.metadata.zookeeper_log import FOLDER, decode
from ackproof.cluster.queries import PartitionState
from ackproof.network.addresses import Address, Layout, node_name
from ackproof.network.mesh import Link
from ackproof.network.wire import ZOOKEEPER, Connection, Unreachable, WireError
from ackproof.provision.jvm import SERVER
from ackproof.rundir.metadata import MetadataRecord
from ackproof.rundir.partition import TopicPartition

_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_TICK_MS: Final = {"chaos": 500, "script": 500, "kafka": 2000}
"""ZooKeeper's tickTime in milliseconds, by the experiment's timing. A session expires only at a tick. ZooKeeper's
default is 2 s (Kafka's zookeeper.properties keeps it)."""


class ZooKeeperMode:
    """ZooKeeper mode (implements `Metadata`). Nodes that are no brokers run ZooKeeper; the controller is one of the
    brokers."""

    access = ZOOKEEPER

    def main(self, *, broker: bool) -> str:
        return SERVER if broker else _MAIN

    def settings(
        self, layout: Layout, node_id: int, data: str, wanted: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return all settings of a broker, or the zoo.cfg of a ZooKeeper server. `data`: the node's data folder. A
        broker has the `wanted` settings and those that the harness adds; an experiment cannot change a zoo.cfg."""
        if not layout.is_broker(node_id):
            return _of_server(layout, node_id, data)
        port = layout.addresses.controller_port
        servers = [f"{node_name(server)}:{port}" for server in layout.spec.controller_ids]
        return {
            **wanted,
            "broker.id": str(node_id),
            "zookeeper.connect": ",".join(servers),
            **listener_settings(layout, node_id, controller=False),
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
            "log.dirs": ",".join(log_dirs(layout.spec, data, broker=True)),
        }

    def lay_data(self, layout: Layout, node_id: int, data: Path, checkpoint: Path, cluster_id: str) -> None:
        """Create the log dirs of a broker or ZooKeeper server, and a ZooKeeper server's `myid`. A broker writes its
        `meta.properties` itself, with the cluster id from ZooKeeper."""
        del checkpoint, cluster_id
        broker = layout.is_broker(node_id)
        for log_dir in log_dirs(layout.spec, str(data), broker=broker):
            Path(log_dir).mkdir(parents=True, exist_ok=True)
        if not broker:
            (data / "myid").write_text(f"{node_id}\n", encoding="utf-8")

    def ports(self, layout: Layout, link: Link) -> tuple[int, ...]:
        """Return the target's port to which the source connects: a broker's internal listener, or ZooKeeper's client
        port. Empty if the source is a ZooKeeper server: links between the servers cannot be broken."""
        source, target = link
        if not layout.is_broker(source):
            return ()
        addresses = layout.addresses
        return (addresses.internal_port if layout.is_broker(target) else addresses.controller_port,)

    def quorum(self, addresses: Mapping[int, Address], runs: Runs) -> ZooKeeper:
        del runs
        return ZooKeeper(addresses)

    def controller_seen_by(self, broker: Connection) -> int | None:
        found = int(broker.ask(queries.ask_brokers()).controller_id)
        return found if found >= 0 else None

    def decode(self, folders: Sequence[Path]) -> Iterator[MetadataRecord]:
        return decode([folder / FOLDER for folder in folders])


def _of_server(layout: Layout, node_id: int, data: str) -> dict[str, str]:
    addresses, servers = layout.addresses, layout.spec.controller_ids
    values = {
        "tickTime": str(_TICK_MS[layout.spec.timing]),
        "initLimit": "20",
        "syncLimit": "6",
        "minSessionTimeout": "500",
        "maxSessionTimeout": "60000",
        "dataDir": data,
        "clientPort": str(addresses.controller_port),
        "clientPortAddress": addresses.node(node_id),
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        # Four-letter commands that a server answers: its mode, and its connections.
        "4lw.commands.whitelist": "srvr,cons",
    }
    if len(servers) > 1:
        for server in servers:
            ports = f"{addresses.internal_port}:{addresses.external_port}"
            values[f"server.{server}"] = f"{node_name(server)}:{ports}"
    return values


_SESSION_S: Final = 1.5
"""Time-out in seconds of the harness's own ZooKeeper session. A connection to a server that accepts but does not
answer takes as long to fail."""
_LARGEST_ANSWER: Final = 1 << 20
_SILENT: Final = logging.getLogger("ackproof.zookeeper")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

_SUPER_SECRET: Final = 0xB3415C00
"""ZooKeeperServer.superSecret, ZooKeeper 3.4 to 3.9."""
_START_S: Final = 5.0
_IDS: Final = "/brokers/ids"

T = TypeVar("T")


@dataclass(frozen=True)
class Registration:
    """Registration of a broker: its znode in `/brokers/ids`. `session`: ZooKeeper session that owns the znode;
    `made_by`: zxid that created it."""

    broker: int
    session: int
    made_by: int


class ZooKeeper(MetadataQuorum):
    """Client of the ZooKeeper servers. `addresses`: client address of each server. The session begins with the first
    read of a znode."""

    def __init__(self, addresses: Mapping[int, Address]) -> None:
        self.addresses = dict(addresses)
        """Client address of each server."""
        self._client: KazooClient | None = None
        self._closed = False

    # -- its servers --------------------------------------------------------------------------------------------

    def serves(self, node_id: int) -> bool:
        """Return True if the server is standalone, leads or follows. Return False if this client has opened a session
        and is not connected to any server now: its reads would fail.

        Raises `Unreachable` if the server does not answer, whatever the state of the session.
        """
        return self.mode(node_id) != "" and (self._client is None or bool(self._client.connected))

    def mode(self, node_id: int) -> str:
        """Return the server's mode: `standalone`, `leader` or `follower`; '' if it does not serve. Raises `Unreachable`
        if it does not answer."""
        address, answer = self.addresses[node_id], bytearray()
        try:
            with socket.create_connection(address, timeout=ASK_S / 2) as line:
                line.settimeout(ASK_S / 2)
                line.sendall(b"srvr")
                while len(answer) < _LARGEST_ANSWER and (part := line.recv(1 << 16)):
                    answer += part
        except OSError as error:
            raise Unreachable(f"{address}: {error.strerror or error}") from error
        found = re.search(r"^Mode:(.*)$", answer.decode("utf-8", "replace"), re.MULTILINE)
        return found[1].strip() if found else ""

    # -- its znodes ---------------------------------------------------------------------------------------------

    def controller(self) -> int | None:
        """Return the broker that the znode `/controller` names; None without that znode, or if no server answers.
        Raises `Unreachable` if the znode holds no JSON."""
        try:
            data, _ = self.read("/controller")
        except (NoNodeError, WireError):
            return None
        return int(_parsed(data).get("brokerid", -1))

    def registration(self, broker: int) -> Registration | None:
        """Return the broker's registration, None if it has no znode. Raises `Unreachable` if ZooKeeper does not
        answer."""
        try:
            _, stat = self.read(f"{_IDS}/{broker}")
        except NoNodeError:
            return None
        return Registration(broker, stat.ephemeralOwner, stat.czxid)

    def registered(self) -> frozenset[int]:
        try:
            return frozenset(map(int, self._ask(lambda one: one.get_children_async(_IDS).get(timeout=ASK_S))))
        except NoNodeError:
            return frozenset()

    def bars(self, broker: int) -> bool:
        # A broker that finds the znode of its last session exits.
        try:
            return self.registration(broker) is not None
        except Unreachable:
            return False

    def partitions(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """Return the state of these topics' partitions that have a state znode; empty if no server answers."""
        try:
            return self._partitions(tuple(dict.fromkeys(topics)))
        except WireError:
            return {}

    def _partitions(self, topics: tuple[str, ...]) -> dict[TopicPartition, PartitionState]:
        assigned: dict[TopicPartition, tuple[int, ...]] = {}
        for topic, answer in zip(
            topics, self.read_all(f"/brokers/topics/{topic}" for topic in topics), strict=True
        ):
            if answer is not None:
                for number, replicas in _parsed(answer[0]).get("partitions", {}).items():
                    assigned[TopicPartition(topic, int(number))] = tuple(replicas)
        found: dict[TopicPartition, PartitionState] = {}
        paths = (f"/brokers/topics/{topic}/partitions/{number}/state" for topic, number in assigned)
        for place, answer in zip(assigned, self.read_all(paths), strict=True):
            if answer is not None:
                state = _parsed(answer[0])
                found[place] = PartitionState(
                    topic=place.topic,
                    partition=place.partition,
                    leader=int(state["leader"]),
                    leader_epoch=int(state["leader_epoch"]),
                    replicas=assigned[place],
                    isr=tuple(state["isr"]),
                )
        return found

    def read(self, path: str) -> tuple[bytes, Any]:
        """Return a znode's data and its stat (kazoo's `ZnodeStat`). Raises kazoo's `NoNodeError` for a missing
        znode, `Unreachable` if ZooKeeper does not answer."""
        data, stat = self._ask(lambda client: client.get_async(path).get(timeout=ASK_S))
        return data, stat

    def read_all(self, paths: Iterable[str]) -> list[tuple[bytes, Any] | None]:
        """Read several znodes at once: data and stat of each, in the order of `paths`; None for a missing one.

        Raises `Unreachable` if ZooKeeper does not answer.
        """

        def ask(client: KazooClient) -> list[tuple[bytes, Any] | None]:
            asked = [client.get_async(path) for path in paths]
            answers: list[tuple[bytes, Any] | None] = []
            for each in asked:
                try:
                    answers.append(each.get(timeout=ASK_S))
                except NoNodeError:
                    answers.append(None)
            return answers

        return self._ask(ask)

    def _ask(self, question: Callable[[KazooClient], T]) -> T:
        client = self._connected()
        try:
            return question(client)
        except NoNodeError:
            raise
        except (KazooException, KazooTimeoutError) as error:
            raise Unreachable(f"ZooKeeper: {type(error).__name__} {error}".rstrip()) from error

    def _connected(self) -> KazooClient:
        """Return the client of ZooKeeper, which is made at the first call and reconnects by itself. Raises
        `Unreachable` if it is not connected now, or if the cluster has ended."""
        if self._closed:
            raise Unreachable("ZooKeeper: the cluster has ended")
        client = self._client
        if client is None:
            hosts = ",".join(map(str, self.addresses.values()))
            retry = {"max_tries": -1, "delay": 0.05, "backoff": 1, "max_delay": 0.2}
            client = KazooClient(hosts=hosts, timeout=_SESSION_S, connection_retry=retry, logger=_SILENT)
            self._client = client
            try:
                client.start(timeout=ASK_S)
            except KazooTimeoutError as error:
                self._client = None
                raise Unreachable("ZooKeeper: no session") from error
        if not client.connected:
            raise Unreachable("ZooKeeper: not connected")
        return client

    def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()


def _parsed(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a znode; empty for JSON of another kind. Raises `Unreachable` if the data is no
    JSON."""
    try:
        said = json.loads(data)
    except ValueError as error:
        raise Unreachable(f"ZooKeeper: a znode that is no JSON: {data[:80]!r}") from error
    return said if isinstance(said, dict) else {}


def session_password(session: int) -> bytes:
    """Return the password that ZooKeeper gives a session. `session`: its id, a signed 64-bit number, as in a znode's
    ephemeralOwner.

    It is 16 bytes of java.util.Random, whose seed is the id XOR ZooKeeperServer.superSecret.
    """
    multiplier, mask = 0x5DEECE66D, (1 << 48) - 1
    seed = ((session ^ _SUPER_SECRET) ^ multiplier) & mask
    made = bytearray()
    while len(made) < 16:
        seed = (seed * multiplier + 0xB) & mask
        made += struct.pack("<I", (seed >> 16) & 0xFFFFFFFF)
    return bytes(made)


def end_session(addresses: Mapping[int, Address], session: int) -> bool:
    """Take over a ZooKeeper session and close it. Return False if the servers know no such session or expect another
    password. Raises `Unreachable` if no server answers."""
    hosts, held = ",".join(map(str, addresses.values())), (session, session_password(session))
    client = KazooClient(hosts=hosts, timeout=_START_S, client_id=held, logger=_SILENT)
    try:
        client.start(timeout=_START_S)
        taken = client.client_id is not None and client.client_id[0] == session
    except KazooTimeoutError as error:
        raise Unreachable("ZooKeeper: no session") from error
    finally:
        # Closing ends the session, also a new session that kazoo made because the server refused the other one.
        client.stop()
        client.close()
    return bool(taken)
