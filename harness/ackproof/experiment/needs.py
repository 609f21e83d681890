"""What a fault needs of the ground that a cluster stands on, before the cluster starts."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Need(StrEnum):
    """What the conductor asks a backend to lay: the union over all faults of a case."""

    BROKER_LINKS = "links among brokers, and from brokers to controllers"
    CONTROLLER_LINKS = "links among controllers"
    CLIENT_LINKS = "links from clients to brokers"
    PACKETS = "rules for single packets"
    CLOCKS = "wall clocks of the nodes that can be set"
    DISKS = "file systems of their own for the nodes' data"
    DISKS_WHERE_ROOT = "file systems of their own for the nodes' data, where they can be mounted"


LINKS: Final = frozenset({Need.BROKER_LINKS, Need.CONTROLLER_LINKS, Need.CLIENT_LINKS})
"""Needs of which each is a class of links."""
DISKS: Final = frozenset({Need.DISKS, Need.DISKS_WHERE_ROOT})
"""Needs of disks; the second is met in part on any machine."""
