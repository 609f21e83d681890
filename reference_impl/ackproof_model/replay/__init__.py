"""Replays a finished run through the reference implementation.

Belongs here: the step behind each change of the metadata log, the limits that samples of the logs set, the broken rule.
Does not belong here: which losses that explains (`explain`). Entry point: `metadata.conform`.
"""
