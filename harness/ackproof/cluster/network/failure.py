"""What goes wrong with links, and is not the caller's fault."""

from __future__ import annotations

from ackproof.base.errors import AckproofError


class LinkError(AckproofError):
    """A link could not be broken, mended or looked at."""
