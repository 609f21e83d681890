"""Entries of the cache folder, which several runs share at once.

Each entry is a folder that is
either whole or absent: it is built under a file lock in a neighbouring folder and renamed into place. A
builder that was killed leaves its building folder, and perhaps processes at work in it: the next builder
ends and removes them.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ackproof.base import processes
from ackproof.base.wait import wait_until
from ackproof.provision.progress import Progress, ProgressSink

_LOCK_TIMEOUT_S = 900.0
"""Longer than the slowest step that another process may be at (a download over a slow line)."""


def build_once(target: Path, build: Callable[[Path], None], progress: ProgressSink) -> Path:
    """`target`, built by `build(empty folder)` unless it is there. Only one process on the machine builds it.

    What `build` leaves in its folder becomes `target`, whole or not at all; what it raises passes through.
    """
    if target.exists():
        return target
    with _locked(target, progress):
        if target.exists():  # another process was quicker
            return target
        _sweep(target)
        building = Path(tempfile.mkdtemp(prefix=_building(target), dir=target.parent))
        try:
            build(building)
            building.chmod(0o755)
            building.rename(target)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return target


def discard(target: Path, progress: ProgressSink) -> None:
    """Remove an entry that turned out to be of no use, whole and at once: nobody finds half of it."""
    with _locked(target, progress):
        if not target.exists():
            return
        doomed = Path(tempfile.mkdtemp(prefix=_building(target), dir=target.parent))
        target.rename(doomed / "old")
        shutil.rmtree(doomed, ignore_errors=True)


def _building(target: Path) -> str:
    return f".{target.name}.building-"


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(target: Path, progress: ProgressSink) -> Iterator[None]:
    """Hold the lock of `target`. The kernel frees it when its holder dies; the lock file itself stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("a", encoding="utf-8") as file:
        if not _try_lock(file.fileno()):
            progress(Progress("wait", f"another ackproof is making {target.name}"))
            wait_until(
                lambda: _try_lock(file.fileno()),
                what=f"the ackproof that is making {target} (is it stuck? `ackproof clean` ends dead ones)",
                timeout_s=_LOCK_TIMEOUT_S,
                interval_s=0.05,
            )
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep(target: Path) -> None:
    """Remove what killed builders of `target` left. Call with the lock held: no other one is at work."""
    for stale in target.parent.glob(f"{_building(target)}*"):
        processes.end_children(partial(_orphan_in, stale))
        shutil.rmtree(stale, ignore_errors=True)


def _orphan_in(folder: Path, child: processes.MarkedProcess) -> bool:
    return not child.owner_alive and child.directory.is_relative_to(folder)
