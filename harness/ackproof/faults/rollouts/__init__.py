"""Faults: rolling restart and upgrade, decommission."""
