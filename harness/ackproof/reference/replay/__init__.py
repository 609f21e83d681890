"""A finished run replayed through the reference implementation.

Belongs here: which step each change of the metadata log is, what samples of the logs forbid, the rule that was broken.
Does not belong here: which losses that explains (`model.explain`). Its face: `conform`, `replay_run`.
"""

from __future__ import annotations

from ackproof.reference.replay.document import conform, replay_run

__all__ = ["conform", "replay_run"]
