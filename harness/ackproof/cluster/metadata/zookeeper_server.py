"""Settings of a ZooKeeper server, the one that comes with Kafka's own jars (3.9: ZooKeeper 3.8).

A server answers clients where a controller would answer (so that a link from a broker to it is one to a
controller), and its own kind at the two other ports of the node.
"""

from __future__ import annotations

from typing import Final

from ackproof.cluster.addresses import node_name
from ackproof.cluster.properties import Layout

MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_TICK_MS: Final = {"chaos": 500, "kafka": 2000}
"""Sessions end at a tick. Kafka's own zookeeper.properties leaves ZooKeeper's default, 2 s."""


def zookeeper_settings(layout: Layout, node_id: int, data: str) -> dict[str, str]:
    """zoo.cfg of one server. `data`: its folder, relative to its working folder."""
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
