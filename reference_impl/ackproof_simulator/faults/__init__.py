"""Faults of an experiment as virtual ones: what each does to hosts, links and brokers, and when it counts as healed.

Belongs here: one file for each family, a class for each kind. When they strike and heal is `simulate.schedule`'s.
Its face: `VIRTUAL` (what does each kind), `Virtual` (one being done), `NotYet`.
"""

from __future__ import annotations

from ackproof_simulator.faults import (  # noqa: F401 — each registers what it does
    clients,
    clocks,
    config,
    crashes,
    disks,
    files,
    links,
    planned,
    processes,
    rollouts,
    slow,
    voters,
)
from ackproof_simulator.faults.virtual import VIRTUAL, NotYet, Virtual

__all__ = ["VIRTUAL", "NotYet", "Virtual"]
