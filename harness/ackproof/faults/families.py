"""Every family of injections: importing this module makes all of them known to the registry."""

from __future__ import annotations

from ackproof.faults import (
    clients,
    clocks,
    command,
    control,
    crashes,
    decommission,
    disks,
    disks_power,
    disks_rot,
    disks_slow,
    links,
    planned,
    planned_config,
    planned_dirs,
    processes,
    recreation,
    rollouts,
    starvation,
    voters,
    zookeeper,
)

__all__ = [
    "clients",
    "clocks",
    "command",
    "control",
    "crashes",
    "decommission",
    "disks",
    "disks_power",
    "disks_rot",
    "disks_slow",
    "links",
    "planned",
    "planned_config",
    "planned_dirs",
    "processes",
    "recreation",
    "rollouts",
    "starvation",
    "voters",
    "zookeeper",
]
