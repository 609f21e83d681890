"""Faults: many faults drawn from a menu."""
