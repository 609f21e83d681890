"""Faults: wall clocks that jump."""
