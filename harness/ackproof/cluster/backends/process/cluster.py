"""The process backend: a cluster of real Kafka nodes, each a JVM of this machine, on leased loopback addresses."""

from __future__ import annotations

from pathlib import Path

from ackproof.base.processes import Child, spawn
from ackproof.cluster import clocks, lease
from ackproof.cluster.addresses import Addresses
from ackproof.cluster.backends.process.node import NodeFiles, ProcessNode
from ackproof.cluster.install import Installation
from ackproof.cluster.metadata.choice import metadata_of
from ackproof.cluster.own import OwnCluster
from ackproof.experiment.backends import Need
from ackproof.provision.jvm import archive_in_use, java_command
from ackproof.provision.tools import exporter_jar, exporter_settings, java_agent


class ProcessCluster(OwnCluster):
    """A cluster of JVMs. Their links go through proxies only where faults need it."""

    def _take_addresses(self, node_ids: tuple[int, ...]) -> Addresses:
        self._lease = lease.acquire(node_ids, holder=self._holder())
        return self._lease.addresses

    def _lay_more(self, files: NodeFiles) -> None:
        if Need.METRICS in self._needs:
            files.exporter.write_text(exporter_settings(), encoding="utf-8")

    def _launch(self, node: ProcessNode) -> Child:
        return spawn(
            self._command(node),
            run=self._tag,
            role=node.name,
            cwd=node.files.folder,
            stdout=node.files.stdout,
            env=clocks.preload(node.files.clock) if self._clocks else None,
            # Each JVM inherits the lock of the cluster's addresses.
            pass_fds=() if self._lease is None else (self._lease.descriptor,),
        )

    def _command(self, node: ProcessNode) -> list[str]:
        """All paths below the node's folder are relative to it: it is the working folder."""
        installed = self._builds.get(node.id, self._installed)
        heap, files = self.spec.heap, node.files
        flags = [
            # Room for all that a start allocates: fewer collections, 6 % less CPU until the node is up.
            f"-Xmn{min(40, (heap >> 20) // 3)}m",
            "-XX:+ExitOnOutOfMemoryError",
            f"-Djdk.net.hosts.file={files.hosts.name}",
            # Libraries that it unpacks stay where a node is killed: in its own folder, not in the machine's /tmp.
            "-Djava.io.tmpdir=.",
            *self._sharing(node, installed),
            *self._telling(node),
        ]
        return java_command(
            installed.java,
            installed.jars,
            metadata_of(self.spec).main(broker=node.is_broker),
            [files.properties.name],
            log=Path(files.log.name),
            heap_bytes=heap,
            flags=flags,
        )

    def _telling(self, node: ProcessNode) -> list[str]:
        """The flag by which it tells its metrics, if it does."""
        where = self.exporters().get(node.id)
        if where is None:
            return []
        return [java_agent(exporter_jar(self._progress), where, Path(node.files.exporter.name))]

    def _sharing(self, node: ProcessNode, installed: Installation) -> list[str]:
        """Flags by which its JVM maps its class-data archive."""
        archive = _archive(node, installed)
        return [] if archive is None else [f"-XX:SharedArchiveFile={archive}"]

    def _uses_archive(self, node: ProcessNode) -> bool:
        archive = _archive(node, self._installed)
        return archive is not None and node.pid is not None and archive_in_use(node.pid, archive)


def _archive(node: ProcessNode, installed: Installation) -> Path | None:
    """What fits the node's JVM: a combined node runs what a broker runs, and more."""
    return installed.archives.get("broker" if node.is_broker else "controller")
