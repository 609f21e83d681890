"""The families of faults: importing this module makes every kind known to the registry."""

from __future__ import annotations

from ackproof.faults.clients import specification as fault_clients
from ackproof.faults.clocks import specification as fault_clocks
from ackproof.faults.command import specification as fault_command
from ackproof.faults.crashes import specification as fault_crashes
from ackproof.faults.disks import specification as fault_disks
from ackproof.faults.links import specification as fault_links
from ackproof.faults.planned import specification as fault_planned
from ackproof.faults.processes import specification as fault_processes
from ackproof.faults.rollouts import specification as fault_rollouts
from ackproof.faults.storm import specification as storm
from ackproof.faults.zookeeper import specification as fault_zookeeper

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
