"""The installation of a Kafka release on this machine (Java, jars, archives, checkpoint), and facts about the
machine."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import psutil

from ackproof.experiment.kafka import KafkaBuild
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision.builds import find_build
from ackproof.provision.checkpoint import bootstrap_checkpoint
from ackproof.provision.jars import KafkaJars, copy_build, prepare_jars
from ackproof.provision.java import Java, find_java
from ackproof.provision.jvm import Role, class_data_archives
from ackproof.provision.progress import ProgressSink, ignore

EVERY_NODE: Final = "used by every node"
_PACKAGES: Final = ("ackproof", "confluent-kafka", "kafka-python", "pyarrow", "pyspark")


@dataclass(frozen=True)
class Installation:
    """Java, jars and files that a cluster starts from.

    `archives`: class-data archive by role; a node whose role has no archive starts slowly. `checkpoint`: formatted
    metadata snapshot that each new controller gets.
    """

    java: Java
    jars: KafkaJars
    archives: Mapping[Role, Path]
    checkpoint: Path


def install(build: KafkaBuild, progress: ProgressSink = ignore) -> Installation:
    """Find or make what nodes of this Kafka need to start: Java, jars, class-data archives and a metadata checkpoint.
    Missing archives are made by a cluster that is started for this purpose.

    If this Java cannot share class data, there are no archives: nodes start slowly, and nothing else changes. Raises
    `BadInput` for an unknown release, or if the build or image is missing. Raises `MissingTool` without mvn, Java or a
    needed container engine, `ProvisionFailed` if a download, a SHA-256 check or an archive fails. Raises `EngineFailed`
    if the engine fails, `NodeDied` if a node of that cluster ends by itself, `WaitTimeout` if a step takes too long.
    """
    java = find_java()
    if build.image is None:
        jars = prepare_jars(build, progress)
    else:
        # Import the engine's libraries only for builds from an image.
        from ackproof.cluster.containers.images import copy_image_jars

        jars = copy_build(find_build(copy_image_jars(build.image, progress)), build, progress)
    bare = Installation(java, jars, {}, bootstrap_checkpoint(jars, java, progress=progress))
    if not java.sharing:
        return bare
    # A cluster writes the archives, and a cluster needs an installation: first one without archives.
    from ackproof.cluster.backends.process import write_archives

    # Rules do not change the files that an archive is made of: it is made without them.
    make = partial(write_archives, replace(bare, jars=replace(jars, rules=None)), progress)
    return replace(bare, archives=class_data_archives(jars, java, make, progress))


def with_features(
    installed: Installation, features: Mapping[str, int], progress: ProgressSink = ignore
) -> Installation:
    """Return the installation with a metadata checkpoint for these feature levels (by name), which takes 0.5 s the
    first time. Without `features` it is returned unchanged.

    Raises `BadInput` for a malformed feature, and with Kafka's message if formatting with these levels fails. Raises
    `WaitTimeout` if it takes too long.
    """
    if not features:
        return installed
    made = bootstrap_checkpoint(installed.jars, installed.java, features=features, progress=progress)
    return replace(installed, checkpoint=made)


def jars_by_label(
    builds: Iterable[KafkaBuild], ready: Mapping[KafkaBuild, Installation]
) -> dict[str, Mapping[str, str]]:
    """Return label → (file name of a jar → SHA-256) of each build that has an installation in `ready`."""
    return {build.label: ready[build].jars.digests for build in builds if ready.get(build)}


def release_levels(build: KafkaBuild) -> dict[str, int]:
    """Return the feature levels that this release's own tool writes into a new cluster, by feature name. Installs the
    release if needed.

    Raises `NotDecoded` for a checkpoint with records in an unknown form, and the exceptions of `install`.
    """
    # Import here: the package loads the ZooKeeper client, which reading an experiment does not need.
    from ackproof.cluster.metadata.kraft_log import levels_in

    return levels_in(install(build).checkpoint)


def environment_of(
    installed: Installation, without_archive: Sequence[int], spec: ClusterSpec
) -> dict[str, str]:
    """Return the environment of a run for its report, as text by name: `kafka`, `java`, `racks`, `load average` and
    others.

    The values are versions of Kafka, Java, Python and client libraries, and hardware and load of this machine. A
    package that is not installed has the version `unknown`. `without_archive`: nodes whose JVM does not use its
    class-data archive.
    """
    if not installed.archives:
        archives = "none: this Java shares no class data"
    elif without_archive:
        archives = f"not used by node {', '.join(map(str, without_archive))}"
    else:
        archives = EVERY_NODE
    jars = installed.jars
    commit = f", commit {jars.commit}" if jars.commit else ""
    return {
        "kafka": jars.version,
        **({"kafka build": f"{jars.full_version}{commit}"} if jars.full_version else {}),
        "kafka jars": f"{len(jars.digests)}, SHA-256 {jars.digest}",
        "java": installed.java.version,
        "class-data archive": archives,
        **({"racks": racks} if (racks := spec.members.rack_text) else {}),
        **machine(),
    }


def machine() -> dict[str, str]:
    """Return Python, operating system, processors, memory, load and package versions of this machine, as text by
    name."""
    memory = psutil.virtual_memory()
    system = platform.system()
    with contextlib.suppress(OSError):
        system = platform.freedesktop_os_release().get("PRETTY_NAME", system)
    return {
        "python": platform.python_version(),
        "system": system,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB free",
        "load average": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        **{name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
