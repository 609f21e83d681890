"""The disk of a node: its log dirs, by their paths on this machine, and the file systems that are mounted there.

::

    nodes/1/data                      one log dir, the metadata log in it       (cluster.log_dirs: 1)
    nodes/1/data/metadata, log-1, …   several log dirs, the metadata log apart  (cluster.log_dirs: 2 or more)
    nodes/1/data.ext4, data.log-1.ext4, …   if faults need them: file systems, each mounted on the folder of its name
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.base.processes import is_alive, started
from ackproof.cluster.disks.file_systems import IMAGE_SUFFIX, FileSystem, thaw
from ackproof.experiment.spec import ClusterSpec
from ackproof.rundir.document import Document
from ackproof.rundir.partition import TopicPartition

OWNER_FILE: Final = "file-systems.json"
COPY: Final = "data.copy"
"""Name of the folder, next to `data`, where a fault keeps copies of data folders."""


class _Owner(Document):
    """The harness process that made a node's file systems; written to a file before they are made. `owner_started`:
    start time of the process in clock ticks since boot."""

    run_id: str
    owner_pid: int
    owner_started: int


def log_dirs(spec: ClusterSpec, data: str, *, broker: bool) -> tuple[str, ...]:
    """Return the log dirs of a node whose data folder is `data`. An isolated controller (`broker` False) has a single
    log dir."""
    if spec.log_dirs == 1 or not broker:
        return (data,)
    return tuple(f"{data}/log-{number}" for number in range(1, spec.log_dirs + 1))


def metadata_dir(spec: ClusterSpec, data: str, *, broker: bool) -> str:
    """Return the folder of the metadata log of a node whose data folder is `data`. A broker with several log dirs has a
    separate folder for the metadata log, so that the log outlives each of them."""
    return data if spec.log_dirs == 1 or not broker else f"{data}/metadata"


@dataclass(frozen=True)
class NodeDisk:
    """Data folders of one node, and the file systems mounted there. `lay` formats the empty folders: before the node's
    first start, and after a fault emptied them."""

    data: Path
    log_dirs: tuple[Path, ...]
    metadata_dir: Path
    lay: Callable[[], None]
    file_systems: tuple[FileSystem, ...] = field(default=())
    """The node's own file systems; empty if its data is on the machine's file system."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders that hold the node's data: the metadata log and the log dirs, each once."""
        return tuple(dict.fromkeys((self.metadata_dir, *self.log_dirs)))

    def make(self, size: int, run_id: str) -> None:
        """Create and mount the node's own file systems, if it has any. `size`: bytes of each. `run_id`: id of the run.
        Raises `DiskError` if one cannot be made or mounted."""
        if not self.file_systems:
            return
        own = os.getpid()
        self.data.parent.mkdir(parents=True, exist_ok=True)
        _Owner(run_id=run_id, owner_pid=own, owner_started=started(own) or 0).save(
            self.data.parent / OWNER_FILE
        )
        for system in self.file_systems:
            system.make(size)

    def thaw(self) -> None:
        """Thaw all file systems of the node: a process that waits for a frozen file system cannot be killed."""
        for system in self.file_systems:
            thaw(system.at)

    def unmount(self) -> None:
        """Unmount the node's own file systems. Raises `DiskError` if one cannot be unmounted."""
        for system in reversed(self.file_systems):
            system.unmount()

    def sync(self) -> None:
        """Write all cached data of the node's own file systems to the disk, so that a power loss loses only later
        writes. Raises `DiskError` if that fails."""
        for system in self.file_systems:
            system.sync()

    @property
    def copies(self) -> dict[Path, Path]:
        """Return for each data folder the path where a fault may keep a copy of it."""
        return {folder: self.data.with_name(COPY) / folder.name for folder in self.folders}

    def remove_copies(self) -> None:
        """Remove the copies of data folders that faults made."""
        shutil.rmtree(self.data.with_name(COPY), ignore_errors=True)

    def remove(self) -> None:
        """Remove the data, copies of it, and the images of the file systems. Call it after `unmount`. Missing files are
        no error."""
        self.remove_copies()
        shutil.rmtree(self.data, ignore_errors=True)
        for system in self.file_systems:
            system.image.unlink(missing_ok=True)
        (self.data.parent / OWNER_FILE).unlink(missing_ok=True)

    def system_of(self, folder: Path) -> FileSystem | None:
        """Return the node's own file system that is mounted on a folder; None if none is."""
        return next((system for system in self.file_systems if system.at == folder), None)

    def partition(self, topic: str, partition: int) -> Path | None:
        """Return the folder of a partition's replica; None if this node has no replica of it."""
        name = f"{topic}-{partition}"
        return next((folder / name for folder in self.log_dirs if (folder / name).is_dir()), None)

    def partitions(self) -> dict[TopicPartition, Path]:
        """Return the folders of all replicas, without the metadata log. Replicas that are being deleted or moved into a
        log dir (`-delete`, `-future`) are left out."""
        found: dict[TopicPartition, Path] = {}
        for folder in self.log_dirs:
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                topic, _, number = path.name.rpartition("-")
                if topic and topic != "__cluster_metadata" and number.isdigit() and path.is_dir():
                    found[TopicPartition(topic, int(number))] = path
        return found


def disks_of(
    spec: ClusterSpec,
    nodes_dir: Path,
    node_ids: Iterable[int],
    lay: Callable[[int], None],
    *,
    systems_of_their_own: bool,
) -> dict[int, NodeDisk]:
    """Return the disk of each node below `nodes_dir`. Nothing is created yet.

    `lay(node)` formats a node's empty folders before its first start. `systems_of_their_own`: True if each data folder
    is to be a file system of its own, which `make_all` creates.
    """
    made: dict[int, NodeDisk] = {}
    for node in node_ids:
        data, broker = nodes_dir / str(node) / "data", node in spec.broker_ids
        dirs = tuple(Path(folder) for folder in log_dirs(spec, str(data), broker=broker))
        metadata = Path(metadata_dir(spec, str(data), broker=broker))
        systems = tuple(
            FileSystem(data.parent / f"{'.'.join(at.relative_to(data.parent).parts)}{IMAGE_SUFFIX}", at)
            for at in (dict.fromkeys((metadata, *dirs)) if systems_of_their_own else ())
        )
        made[node] = NodeDisk(data, dirs, metadata, partial(lay, node), systems)
    return made


def make_all(disks: Iterable[NodeDisk], size: int, owner: str) -> None:
    """Create and mount the file systems of all nodes. Raises `DiskError` if that fails for one; others may be mounted
    then. `size`: bytes of each file system. `owner`: id of the run."""
    from concurrent.futures import ThreadPoolExecutor  # which `validate` does not need

    with ThreadPoolExecutor(max_workers=8, thread_name_prefix="disk") as pool:
        list(pool.map(lambda disk: disk.make(size, owner), disks))


_LOOPS: Final = Path("/sys/block")
_DELETED: Final = " (deleted)"


_MOUNTS: Final = Path("/proc/self/mountinfo")


def mounts_below(folder: Path) -> list[Path]:
    """Return every mount point below a folder, the innermost first."""
    home, found = folder.resolve(), []
    for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        # blanks and the like stand as \040 in the kernel's list
        path = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split(" ")[4]))
        if home in path.parents:
            found.append(path)
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def unmount_below(folder: Path) -> tuple[list[str], list[str]]:
    """Thaw and unmount all file systems below a folder, which releases their loop devices. Return the unmounted paths,
    and for each failure a text with the path and the reason."""
    done: list[str] = []
    stuck: list[str] = []
    for point in mounts_below(folder):
        thaw(point)
        result = subprocess.run(["umount", str(point)], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            done.append(str(point))
        else:
            stuck.append(f"{point}: {' '.join(result.stderr.split())}")
    return done, stuck


def orphans() -> Iterator[Path]:
    """Yield the folders of nodes whose file systems are still attached to loop devices although the harness that made
    them has ended."""
    folders: dict[Path, None] = {}
    for entry in sorted(_LOOPS.glob("loop*/loop/backing_file")):
        with contextlib.suppress(OSError):  # detached meanwhile
            name = entry.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n")
            image = Path(name.removesuffix(_DELETED))
            if image.name.startswith("data") and image.suffix == IMAGE_SUFFIX:
                folders[image.parent] = None
    for folder in folders:
        try:
            owner = _Owner.load(folder / OWNER_FILE)
        except BadInput:
            continue  # an image of that name that ackproof did not make
        if not is_alive(owner.owner_pid, owner.owner_started):
            yield folder


def thaw_below(folder: Path) -> None:
    """Thaw all file systems that are mounted below a folder. File systems that are not frozen or cannot be thawed stay
    as they are."""
    for point in mounts_below(folder):
        thaw(point)


def remove_images(folder: Path) -> None:
    """Remove the file system images in a node's folder. Does nothing without the mark of ackproof (`OWNER_FILE`) there.
    Raises OSError if one cannot be removed."""
    mark = folder / OWNER_FILE
    if mark.exists():
        for image in folder.glob(f"data*{IMAGE_SUFFIX}"):
            image.unlink()
        mark.unlink()
