"""Faults: crash loops, deaths at start-up, out of memory, starvation, a lost quorum."""
