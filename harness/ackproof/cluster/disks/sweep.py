"""Mounts and loop devices that a dead harness left behind, found from the kernel's own lists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.base.processes import is_alive
from ackproof.cluster.disks.file_systems import IMAGE_SUFFIX, thaw
from ackproof.cluster.disks.node_disk import OWNER_FILE, Owner

_MOUNTS: Final = Path("/proc/self/mountinfo")
_LOOPS: Final = Path("/sys/block")
_DELETED: Final = " (deleted)"


def mounts_below(folder: Path) -> list[Path]:
    """Every mount point below a folder, the innermost first."""
    home = folder.resolve()
    found = [path for path in _mount_points() if home in path.parents]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def unmount_below(folder: Path) -> tuple[list[str], list[str]]:
    """Unmount all below a folder (their loop devices go with them): what was, and what could not be, with why."""
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
    """Folders of nodes whose file systems are mounted though the harness that made them is dead."""
    for folder in dict.fromkeys(image.parent for image in _images()):
        try:
            owner = Owner.load(folder / OWNER_FILE)
        except BadInput:
            continue  # not ours: somebody else's image of that name
        if not is_alive(owner.owner_pid, owner.owner_started):
            yield folder


def thaw_below(folder: Path) -> None:
    """Let all file systems below a folder be written again."""
    for point in mounts_below(folder):
        thaw(point)


def remove_images(folder: Path) -> None:
    """Remove the images of file systems in a node's folder, if they are ours. Raises OSError."""
    mark = folder / OWNER_FILE
    if mark.exists():
        for image in folder.glob(f"data*{IMAGE_SUFFIX}"):
            image.unlink()
        mark.unlink()


def _images() -> Iterator[Path]:
    """What backs the loop devices of this machine, if it looks like ours."""
    for entry in sorted(_LOOPS.glob("loop*/loop/backing_file")):
        try:
            name = entry.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n")
        except OSError:
            continue  # detached meanwhile
        path = Path(name.removesuffix(_DELETED))
        if path.name.startswith("data") and path.suffix == IMAGE_SUFFIX:
            yield path


def _mount_points() -> Iterator[Path]:
    for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        # blanks and the like stand as \040 in the kernel's list
        yield Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4]))
