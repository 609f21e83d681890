"""Kafka's server jars by version, in the cache, each with the SHA-256 that its lock says."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from ackproof.base.cache import cache_root
from ackproof.provision import maven
from ackproof.provision.cache import build_once
from ackproof.provision.failure import ProvisionFailed
from ackproof.provision.progress import Progress, ProgressSink, ignore
from ackproof.provision.releases import Lock, direct_dependencies, lock


@dataclass(frozen=True)
class KafkaJars:
    """The server jars of one version, verified.

    `directory` holds the jars alone; `home` is its folder in the cache, in which class-data archives and
    formatted checkpoints of this version stand too.
    """

    version: str
    directory: Path
    classpath: tuple[Path, ...]
    """Sorted absolute paths: a class-data archive is valid for exactly this order."""

    @property
    def home(self) -> Path:
        """Where all that belongs to this version stands in the cache."""
        return self.directory.parent

    @property
    def classpath_argument(self) -> str:
        return ":".join(map(str, self.classpath))


def kafka_jars(version: str, progress: ProgressSink = ignore) -> KafkaJars:
    """The jars of this version: from the cache, else fetched with Maven (7 s and 45 MB the first time).

    Every jar is compared with the lock, cached ones too (0.03 s, once per process while no file changes).
    Raises `BadInput` (unknown version), `MissingTool` (mvn, java), `ProvisionFailed` (download, SHA-256).
    """
    locked = lock(version)
    directory = _home(locked) / "jars"
    build_once(directory, lambda folder: _fetch(locked, folder, progress), progress)
    _check_cached(locked, directory, progress)
    return KafkaJars(version, directory, tuple(directory / name for name in sorted(locked.jars)))


def is_cached(version: str) -> bool:
    """Whether `kafka_jars` would need neither Maven nor a network."""
    return (_home(lock(version)) / "jars").exists()


def _home(locked: Lock) -> Path:
    return cache_root() / f"kafka-{locked.version}-{locked.digest}"


def _fetch(locked: Lock, folder: Path, progress: ProgressSink) -> None:
    work, jars = folder / "work", folder / "jars"
    work.mkdir()
    name, artifacts = f"Kafka {locked.version}", direct_dependencies(locked.version)
    maven.fetch(name, artifacts, jars, work, expected=locked.jars, progress=progress)
    progress(Progress("verify", f"Kafka {locked.version}: comparing SHA-256", 0, len(locked.jars)))
    verify(locked, jars)
    for jar in jars.iterdir():
        jar.rename(folder / jar.name)
    jars.rmdir()
    shutil.rmtree(work)


def verify(locked: Lock, directory: Path) -> None:
    """Compare the folder's jars with the lock. Raises `ProvisionFailed` that names the first difference."""
    found = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    where = f"Kafka {locked.version} in {directory}"
    if missing := sorted(locked.jars.keys() - found):
        raise ProvisionFailed(f"{where}: {missing[0]} is missing ({len(missing)} jars in all)")
    if extra := sorted(found - locked.jars.keys()):
        raise ProvisionFailed(f"{where}: {extra[0]} is not in the lock ({len(extra)} files in all)")
    for name, expected in locked.jars.items():
        if (got := sha256(directory / name)) != expected:
            raise ProvisionFailed(
                f"{where}: wrong SHA-256 of {name}: expected {expected}, got {got}; nothing of it is used"
            )


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_verified: set[tuple[str, tuple[tuple[str, int, int], ...]]] = set()
"""What this process has verified: lock digest, and name, size and time of change (ns) of every file."""


def _check_cached(locked: Lock, directory: Path, progress: ProgressSink) -> None:
    stats = ((path, path.stat()) for path in sorted(directory.iterdir()))
    look = (locked.digest, tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats))
    if look in _verified:
        return
    progress(Progress("verify", f"Kafka {locked.version}: comparing SHA-256", 0, len(locked.jars)))
    try:
        verify(locked, directory)
    except ProvisionFailed as error:
        raise ProvisionFailed(f"{error}. To fetch it anew: rm -r {directory}") from error
    _verified.add(look)
