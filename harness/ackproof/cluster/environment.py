"""The ground that a cluster stood on, for the report."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import psutil

from ackproof.cluster.install import Installation

_PACKAGES: Final = ("ackproof", "confluent-kafka", "kafka-python", "pyarrow", "pyspark")


def environment_of(installed: Installation, without_archive: Sequence[int]) -> dict[str, str]:
    """Versions, machine and load. All values are text, `unknown` where the machine does not say.

    `without_archive` are the nodes whose JVM did not take its class-data archive.
    """
    return {
        "kafka": installed.jars.version,
        "java": installed.java.version,
        "class-data archive": _archives(installed, without_archive),
        **machine(),
    }


def machine() -> dict[str, str]:
    """What the harness itself runs on."""
    memory = psutil.virtual_memory()
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "python": platform.python_version(),
        "system": _system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB free",
        "load average": load,
        **{name: _version(name) for name in _PACKAGES},
    }


def _archives(installed: Installation, without: Sequence[int]) -> str:
    if not installed.archives:
        return "none: this Java shares no class data"
    if without:
        return f"not used by node {', '.join(map(str, without))}"
    return "used by every node"


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
