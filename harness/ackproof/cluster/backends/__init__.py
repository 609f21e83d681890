"""Backends, which decide where nodes run: as processes, in containers, or attached. `choice` creates a backend by its
name."""
