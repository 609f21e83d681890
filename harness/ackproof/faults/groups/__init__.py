"""Faults of consumer groups: members that join, leave, are replaced or slow; offsets that an operator resets."""
