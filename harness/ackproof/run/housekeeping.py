"""Batches on disk, running runs, and the clean-up after dead runs (`ackproof list`, `ackproof clean`).

A run is left behind if the harness that started it is dead. Its processes are ended by id, its clients' journals are
turned into ledger parts, its broker data is removed. Complete ledger parts and logs stay.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ackproof.base.errors import AckproofError, BadInput
from ackproof.base.processes import MarkedProcess, end_children, find_children, is_alive
from ackproof.clients.conversion import salvage
from ackproof.cluster.containers import presence
from ackproof.cluster.disks.file_systems import make_writable
from ackproof.cluster.disks.node_disk import COPY, orphans, remove_images, thaw_below, unmount_below
from ackproof.network import kernel
from ackproof.network.mesh import LinkError
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import AttachedFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.registry import read_entries


@dataclass(frozen=True)
class BatchLine:
    """A batch on disk, as `ackproof list` shows it. `batch`: name of its folder. `cases`: number of its cases; 0 if
    its batch.json cannot be read. `verdict`: its verdict, or `interrupted`, `no verdict` or `no batch.json`."""

    batch: str
    cases: int
    verdict: str


@dataclass(frozen=True)
class RunLine:
    """A run with living processes, as `ackproof list` shows it. `processes`: their number. `left_behind`:
    True if the harness that started one of them is dead."""

    directory: str
    processes: int
    left_behind: bool


def batches(out: Path) -> list[BatchLine]:
    """Return a line for each batch folder in a runs folder, sorted by name: their names begin with the time. Hidden
    folders and links are skipped. Empty if there is no folder `out`. A folder without a readable batch.json has the
    verdict `no batch.json`."""
    if not out.is_dir():
        return []
    found = []
    for path in sorted(out.iterdir()):
        if not path.is_dir() or path.is_symlink() or path.name.startswith("."):
            continue
        try:
            batch = BatchFile.load(BatchDir(path).batch_json)
            verdict = "interrupted" if batch.interrupted else str(batch.verdict or "no verdict")
            found.append(BatchLine(path.name, len(batch.cases), verdict))
        except BadInput:
            found.append(BatchLine(path.name, 0, "no batch.json"))
    return found


def running() -> list[RunLine]:
    """Return the runs that have living processes on this machine, sorted by directory. Processes whose environment
    this user may not read are not found."""
    by_directory: dict[str, list[MarkedProcess]] = {}
    for child in find_children():
        by_directory.setdefault(str(child.directory), []).append(child)
    return [
        RunLine(directory, len(children), not all(child.owner_alive for child in children))
        for directory, children in sorted(by_directory.items())
    ]


_IN_WORDS: Final = {
    "ended": "ended {}",
    "containers": "removed {}",
    "stuck": "could not end {}",
    "mounts": "unmounted {}",
    "ledgers": "saved the clients' journals: {}",
    "unread": "could not save a client's journal: {}",
    "data": "removed broker data: {}",
    "failed": "could not remove {}",
    "rules": "removed packet rules: nft table {}",
    "elsewhere": "a killed run left {}; delete them there",
}


@dataclass
class CleanResult:
    """Result of `ackproof clean`: the things that were ended and removed, and those that could not be.

    `ended`: processes that ended. `stuck`: processes that did not end, with the reason. `mounts`: unmounted file
    systems. `failed`: things that could not be removed, one text each, with the reason. `data`: removed folders of
    broker data. `ledgers`: ledger folders to which journals were added. `unread`: journal files that could not be read
    and stay, with the reason. `rules`: removed tables of nftables. `elsewhere`: topics of dead runs on attached
    clusters. They are listed and not deleted, because the credentials were not stored. `containers`: removed
    containers, networks and volumes, by kind and name.
    """

    ended: list[MarkedProcess] = field(default_factory=list)
    stuck: list[tuple[MarkedProcess, str]] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    ledgers: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield what was done, and what could not be, as lines of text: one for each entry of each field. Yield
        `nothing was left behind` if all fields are empty."""
        done = self.as_json()
        for name, words in _IN_WORDS.items():
            yield from (words.format(one) for one in done[name])
        if not any(done.values()):
            yield "nothing was left behind"

    def as_json(self) -> dict[str, list[str]]:
        """Return the result for `ackproof clean --json`: a list of texts for each field, by its name."""
        return {
            **vars(self),
            "ended": [_who(child) for child in self.ended],
            "stuck": [f"{_who(child)}: {why}" for child, why in self.stuck],
        }


def _who(child: MarkedProcess) -> str:
    return f"{child.role} (pid {child.pid}) of {child.directory}"


def sweep() -> CleanResult:
    """End the processes of runs whose harness is dead, and remove their containers, packet rules, mounted disks and
    broker data. Their journals become ledger parts; complete ledger parts and logs stay. Topics on attached clusters
    are only listed. Return what was done, and what could not be.

    A run stays in the registry of runs while one of its processes lives or its folder cannot be cleaned.
    """
    swept = CleanResult()
    for folder in orphans():
        # Thaw file systems first: a process that waits for a frozen one cannot be ended.
        thaw_below(folder)
    # Remove containers before processes: the engine also ends paused containers, which no signal reaches.
    directories = _remove_containers(swept)
    ended, stuck = end_children(lambda child: not child.owner_alive)
    swept.ended += ended
    swept.stuck += stuck
    held = {child.run_id for child, _ in stuck}
    for table in kernel.find_orphaned_tables():
        with contextlib.suppress(LinkError):  # another sweep has removed it
            kernel.remove_table(table)
            swept.rules.append(table)
    directories |= {str(child.directory) for child in ended}
    for path, entry in read_entries():
        if is_alive(entry.owner_pid, entry.owner_started) or entry.run_id in held:
            continue
        if _tidy(CaseDir(Path(entry.case_dir)), swept):
            path.unlink(missing_ok=True)
        directories.discard(entry.case_dir)
    for directory in sorted(directories):
        _tidy(CaseDir(Path(directory)), swept)
    for folder in list(orphans()):
        # The run's registry entry is in another state folder, or there was none (a test's cluster).
        if not any(line.startswith(f"{folder}/") for line in swept.failed):
            _unmount(folder, swept)
    return swept


def _remove_containers(swept: CleanResult) -> set[str]:
    """Remove containers, networks and volumes whose labels name a dead harness, and note them in `swept`; return the
    folders of their runs. Without a container engine nothing is done."""
    if not presence.listening():
        return set()
    # Import the engine's libraries only if there is an engine.
    from ackproof.cluster.containers.engine import EngineFailed, connect, remove_leftovers

    try:
        engine = connect()
        try:
            gone = remove_leftovers(engine, lambda marks: not marks.owner_alive)
        finally:
            engine.close()
    except BadInput:
        return set()  # not a container engine, or not accessible
    except EngineFailed as error:
        swept.failed.append(f"containers: {error}")
        return set()
    swept.containers += [f"{thing.kind} {thing.name}" for thing in gone]
    return {str(thing.marks.directory) for thing in gone}


def _unmount(folder: Path, swept: CleanResult) -> bool:
    """Unmount the file systems of nodes below a folder. Note them in `swept`, and those that could not be unmounted as
    failures. If all were unmounted, remove their image files in `folder` and return True."""
    done, stuck = unmount_below(folder)
    swept.mounts += done
    swept.failed += stuck
    if not stuck:
        remove_images(folder)
    return not stuck


def _tidy(run: CaseDir, swept: CleanResult) -> bool:
    """Turn the journals of a dead run into ledger parts, unmount its disks, and remove its broker data. Note in `swept`
    what was done, what failed, and the topics that the run left on an attached cluster. Return True if only files that
    are to be kept remain, or if the directory is missing."""
    if run.attached_json.exists():
        with contextlib.suppress(BadInput):
            attached = AttachedFile.load(run.attached_json)
            swept.elsewhere.append(f"topics at {attached.bootstrap}: {', '.join(attached.topics)}")
    if not run.path.is_dir():
        return True
    try:
        parts, unread = salvage(run)
        swept.unread += unread
        if parts:
            swept.ledgers.append(str(run.ledger))
        clean = True
        for node in sorted(path for path in run.nodes.glob("*") if path.is_dir()):
            if not _unmount(node, swept):
                clean = False
                continue  # already reported; its data is removed by a later sweep, once it can be unmounted
            for data in (node / "data", node / COPY):
                if data.is_dir():
                    make_writable(data)
                    shutil.rmtree(data)
                    swept.data.append(str(data))
    except (OSError, AckproofError) as error:
        swept.failed.append(f"{run.path}: {error}")
        return False
    return clean
