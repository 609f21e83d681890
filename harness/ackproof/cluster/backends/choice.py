"""From the name of a backend to its cluster."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.base.processes import RunTag
from ackproof.cluster import clocks
from ackproof.cluster.backends.attach.cluster import AttachedCluster, Attachment
from ackproof.cluster.backends.docker import links as container_links
from ackproof.cluster.backends.process import links
from ackproof.cluster.backends.process.cluster import ProcessCluster
from ackproof.cluster.containers.presence import listening
from ackproof.cluster.disks import file_systems as disks
from ackproof.cluster.launch import Installation
from ackproof.cluster.protocol import OnNodeEvent, RunningCluster
from ackproof.experiment.needs import DISKS, LINKS, Need
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision.progress import ProgressSink, ignore

_LAID: Final = LINKS | DISKS | {Need.PACKETS, Need.CLOCKS}
"""What processes and containers lay."""


def make_cluster(
    backend: str,
    spec: ClusterSpec,
    nodes_dir: Path,
    tag: RunTag,
    on_event: OnNodeEvent,
    *,
    installed: Installation | None = None,
    needs: Set[Need] = frozenset(),
    attachment: Attachment | None = None,
) -> RunningCluster:
    """A cluster that is not yet started. `needs` is what its faults need of the ground, `attachment` where the
    cluster is that someone else runs.

    Raises `BadInput` for settings that cannot be, and for a need that this backend or machine cannot lay.
    """
    if backend == "attach":
        if attachment is None:
            raise BadInput("backend: attach needs to know where the cluster is: --bootstrap host:port")
        return AttachedCluster(spec, attachment, nodes_dir)
    if backend == "docker":
        return _docker_cluster(spec, nodes_dir, tag, on_event, installed=installed, needs=needs)
    if backend != "process":
        raise BadInput(f"there is no backend '{backend}'")
    if unmet := needs - _LAID:
        raise BadInput(f"not possible here yet: {', '.join(sorted(unmet))}")
    return ProcessCluster(spec, nodes_dir, tag, on_event, installed=installed, needs=needs)


def prepare(backend: str, needs: Set[Need], spec: ClusterSpec, progress: ProgressSink = ignore) -> None:
    """Find or make what this cluster and its needs take of the machine, before anything is started.

    Raises `BadInput`.
    """
    if backend in ("process", "docker"):
        clocks.require(needs)
    if backend == "process":
        links.require(needs, progress)
        disks.require(needs)
    if backend == "docker":
        disks.require(needs)
        container_links.require(needs, progress)
        from ackproof.cluster.containers.engine import connect
        from ackproof.cluster.containers.images import image_for

        engine = connect()
        try:
            image_for(engine, spec.kafka, progress)
        finally:
            engine.close()


def resolve(backend: str) -> str:
    """What `auto` is on this machine now: `docker` where an engine answers, else `process`. Others are themselves."""
    if backend != "auto":
        return backend
    if not listening():
        return "process"
    from ackproof.cluster.containers.engine import connect

    try:
        connect().close()
    except BadInput:
        return "process"
    return "docker"


def _docker_cluster(
    spec: ClusterSpec,
    nodes_dir: Path,
    tag: RunTag,
    on_event: OnNodeEvent,
    *,
    installed: Installation | None,
    needs: Set[Need],
) -> RunningCluster:
    """The libraries that speak to an engine are loaded only for those who ask for one (0.2 s)."""
    from ackproof.cluster.backends.docker.cluster import DockerCluster

    if unmet := needs - _LAID:
        raise BadInput(f"not possible on the backend docker yet: {', '.join(sorted(unmet))}")
    return DockerCluster(spec, nodes_dir, tag, on_event, installed=installed, needs=needs)
