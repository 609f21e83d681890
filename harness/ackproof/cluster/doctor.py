"""Checks of this machine (`ackproof doctor`): whether it can run clusters, and whether it meets the needs of faults."""

from __future__ import annotations

import os
import platform
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from ackproof.base.environment import cache_root, free_space
from ackproof.base.errors import AckproofError, BadInput, MissingTool
from ackproof.base.processes import RunTag
from ackproof.cluster.backends.links import find_tools
from ackproof.cluster.disks.file_systems import refusal
from ackproof.experiment.backends import LINKS, REQUESTS, Need
from ackproof.experiment.kafka import DEFAULT, KafkaBuild
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision import maven
from ackproof.provision.jars import is_cached, kafka_jars
from ackproof.provision.java import find_java
from ackproof.provision.progress import Progress, ProgressSink, ProvisionFailed, ignore
from ackproof.provision.tools import find_compiler, find_nft
from ackproof.rundir.layout import CaseDir

_LEAST_PYTHON = (3, 11)
_CACHE_BYTES = 300 << 20
"""Free bytes that the cache needs: jars 45 MB, archives 100 MB, and room to make them."""
_RUNS_BYTES = 2 << 30
"""Free bytes that runs need: broker data and ledgers of the catalogue's largest experiment, with a margin."""
_MEMORY_BYTES = 2 << 30
"""Bytes of available memory that a run needs: four nodes at 150 MB, clients, and afterwards the audit's Spark."""


_OPTIONAL: Final = (
    ("links", Need.CLIENT_LINKS, "links are broken"),
    ("packets", Need.PACKETS, "packets are lost"),
    ("clocks", Need.CLOCKS, "clocks jump"),
    ("disks", Need.DISKS, "disks are filled, fail or lose their power"),
)
"""Checks of needs that only some faults have: (name of the check, need, words for what such a fault does)."""


def describe_means(need: Need, *, containers: bool = False) -> str:
    """Return in words the tool or right by which this machine meets a need (a preparation that faults require), such as
    the path of nft. Return '' if there is nothing to name, as for jars, which are fetched later.

    `containers`: True if the nodes are containers. Raises `BadInput` if the machine cannot meet the need. A missing
    Toxiproxy is not built. For `Need.DISKS` the first call mounts a file system as a trial.
    """
    if need is Need.DISKS:
        if why := refusal():
            raise BadInput(why)
        return "a file system in a file can be mounted (loop device, ext4)"
    if need is Need.PACKETS:
        return str(find_nft())
    if need is Need.CLOCKS:
        return str(find_compiler())
    return find_tools({need}, containers=containers) if need in LINKS | REQUESTS.keys() else ""


@dataclass(frozen=True)
class Check:
    """Result of one check of this machine. `found`: what was found, in words. `advice`: how to get what is missing;
    empty if `ok`, or if no remedy is known."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def doctor(
    progress: ProgressSink = ignore, *, version: str = DEFAULT, runs: Path = Path("runs")
) -> list[Check]:
    """Check everything that a run needs; the last check starts a node and sends it a request.

    `version`: the Kafka release. `runs`: the folder for run directories, whose free space is checked. Fetches jars and
    makes archives if they are not in the cache (25 s the first time, 2 s later). A check that fails is in the result,
    not an exception. A tool that only some faults need may be missing: its check is `ok` and says so in `found`.
    """
    looks: list[tuple[str, str, Callable[[], str]]] = [
        ("Python", "install Python 3.11 or newer", _python),
        ("Java", "", _java),
        ("Maven", "", lambda: _maven(version)),
        ("cache", "free some space, or set ACKPROOF_CACHE", lambda: _space(cache_root(), _CACHE_BYTES)),
        ("runs", "free some space, or give another folder with --out", lambda: _space(runs, _RUNS_BYTES)),
        ("memory", "end other programs; a broker needs about 150 MB, the audit 1 GB", _memory),
        ("loopback", "brokers need all of 127.0.0.0/8: ip addr add 127.0.0.1/8 dev lo", _loopback),
        ("jars", "look at Maven's settings and the network", lambda: _jars(version, progress)),
        ("class data", "a run works without, but starts slower", lambda: _archive(version, progress)),
        *((name, "", partial(_optional, need, where)) for name, need, where in _OPTIONAL),
        ("start", "the node's last log lines say more", lambda: _start(version, progress)),
    ]
    checks: list[Check] = []
    for name, advice, look in looks:
        progress(Progress(f"looking at {name}", len(checks), len(looks)))
        checks.append(_check(name, advice, look))
    return checks


def _check(name: str, advice: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except MissingTool as error:
        return Check(name, False, error.lack, f"install it: {error.install}")
    except (AckproofError, OSError) as error:
        return Check(name, False, str(error), advice)


def _python() -> str:
    if sys.version_info < _LEAST_PYTHON:
        raise ProvisionFailed(f"{platform.python_version()} is too old")
    return f"{platform.python_version()} ({sys.executable})"


def _optional(need: Need, where: str) -> str:
    try:
        return describe_means(need)
    except AckproofError as error:
        return f"not there, and needed only if {where}: {error}"


def _java() -> str:
    java = find_java()
    text = f"{java.version} ({java.path})"
    home = os.environ.get("JAVA_HOME")
    if home and not java.path.is_relative_to(home):
        text += f"; JAVA_HOME={home} has no Java that can be used"
    return text


def _maven(version: str) -> str:
    try:
        return f"{maven.find_maven()}"
    except MissingTool:
        if is_cached(version):
            return f"not there and not needed: the jars of Kafka {version} are in the cache"
        raise


def _space(folder: Path, least: int) -> str:
    folder = folder.absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise ProvisionFailed(f"{folder} cannot be written")
    free = free_space(folder)
    if free < least:
        raise ProvisionFailed(f"{folder}: {_gigabytes(free)} free, {_gigabytes(least)} are needed")
    return f"{folder}: {_gigabytes(free)} free"


def _memory() -> str:
    free = psutil.virtual_memory().available
    if free < _MEMORY_BYTES:
        raise ProvisionFailed(f"{_gigabytes(free)} available, {_gigabytes(_MEMORY_BYTES)} are needed")
    return f"{_gigabytes(free)} available, {os.cpu_count()} processors"


def _loopback() -> str:
    """Listen at an address other than 127.0.0.1, as each node of a cluster does, and connect to it. Return the result
    in words; raises OSError if it fails."""
    address = "127.201.2.1"
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen(1)
        with socket.create_connection(listener.getsockname(), timeout=5):
            return f"{address} and similar addresses can be used"


def _jars(version: str, progress: ProgressSink) -> str:
    jars = kafka_jars(version, progress)
    return f"Kafka {version}: {len(jars.classpath)} jars, SHA-256 as locked ({jars.directory})"


def _archive(version: str, progress: ProgressSink) -> str:
    from ackproof.cluster.install import install

    java = find_java()
    if not java.sharing:
        raise ProvisionFailed(
            f"{java.path} ({java.version}) shares no class data; make its own archive: {java.path} -Xshare:dump"
        )
    paths = list(install(KafkaBuild(version), progress).archives.values())
    return f"{', '.join(path.name for path in paths)} ({paths[0].parent})"


def _start(version: str, progress: ProgressSink) -> str:
    # Import here: modules that start a node take long to load, and `describe_means` does not need them.
    from ackproof.cluster.backends.process import ProcessCluster
    from ackproof.cluster.install import EVERY_NODE, install

    installed = install(KafkaBuild(version), progress)
    spec = ClusterSpec(kafka=KafkaBuild(version), brokers=1, combined=True)
    with tempfile.TemporaryDirectory(prefix="ackproof-doctor-") as folder:
        work = CaseDir(Path(folder))
        tag = RunTag(f"doctor-{os.getpid()}", work.path, work.path)
        began = time.monotonic()
        with ProcessCluster(spec, work.nodes, tag, lambda _: None, installed=installed) as cluster:
            cluster.start()
            took = time.monotonic() - began
            if installed.archives and cluster.environment()["class-data archive"] != EVERY_NODE:
                raise ProvisionFailed(
                    f"the node does not use its class-data archive {installed.archives['broker']}"
                )
    return f"a node of Kafka {version} started and answered in {took:.1f} s, and is stopped"


def _gigabytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GB"
