"""Planned work: leader moves, reassignments, changes of settings. No component fails, but records can be lost.

Operators do such work on purpose, on a running cluster. Each change is requested through the admin protocol at one
broker and witnessed at another, which has its own copy of the metadata.
"""
