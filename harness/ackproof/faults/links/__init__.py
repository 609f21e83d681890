"""Faults of links: cuts, silence, delay, loss, splits."""
