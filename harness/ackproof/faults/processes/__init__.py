"""Faults: kill, stop, pause, restart."""
