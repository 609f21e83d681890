"""KRaft: settings, data folders, ports and metadata log of nodes in a cluster with a KRaft quorum."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ackproof.cluster import queries
from ackproof.cluster.disks.log import log_end
from ackproof.cluster.disks.node_disk import log_dirs, metadata_dir
from ackproof.cluster.metadata.kraft_log import FOLDER, decode
from ackproof.cluster.metadata.protocol import ASK_S, MetadataQuorum, Runs, committed, listener_settings
from ackproof.network.addresses import Address, Layout, node_name
from ackproof.network.mesh import Link
from ackproof.network.wire import KRAFT, Connection, WireError
from ackproof.provision.checkpoint import CHECKPOINT, meta_properties
from ackproof.provision.jvm import SERVER
from ackproof.rundir.metadata import MetadataRecord


class Kraft:
    """KRaft mode (implements `Metadata`). Every node runs Kafka; voters of the quorum may be brokers too."""

    access = KRAFT

    def main(self, *, broker: bool) -> str:
        del broker
        return SERVER

    def settings(
        self, layout: Layout, node_id: int, data: str, wanted: Mapping[str, str]
    ) -> Mapping[str, str]:
        broker, controller = layout.is_broker(node_id), layout.is_controller(node_id)
        port = layout.addresses.controller_port
        voters = [f"{voter}@{node_name(voter)}:{port}" for voter in layout.spec.controller_ids]
        values = {
            **wanted,
            "process.roles": ",".join(["broker"] * broker + ["controller"] * controller),
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            **listener_settings(layout, node_id, controller=controller),
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": ",".join(log_dirs(layout.spec, data, broker=broker)),
        }
        if broker and layout.spec.log_dirs > 1:
            values["metadata.log.dir"] = metadata_dir(layout.spec, data, broker=broker)
        return values

    def lay_data(self, layout: Layout, node_id: int, data: Path, checkpoint: Path, cluster_id: str) -> None:
        """Write the files that `kafka-storage format` writes into the data folders of a node. `checkpoint`:
        the metadata snapshot that a controller begins with."""
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

    def quorum(self, addresses: Mapping[int, Address], runs: Runs) -> MetadataQuorum:
        return _KraftQuorum(addresses, runs)

    def controller_seen_by(self, broker: Connection) -> int | None:
        return queries.quorum(broker).leader

    def decode(self, folders: Sequence[Path]) -> Iterator[MetadataRecord]:
        """Decode the longest metadata log in the voters' metadata log folders, up to the offset that a majority of them
        has. Yields nothing if no folder has a log. Raises `NotDecoded` for records in an unknown form, ValueError
        for compressed or invalid records, OSError if a file cannot be read."""
        ends = {folder / FOLDER: log_end(folder / FOLDER) for folder in folders}
        if any(ends.values()):
            bound = committed(list(ends.values()))
            longest = max(ends, key=lambda folder: ends[folder])
            yield from (record for record in decode(longest) if record.offset < bound)


class _KraftQuorum(MetadataQuorum):
    """The voters of the KRaft quorum. `addresses`: controller listener of each voter. `runs(node)`: True if the node's
    process runs and is not paused."""

    def __init__(self, addresses: Mapping[int, Address], runs: Runs) -> None:
        self._links = {node: Connection(address, timeout_s=ASK_S) for node, address in addresses.items()}
        self._runs = runs

    def serves(self, node_id: int) -> bool:
        return queries.quorum_leader(self._links[node_id], ASK_S / 2) >= 0

    def controller(self) -> int | None:
        """Return the leader with the newest epoch among the answers of voters that run; None if none answers."""
        leads = []
        for node_id, link in self._links.items():
            if self._runs(node_id):
                with contextlib.suppress(WireError):
                    quorum = queries.quorum(link)
                    leads.append((quorum.epoch, quorum.leader))
        return max(leads)[1] if leads else None

    def close(self) -> None:
        for link in self._links.values():
            link.close()
