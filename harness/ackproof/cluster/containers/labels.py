"""What marks a container, network, volume or image as ours, and whose it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackproof.base.processes import RunTag, is_alive, started

RUN: Final = "ackproof.run"
BATCH: Final = "ackproof.run.batch"
CASE: Final = "ackproof.case"
ROLE: Final = "ackproof.role"
OWNER: Final = "ackproof.owner"
KAFKA: Final = "ackproof.kafka"
"""On images: the version of Kafka in it."""


def labels(tag: RunTag, role: str) -> dict[str, str]:
    """The labels of something that the present process makes for a run."""
    return {
        RUN: tag.run_id,
        BATCH: str(tag.batch_dir.absolute()),
        CASE: str(tag.case_dir.absolute()),
        ROLE: role,
        OWNER: f"{os.getpid()}:{started(os.getpid())}",
    }


@dataclass(frozen=True)
class Marks:
    """Labels, read back. `owned`: the harness that made it lives."""

    run_id: str
    directory: Path
    role: str
    owned: bool


def marks(found: Mapping[str, str] | None) -> Marks | None:
    """What labels say; None if they are not a run's."""
    read = found or {}
    pid, _, start = read.get(OWNER, "").partition(":")
    if not (RUN in read and CASE in read and pid.isdigit() and start.isdigit()):
        return None
    return Marks(read[RUN], Path(read[CASE]), read.get(ROLE, ""), is_alive(int(pid), int(start)))
