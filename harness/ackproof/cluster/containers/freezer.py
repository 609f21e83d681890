"""Whether a process stands still because its control group is frozen: what `docker pause` does, seen in the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_GROUPS: Final = Path("/sys/fs/cgroup")


def is_frozen(pid: int, proc: Path = _PROC, groups: Path = _GROUPS) -> bool:
    """Whether the kernel says that this process is in a frozen group (version 1 or 2). False if it is gone."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    for line in lines:
        _, controllers, path = line.split(":", 2)
        below = path.lstrip("/")
        if controllers == "freezer":
            return _says(groups / "freezer" / below / "freezer.state", "FROZEN")
        if not controllers:
            events = groups / below / "cgroup.events"
            if events.exists():
                return _says(events, "frozen 1")
    return False


def _says(file: Path, line: str) -> bool:
    try:
        return line in file.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError, OSError):
        return False
