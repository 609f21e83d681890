"""Planned work: leader moves, reassignments, changes of settings. No component fails, but records can be lost.

Operators do such work on purpose, on a running cluster. Changes are requested through the admin protocol at
one broker. Most are witnessed at another broker, which has its own copy of the metadata.
"""
