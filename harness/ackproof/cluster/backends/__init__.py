"""Backends, which decide where nodes run: as processes, in containers, or attached. `choice` makes them by name."""
