"""nft, by which single packets are lost: the kernel takes such rules from root only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput, MissingTool

INSTALL: Final = "apt-get install nftables"


def find_nft() -> Path:
    """The program. Raises `MissingTool`, or `BadInput` where this user may not use it."""
    if os.geteuid() != 0:
        raise BadInput(
            "lost and dropped packets are not possible without root: a TCP proxy has no packets, and the "
            "kernel's packet filter takes rules from root only"
        )
    found = shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise MissingTool("nft", "lost and dropped packets are made with the kernel's packet filter", INSTALL)
    return Path(found)
