"""Chooses a backend by its name, creates its cluster, and prepares its tools, images and jars."""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.base.processes import RunTag
from ackproof.cluster.backends.attach.cluster import AttachedCluster, Attachment
from ackproof.cluster.backends.links import find_tools
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.containers.presence import listening
from ackproof.cluster.disks import file_systems as disks
from ackproof.cluster.install import Installation
from ackproof.cluster.protocol import Cluster, OnNodeEvent
from ackproof.experiment.backends import BACKENDS, LINKS, Need
from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision.byteman import byteman_install_jar, byteman_jar
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.provision.tools import clock_library, exporter_jar, toxiproxy_server


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
) -> Cluster:
    """Return a cluster that is not started yet. `nodes_dir`: folder in which each node gets a folder.

    `backend`: `process`, `docker` or `attach`; any other name is refused (see `resolve` for `auto`). `tag`: marks by
    which the run's processes are found. `on_event`: gets starts and ends of nodes, and ends of proxies. `installed`:
    Java and jars to use; None: the start finds or makes them. `needs`: preparations that the run's faults and observers
    require. `attachment`: address and settings of an existing cluster, which only the backend `attach` uses; apart from
    it, that backend uses only `spec` and `nodes_dir`. Raises `BadInput` for another backend, for impossible settings,
    and for a need that `process` or `docker` cannot meet.
    """
    if backend == "attach":
        if attachment is None:
            raise BadInput("backend: attach needs the address of the cluster: --bootstrap host:port")
        return AttachedCluster(spec, attachment, nodes_dir)
    if backend not in ("process", "docker"):
        raise BadInput(f"there is no backend '{backend}'")
    if unmet := needs - BACKENDS[backend].prepares:
        raise BadInput(f"not possible on the backend {backend} yet: {', '.join(sorted(unmet))}")
    if backend == "process":
        return ProcessCluster(spec, nodes_dir, tag, on_event, installed=installed, needs=needs)
    # Import the engine's libraries only for backend docker (0.2 s).
    from ackproof.cluster.backends.docker import DockerCluster

    return DockerCluster(spec, nodes_dir, tag, on_event, installed=installed, needs=needs)


def prepare(
    backend: str, needs: Set[Need], builds: Iterable[KafkaBuild], progress: ProgressSink = ignore
) -> None:
    """Find, fetch or build the tools and jars for these needs, and with backend docker an image for each of `builds`.
    `backend`: a name that `resolve` returned. Does nothing for backends that start no nodes.

    Raises `BadInput` if a needed tool or right is missing, if no container engine can be used, or for an unknown build.
    Raises `ProvisionFailed` for a failed download, checksum or build, `EngineFailed` if the container engine fails,
    `WaitTimeout` if a step takes too long.
    """
    if not BACKENDS[backend].prepares:
        return
    if Need.CLOCKS in needs:
        clock_library()
    disks.require(needs)
    find_tools(needs, containers=backend == "docker")
    if needs & LINKS:
        toxiproxy_server(progress)
    if Need.METRICS in needs:
        exporter_jar(progress)
    if Need.CODE in needs:
        byteman_jar(progress)
        byteman_install_jar(progress)
    if backend == "process":
        return
    from ackproof.cluster.containers.build import prepare_image
    from ackproof.cluster.containers.engine import connect

    engine = connect()
    try:
        for build in builds:
            prepare_image(engine, build, progress)
    finally:
        engine.close()


def resolve(backend: str) -> str:
    """Return the backend that `auto` stands for: `docker` if a container engine answers, else `process`. Other names
    are returned unchanged."""
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
