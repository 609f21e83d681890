"""Faults of consumer groups: members that join, leave, are replaced or slow down; offsets that an operator resets."""
