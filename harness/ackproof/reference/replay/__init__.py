"""A finished run replayed through the reference implementation.

Belongs here: which step each change of the metadata log is, what samples of the logs forbid, the rule that was broken.
Does not belong here: which losses that explains (`model.explain`). Its face: `conform`.
"""

from __future__ import annotations

from ackproof.reference.replay.document import conform

__all__ = ["conform"]
