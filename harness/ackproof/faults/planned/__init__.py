"""Planned work: leader moves, reassignments, changes of settings. Nothing fails; records can be lost.

Operators do such work on purpose, on a running cluster. Each change is asked for through the admin protocol at one
broker and witnessed at another, which has its own copy of the metadata.
"""
