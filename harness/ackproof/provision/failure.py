"""The one exception of this room that is not the caller's fault."""

from __future__ import annotations

from ackproof.base.errors import AckproofError


class ProvisionFailed(AckproofError):
    """Something that a run needs could not be made: a download, a wrong checksum, a class-data archive."""
