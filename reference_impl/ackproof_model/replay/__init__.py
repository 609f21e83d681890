"""A finished run replayed through the reference implementation.

Belongs here: which step each change of the metadata log is, what samples of the logs forbid, the rule that was broken.
Does not belong here: which losses that explains (`reference.explain`). Its face: `document`.
"""
