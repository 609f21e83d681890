"""Nodes as JVM processes of this machine (the default)."""
