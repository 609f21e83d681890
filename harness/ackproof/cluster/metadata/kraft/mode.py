"""What a KRaft quorum means for the nodes of a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ackproof.cluster import queries
from ackproof.cluster.access import KRAFT
from ackproof.cluster.addresses import Address, node_name
from ackproof.cluster.disks.node_disk import log_dirs, metadata_dir
from ackproof.cluster.layout import Layout
from ackproof.cluster.metadata.kraft.log import collect
from ackproof.cluster.metadata.kraft.quorum import KraftQuorum
from ackproof.cluster.metadata.protocol import Runs
from ackproof.cluster.network.mesh import Link
from ackproof.cluster.network.probe import KAFKA, Speech
from ackproof.cluster.wire import Connection
from ackproof.provision.checkpoint import CHECKPOINT, meta_properties
from ackproof.provision.jvm import SERVER
from ackproof.rundir.layout import CaseDir


class Kraft:
    """See `Metadata`. Every node runs Kafka; the quorum's voters may be brokers too."""

    access = KRAFT

    def main(self, *, broker: bool) -> str:
        del broker
        return SERVER

    def settings(
        self, layout: Layout, node_id: int, data: str, asked: Mapping[str, str]
    ) -> Mapping[str, str]:
        addresses, name = layout.addresses, node_name(node_id)
        own = addresses.node(node_id)
        broker, controller = layout.is_broker(node_id), layout.is_controller(node_id)
        listeners: list[str] = []
        advertised: list[str] = []
        if broker:
            listeners += [
                f"INTERNAL://{own}:{addresses.internal_port}",
                f"EXTERNAL://{addresses.listens(node_id)}",
            ]
            advertised += [
                f"INTERNAL://{name}:{addresses.internal_port}",
                f"EXTERNAL://{layout.advertised(node_id)}",
            ]
        if controller:
            listeners.append(f"CONTROLLER://{own}:{addresses.controller_port}")
            advertised.append(f"CONTROLLER://{name}:{addresses.controller_port}")
        voters = [
            f"{voter}@{node_name(voter)}:{addresses.controller_port}" for voter in layout.spec.controller_ids
        ]
        values = {
            **asked,
            "process.roles": ",".join(["broker"] * broker + ["controller"] * controller),
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": ",".join(log_dirs(layout.spec, data, broker=broker)),
        }
        if broker:
            values["inter.broker.listener.name"] = "INTERNAL"
            if layout.spec.log_dirs > 1:
                values["metadata.log.dir"] = metadata_dir(layout.spec, data, broker=broker)
        return values

    def lay_data(self, layout: Layout, node_id: int, data: Path, checkpoint: Path, cluster_id: str) -> None:
        """As if just formatted."""
        broker = layout.is_broker(node_id)
        metadata = Path(metadata_dir(layout.spec, str(data), broker=broker))
        for folder in (metadata, *map(Path, log_dirs(layout.spec, str(data), broker=broker))):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "meta.properties").write_text(meta_properties(cluster_id, node_id), encoding="utf-8")
        if layout.is_controller(node_id):
            shutil.copyfile(checkpoint, metadata / CHECKPOINT)

    def ports(self, layout: Layout, link: Link) -> tuple[int, ...]:
        source, target = link
        between_brokers = layout.is_broker(source) and layout.is_broker(target)
        found = [layout.addresses.internal_port] if between_brokers else []
        if layout.is_controller(target):
            found.append(layout.addresses.controller_port)
        return tuple(found)

    def speech(self, layout: Layout, node_id: int) -> Speech:
        del layout, node_id
        return KAFKA

    def quorum(self, addresses: Mapping[int, Address], runs: Runs) -> KraftQuorum:
        return KraftQuorum(addresses, runs)

    def told_controller(self, broker: Connection) -> int | None:
        return queries.quorum(broker).leader

    def collect(self, folders: Sequence[Path], run: CaseDir) -> str:
        """The metadata log of the voter whose log is the longest."""
        return collect(folders, run)
