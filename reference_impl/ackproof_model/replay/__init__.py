"""Replays a finished run through the reference implementation.

Belongs here: the step that made each change in the metadata log, checks of the samples of the logs, and the
rule that a forbidden change breaks. Does not belong here: which losses these steps explain (`explain`). Entry
point: `metadata.conform`.
"""
