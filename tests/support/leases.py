"""Finds the holders of leased blocks of loopback addresses."""

from __future__ import annotations

import fcntl
from pathlib import Path

from ackproof.rundir.registry import state_directory


def lease_holders(state: Path | None = None) -> dict[int, str]:
    """Return the holder of each block that is leased now, by number of the block. `state`: state directory, None for
    the default."""
    found: dict[int, str] = {}
    for file in ((state or state_directory()) / "leases").glob("*.lock"):
        with file.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found[int(file.stem)] = file.read_text().strip()
    return found
