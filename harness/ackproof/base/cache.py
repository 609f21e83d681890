"""The cache folder: `$ACKPROOF_CACHE`, else `$XDG_CACHE_HOME/ackproof`, else `~/.cache/ackproof`."""

from __future__ import annotations

import os
from pathlib import Path

from ackproof.base.errors import BadInput


def cache_root() -> Path:
    """The cache folder (made if it is not there). Raises `BadInput` if it cannot be written."""
    for name, below in (("ACKPROOF_CACHE", ""), ("XDG_CACHE_HOME", "ackproof")):
        if value := os.environ.get(name):
            root = Path(value).expanduser().absolute() / below
            break
    else:
        root = Path.home() / ".cache" / "ackproof"
    if ":" in str(root):
        raise BadInput(f"the cache {root} has a ':' in its name, which no class path can; set ACKPROOF_CACHE")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"the cache folder {root} cannot be made ({error.strerror}); set ACKPROOF_CACHE"
        ) from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise BadInput(f"the cache folder {root} cannot be written; set ACKPROOF_CACHE to one that can")
    return root
