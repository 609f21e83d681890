"""Faults of disks: full, failing, slow, emptied and corrupt disks, and power loss."""
