"""The registry of runs on this machine, by which `ackproof clean` finds them from any folder.

Each run has a small JSON file in the user's state folder, written when it starts and removed when it has ended. A
file whose harness process no longer exists marks an abandoned run.
"""

from __future__ import annotations

import os
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.base.processes import started
from ackproof.rundir.document import Document
from ackproof.rundir.layout import CaseDir


def state_directory() -> Path:
    """Return the state folder of this user: `$XDG_STATE_HOME/ackproof` if that variable is an absolute path, else
    `~/.local/state/ackproof`. It need not exist."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "state") / "ackproof"


class RunEntry(Document):
    """One registered run. `case_dir`: its folder. `owner_pid`: the harness process that runs it. `owner_started`: start
    of that process in clock ticks since boot, which distinguishes its pid from a later reuse; 0: unknown."""

    run_id: str
    case_dir: str
    owner_pid: int
    owner_started: int


def _folder() -> Path:
    return state_directory() / "runs"


def register(run_id: str, run: CaseDir) -> Path:
    """Register a run of this process, so that `ackproof clean` finds it if the process is killed.

    Return the path of its file, which the caller removes when the run has ended. Raises OSError if it cannot be
    written.
    """
    own = os.getpid()
    path = _folder() / f"{run_id}.json"
    RunEntry(run_id=run_id, case_dir=str(run.path), owner_pid=own, owner_started=started(own) or 0).save(path)
    return path


def read_entries() -> list[tuple[Path, RunEntry]]:
    """Return all registered runs with the paths of their files. Unreadable files are skipped and kept."""
    found: list[tuple[Path, RunEntry]] = []
    for path in sorted(_folder().glob("*.json")):
        try:
            found.append((path, RunEntry.load(path)))
        except BadInput:
            continue
    return found
