"""The process backend: a cluster of real Kafka nodes, each a JVM of this machine, on leased loopback addresses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from ackproof.base.processes import Child, RunTag, spawn
from ackproof.cluster import clocks
from ackproof.cluster.code_rules import CodeAgent, LocalCodeAgent
from ackproof.cluster.install import Installation
from ackproof.cluster.metadata import metadata_of
from ackproof.cluster.node import ProcessNode
from ackproof.cluster.own import OwnCluster
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import ClusterSpec
from ackproof.network.addresses import Addresses
from ackproof.provision.byteman import byteman_jar
from ackproof.provision.jvm import ROLES, archive_in_use, java_command, logging_flags, node_flags, warm_up
from ackproof.provision.progress import Progress, ProgressSink, ProvisionFailed
from ackproof.provision.tools import exporter_jar, java_agent
from ackproof.rundir.layout import CaseDir


class ProcessCluster(OwnCluster):
    """A cluster of JVMs on this machine. Links go through proxies only if faults need them."""

    def _take_addresses(self, node_ids: tuple[int, ...]) -> Addresses:
        self._lease = self._acquire_lease(node_ids)
        return self._lease.addresses

    def code_agent(self, node_id: int) -> CodeAgent:
        installed = self._builds.get(node_id, self._installed)
        jars, address = installed.jars, self.layout.addresses.code_agent(node_id)
        return LocalCodeAgent(self._nodes[node_id], jars.version, jars.classpath, installed.java, address)

    def _launch(self, node: ProcessNode) -> Child:
        if (rules := self._installed_on(node).jars.rules) is not None:
            shutil.copyfile(rules, node.files.rules)
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
        """Return the command line that starts the node's JVM. Paths of the node's own files are relative to its folder,
        in which the JVM runs."""
        installed = self._installed_on(node)
        files = node.files
        flags = [
            *node_flags(self.spec.heap),
            f"-Djdk.net.hosts.file={files.hosts.name}",
            # A killed node leaves the libraries that it unpacked: keep them in its folder, not in /tmp.
            "-Djava.io.tmpdir=.",
            *self._sharing(node, installed),
            *logging_flags(installed.jars.version, Path(files.log.name)),
        ]
        if (listens := self.exporters().get(node.id)) is not None:
            flags.append(java_agent(exporter_jar(self._progress), listens, Path(files.exporter.name)))
        if installed.jars.rules is not None:
            flags.append(f"-javaagent:{byteman_jar(self._progress)}=script:{files.rules.name}")
        main = metadata_of(self.spec).main(broker=node.is_broker)
        return java_command(installed.java, installed.jars, main, [files.properties.name], flags)

    def _installed_on(self, node: ProcessNode) -> Installation:
        return self._builds.get(node.id, self._installed)

    def _sharing(self, node: ProcessNode, installed: Installation) -> list[str]:
        """Return the JVM flags that select the node's class-data archive; none without an archive."""
        archive = _archive(node, installed)
        return [] if archive is None else [f"-XX:SharedArchiveFile={archive}"]

    def _uses_archive(self, node: ProcessNode) -> bool:
        archive = _archive(node, self._installed)
        return archive is not None and node.pid is not None and archive_in_use(node.pid, archive)


def _archive(node: ProcessNode, installed: Installation) -> Path | None:
    """Return the node's class-data archive; a combined node uses the broker's. None: this Java has no archives."""
    return installed.archives.get("broker" if node.is_broker else "controller")


_WRITER, _PEER = 1, 2
_STOP_WITHIN_S: Final = 300.0
"""Time-out in seconds for writing an archive at the JVM's exit: it takes seconds, on a loaded machine minutes."""


class _Writers(ProcessCluster):
    """A cluster whose controller and first broker write their JVM's class-data archive when they exit cleanly."""

    def _sharing(self, node: ProcessNode, installed: Installation) -> list[str]:
        del installed
        if node.id == _PEER:
            return []
        # hundreds of warnings about classes that cannot be archived are of no interest
        archive = self.nodes_dir / f"{'broker' if node.is_broker else 'controller'}.jsa"
        return ["-Xlog:disable", "-Xlog:all=error:stdout", f"-XX:ArchiveClassesAtExit={archive}"]


def write_archives(installed: Installation, progress: ProgressSink, folder: Path) -> None:
    """Write the JVM class-data archive `<role>.jsa` of each role into `folder`, which takes about 12 s. A
    cluster runs below `folder/work` meanwhile. Raises `ProvisionFailed` if an archive is not written, `NodeDied` if a
    node dies, `WaitTimeout` if it takes too long."""

    def tell(what: str, done: int) -> None:
        progress(Progress(f"Kafka {installed.jars.version}: {what}", done, 3))

    tell("starting brokers for class-data archives", 0)
    # use the folder layout of a run, so that `ackproof clean` removes the data of a killed cluster
    work = CaseDir(folder / "work")
    tag = RunTag(f"provision-{os.getpid()}", work.path, work.path)
    spec = ClusterSpec(kafka=KafkaBuild(installed.jars.version), brokers=2, controllers=1)
    with _Writers(spec, work.nodes, tag, lambda _: None, installed=installed) as cluster:
        cluster.start()
        tell("using them", 1)
        try:
            warm_up(cluster.bootstrap, leader=_WRITER, follower=_PEER)
        except ProvisionFailed as error:
            logs = "\n".join(node.log_tail() for node in cluster.nodes.values())
            raise ProvisionFailed(f"{error}\n{logs}") from error
        tell("writing the archives", 2)
        # the controller last: a broker's orderly shutdown needs it
        for role, node_id in zip(ROLES, (_WRITER, *spec.controller_ids), strict=True):
            node = cluster.nodes[node_id]
            in_time = node.stop(_STOP_WITHIN_S)
            written = work.nodes / f"{role}.jsa"
            if not in_time or not written.is_file():
                late = "" if in_time else f"; it was ended after {_STOP_WITHIN_S:g} s"
                said = " ".join(node.files.stdout.read_text(encoding="utf-8", errors="replace").split())
                raise ProvisionFailed(f"no class-data archive was written for a {role}: {said[-400:]}{late}")
            written.rename(folder / written.name)
    shutil.rmtree(work.path)
    tell("class-data archives are ready", 3)
