"""Faults: commands of the user."""
