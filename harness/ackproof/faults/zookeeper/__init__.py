"""Faults: sessions that end."""
