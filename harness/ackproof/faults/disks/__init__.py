"""Faults: full, failing, slow, emptied and rotten disks, power loss."""
