"""Faults: cuts, silence, delay, loss, splits."""
