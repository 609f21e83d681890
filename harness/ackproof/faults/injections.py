"""Every family of injections: importing this module makes all of them known to the registry."""

from __future__ import annotations

from ackproof.faults.clients import injection as clients
from ackproof.faults.clocks import injection as clocks
from ackproof.faults.command import injection as command
from ackproof.faults.crashes import injection as crashes
from ackproof.faults.crashes import quorum as control
from ackproof.faults.crashes import starvation, voters
from ackproof.faults.disks import injection as disks
from ackproof.faults.disks import power as disks_power
from ackproof.faults.disks import rot as disks_rot
from ackproof.faults.disks import slow as disks_slow
from ackproof.faults.links import injection as links
from ackproof.faults.planned import config as planned_config
from ackproof.faults.planned import dirs as planned_dirs
from ackproof.faults.planned import injection as planned
from ackproof.faults.planned import recreation
from ackproof.faults.processes import injection as processes
from ackproof.faults.rollouts import decommission
from ackproof.faults.rollouts import injection as rollouts
from ackproof.faults.zookeeper import injection as zookeeper

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
