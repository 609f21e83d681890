"""A cluster that writes class-data archives: each of its roles at the end of a node that led, followed and served."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from ackproof.base.processes import RunTag
from ackproof.cluster.backends.process.cluster import ProcessCluster
from ackproof.cluster.backends.process.node import ProcessNode
from ackproof.cluster.install import Installation
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision.jvm import ROLES, warm_up
from ackproof.provision.progress import Progress, ProgressSink, ProvisionFailed
from ackproof.rundir.layout import CaseDir

_WRITER, _PEER = 1, 2
_STOP_WITHIN_S: Final = 300.0
"""An archive is written at the JVM's exit: some seconds, on a loaded machine minutes."""


class _Writers(ProcessCluster):
    """The controller and one of two brokers write an archive when they end in good order."""

    def _sharing(self, node: ProcessNode, installed: Installation) -> list[str]:
        del installed
        if node.id == _PEER:
            return []
        # hundreds of warnings about classes that cannot be archived are of no interest
        archive = self.nodes_dir / f"{'broker' if node.is_broker else 'controller'}.jsa"
        return ["-Xlog:disable", "-Xlog:all=error:stdout", f"-XX:ArchiveClassesAtExit={archive}"]


def write_archives(installed: Installation, progress: ProgressSink, folder: Path) -> None:
    """Put `<role>.jsa` into `folder` for each role (about 12 s).

    Raises `ProvisionFailed`, `NodeDied` with the last log lines, `WaitTimeout`.
    """

    def tell(what: str, done: int) -> None:
        progress(Progress("archive", f"Kafka {installed.jars.version}: {what}", done, 3))

    tell("starting brokers for class-data archives", 0)
    # where a run has its nodes, too: `ackproof clean` removes the data of a killed one
    work = CaseDir(folder / "work")
    tag = RunTag(f"provision-{os.getpid()}", work.path, work.path)
    spec = ClusterSpec(kafka=KafkaBuild(installed.jars.version), brokers=2, controllers=1)
    with _Writers(spec, work.nodes, tag, lambda _: None, installed=installed) as cluster:
        cluster.start()
        tell("using them", 1)
        warm_up(cluster.bootstrap, leader=_WRITER, follower=_PEER)
        tell("writing the archives", 2)
        # the controller last: a broker's orderly shutdown needs it
        for role, node in zip(ROLES, (cluster.node(_WRITER), *cluster.controllers()), strict=True):
            in_time = node.stop(_STOP_WITHIN_S)
            written = work.nodes / f"{role}.jsa"
            if not in_time or not written.is_file():
                late = "" if in_time else f"; it was ended after {_STOP_WITHIN_S:g} s"
                said = " ".join(node.files.stdout.read_text(encoding="utf-8", errors="replace").split())
                raise ProvisionFailed(f"no class-data archive was written for a {role}: {said[-400:]}{late}")
            written.rename(folder / written.name)
    shutil.rmtree(work.path)
    tell("class-data archives are ready", 3)
