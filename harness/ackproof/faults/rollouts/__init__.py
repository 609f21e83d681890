"""Planned work on node after node: rolling restart, rolling upgrade, taking a broker out for good."""
