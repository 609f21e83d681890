"""Whether an engine might be there, said without loading a library."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

DEFAULT: Final = "unix:///var/run/docker.sock"
_LOOK_S: Final = 2.0


def where() -> str:
    """The engine's address: `DOCKER_HOST`, or the usual socket."""
    return os.environ.get("DOCKER_HOST") or DEFAULT


def listening() -> bool:
    """Whether somebody listens at the engine's address, and this user may connect. Other schemes: perhaps."""
    return refusal() is None


def refusal() -> OSError | None:
    """Why nobody can be reached at the engine's address; None when somebody listens, or it is no socket of ours."""
    address = where()
    if not address.startswith("unix://"):
        return None
    path = Path(address.removeprefix("unix://"))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_LOOK_S)
            probe.connect(str(path))
    except OSError as error:
        return error
    return None
