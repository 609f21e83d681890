"""Faults of disks: full, failing, slow, emptied and corrupt ones, and power loss."""
