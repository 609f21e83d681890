"""The families of faults: importing this module makes every kind known to the registry."""

from __future__ import annotations

from ackproof.plan import (
    fault_clients,
    fault_clocks,
    fault_command,
    fault_crashes,
    fault_disks,
    fault_links,
    fault_planned,
    fault_processes,
    fault_rollouts,
    fault_zookeeper,
    storm,
)

FAMILIES = (
    fault_processes,
    fault_crashes,
    fault_rollouts,
    fault_planned,
    fault_links,
    fault_disks,
    fault_clients,
    fault_clocks,
    fault_zookeeper,
    storm,
    fault_command,
)
"""The modules that register kinds."""
