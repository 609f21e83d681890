"""Planned work: leader moves, reassignments, changes of settings. Nothing fails; records can be lost.

What an operator does to a running cluster on purpose. Each is asked for through the admin protocol at one broker
and witnessed at another, which has its own copy of the metadata.
"""
