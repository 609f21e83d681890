"""Faults: planned work: elections, reassignments, settings, log dirs, recreated topics."""
