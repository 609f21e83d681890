"""Faults: clients killed, frozen, fenced."""
