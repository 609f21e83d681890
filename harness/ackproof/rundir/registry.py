"""Which runs are under way on this machine, so that `ackproof clean` finds them from any folder.

One small JSON file per run in the user's state folder; made when a run starts, removed when it has ended. A file
whose harness is dead marks a run that was left behind.
"""

from __future__ import annotations

import os
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.base.processes import started
from ackproof.rundir.documents import Document
from ackproof.rundir.layout import CaseDir


def state_directory() -> Path:
    """Return the state folder of this user: `$XDG_STATE_HOME/ackproof`, or `~/.local/state/ackproof`."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "state") / "ackproof"


class RunEntry(Document):
    """One run. `owner_started` in clock ticks since boot, which distinguishes a pid from its later reuse."""

    run_id: str
    case_dir: str
    owner_pid: int
    owner_started: int


def _folder() -> Path:
    return state_directory() / "runs"


def register(run_id: str, run: CaseDir) -> Path:
    """Register a run of this process. Return the file to remove when it has ended."""
    own = os.getpid()
    path = _folder() / f"{run_id}.json"
    RunEntry(run_id=run_id, case_dir=str(run.path), owner_pid=own, owner_started=started(own) or 0).save(path)
    return path


def read_entries() -> list[tuple[Path, RunEntry]]:
    """Return all registered runs. A file that cannot be read is skipped and stays."""
    found: list[tuple[Path, RunEntry]] = []
    for path in sorted(_folder().glob("*.json")):
        try:
            found.append((path, RunEntry.load(path)))
        except BadInput:
            continue
    return found
