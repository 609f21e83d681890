"""Entries of the cache folder, which several runs share at once, and programs that create them.

Each entry is a folder that is either whole or absent. It is built under a file lock in a neighbouring folder and
renamed into place. A builder that was killed leaves its building folder, and perhaps processes at work in it. The next
builder ends these processes and removes the folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ackproof.base import processes
from ackproof.base.wait import wait_until
from ackproof.provision.progress import Progress, ProgressSink

_LOCK_TIMEOUT_S = 900.0
"""Seconds to wait for the lock: longer than the slowest step of another process (a download over a slow line)."""


def build_once(target: Path, build: Callable[[Path], None], progress: ProgressSink) -> Path:
    """Return the cache entry `target`. If it is missing, `build(empty folder)` makes it first.

    Only one process on this machine builds an entry at a time; the others wait. Raises `WaitTimeout` after 15 minutes
    of waiting, and what `build` raises: then no entry is left.
    """
    if target.exists():
        return target
    with _locked(target, progress):
        if target.exists():  # another process has built it meanwhile
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
    """Remove an unusable cache entry atomically: no other process finds half of it. Does nothing if the entry is
    missing. Raises `WaitTimeout` if another process works on the entry for more than 15 minutes."""
    with _locked(target, progress):
        if not target.exists():
            return
        doomed = Path(tempfile.mkdtemp(prefix=_building(target), dir=target.parent))
        target.rename(doomed / "old")
        shutil.rmtree(doomed, ignore_errors=True)


def run_program(
    command: Sequence[str],
    folder: Path,
    *,
    role: str,
    what: str,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    watch: Callable[[str], None] | None = None,
) -> tuple[int | None, str]:
    """Run a program in `folder` to its end, and return its exit status and its output with its errors. The status is
    negative if a signal ended the program (-9: signal 9). It is never None, because the program has ended.

    `role`: mark by which `ackproof clean` finds the process; the output goes to `<role>.log` in `folder`. `what`: the
    event that is awaited, for the message of `WaitTimeout` ("waited for WHAT"). `env` is added to this process's
    environment. `watch`: called ten times a second with the whole output so far. Raises `WaitTimeout` after `timeout_s`
    seconds, OSError if the program does not exist. When the function raises, it has killed the program.
    """
    output = folder / f"{role}.log"
    tag = processes.RunTag(f"provision-{os.getpid()}", folder, folder)
    child = processes.spawn(command, run=tag, role=role, cwd=folder, stdout=output, env=env)

    def read_output() -> str:
        return output.read_text(encoding="utf-8", errors="replace")

    def ended() -> bool:
        status = child.poll()
        if watch is not None:
            watch(read_output())
        return status is not None

    try:
        wait_until(
            ended,
            what=what,
            timeout_s=timeout_s,
            interval_s=0.02 if watch is None else 0.1,
            logs=lambda: "\n".join(read_output().splitlines()[-5:]),
        )
    finally:
        child.kill()
    return child.poll(), read_output()


def _building(target: Path) -> str:
    return f".{target.name}.building-"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(target: Path, progress: ProgressSink) -> Iterator[None]:
    # The kernel frees the lock when its holder dies; the file itself stays.
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("a", encoding="utf-8") as file:
        if not _try_lock(file.fileno()):
            progress(Progress(f"another ackproof is making {target.name}"))
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
    """End processes that were left by killed builders of `target`, and remove the folders of these builders. Call with
    the lock held, so that no builder is running."""
    stale = list(target.parent.glob(f"{_building(target)}*"))
    if stale:
        processes.end_children(
            lambda child: not child.owner_alive and any(map(child.directory.is_relative_to, stale))
        )
    for folder in stale:
        shutil.rmtree(folder, ignore_errors=True)
