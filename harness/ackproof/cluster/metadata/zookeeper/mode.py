"""What ZooKeeper means for the nodes of a cluster. Its servers come with Kafka's own jars (3.9: ZooKeeper 3.8).

A server answers clients where a controller would answer (so that a link from a broker to it is one to a
controller), and its own kind at the two other ports of the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ackproof.cluster import queries
from ackproof.cluster.addresses import Address, node_name
from ackproof.cluster.disks.node_disk import log_dirs
from ackproof.cluster.layout import Layout
from ackproof.cluster.metadata.protocol import Runs
from ackproof.cluster.metadata.zookeeper.log import FOLDER, decode
from ackproof.cluster.metadata.zookeeper.servers import ZooKeeper
from ackproof.cluster.wire import ZOOKEEPER as DIALECT
from ackproof.cluster.wire import Connection
from ackproof.network.mesh import Link
from ackproof.network.probe import KAFKA, ZOOKEEPER, Speech
from ackproof.provision.jvm import SERVER
from ackproof.rundir.metadata import MetadataRecord

_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_TICK_MS: Final = {"chaos": 500, "script": 500, "kafka": 2000}
"""Sessions end at a tick. Kafka's own zookeeper.properties leaves ZooKeeper's default, 2 s."""


class ZooKeeperMode:
    """See `Metadata`. Nodes that are no brokers run ZooKeeper; the controller is one of the brokers."""

    access = DIALECT

    def main(self, *, broker: bool) -> str:
        return SERVER if broker else _MAIN

    def settings(
        self, layout: Layout, node_id: int, data: str, asked: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Of a server: zoo.cfg, in which nothing is asked for."""
        if not layout.is_broker(node_id):
            return _of_server(layout, node_id, data)
        addresses = layout.addresses
        internal = addresses.internal_port
        servers = [
            f"{node_name(server)}:{addresses.controller_port}" for server in layout.spec.controller_ids
        ]
        return {
            **asked,
            "broker.id": str(node_id),
            "zookeeper.connect": ",".join(servers),
            "listeners": f"INTERNAL://{addresses.node(node_id)}:{internal},"
            f"EXTERNAL://{addresses.listens(node_id)}",
            "advertised.listeners": f"INTERNAL://{node_name(node_id)}:{internal},"
            f"EXTERNAL://{layout.advertised(node_id)}",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": ",".join(log_dirs(layout.spec, data, broker=True)),
        }

    def lay_data(self, layout: Layout, node_id: int, data: Path, checkpoint: Path, cluster_id: str) -> None:
        """A broker finds out the cluster's id from ZooKeeper, and writes its own `meta.properties`."""
        del checkpoint, cluster_id
        broker = layout.is_broker(node_id)
        for log_dir in log_dirs(layout.spec, str(data), broker=broker):
            Path(log_dir).mkdir(parents=True, exist_ok=True)
        if not broker:
            (data / "myid").write_text(f"{node_id}\n", encoding="utf-8")

    def ports(self, layout: Layout, link: Link) -> tuple[int, ...]:
        """The servers' own links are of another kind, and nobody breaks them here."""
        source, target = link
        if not layout.is_broker(source):
            return ()
        addresses = layout.addresses
        return (addresses.internal_port if layout.is_broker(target) else addresses.controller_port,)

    def speech(self, layout: Layout, node_id: int) -> Speech:
        return KAFKA if layout.is_broker(node_id) else ZOOKEEPER

    def quorum(self, addresses: Mapping[int, Address], runs: Runs) -> ZooKeeper:
        del runs
        return ZooKeeper(addresses)

    def told_controller(self, broker: Connection) -> int | None:
        found = int(broker.ask(queries.ask_brokers()).controller_id)
        return found if found >= 0 else None

    def decode(self, folders: Sequence[Path]) -> Iterator[MetadataRecord]:
        """The transaction logs of all servers."""
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
        # How it is looked at from outside: its mode, and who is connected.
        "4lw.commands.whitelist": "srvr,cons",
    }
    if len(servers) > 1:
        for server in servers:
            ports = f"{addresses.internal_port}:{addresses.external_port}"
            values[f"server.{server}"] = f"{node_name(server)}:{ports}"
    return values
