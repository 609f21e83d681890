"""What this machine can lay for faults that take more than processes."""

from __future__ import annotations

from functools import cache

from ackproof.base.errors import BadInput
from ackproof.cluster.disks.file_systems import refusal
from ackproof.experiment.needs import Need
from ackproof.provision.clock import find_compiler
from ackproof.provision.nft import find_nft


@cache
def has(need: Need) -> bool:
    """Whether a cluster on this machine can be given it: packets and disks take root, clocks a C compiler."""
    if need is Need.DISKS:
        return refusal() is None
    try:
        if need is Need.PACKETS:
            find_nft()
        elif need is Need.CLOCKS:
            find_compiler()
    except BadInput:
        return False
    return True
