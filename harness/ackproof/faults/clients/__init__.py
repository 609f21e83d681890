"""Faults of clients, and of the instances of a service under test."""
