"""Checks whether a container engine can be reached, without loading the docker SDK."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

DEFAULT: Final = "unix:///var/run/docker.sock"
_LOOK_S: Final = 2.0


def engine_address() -> str:
    """Return the engine's address: `DOCKER_HOST`, or the usual socket."""
    return os.environ.get("DOCKER_HOST") or DEFAULT


def listening() -> bool:
    """Return True if this user can connect to the engine's Unix socket; always True for an address that is no Unix
    socket."""
    return refusal() is None


def refusal() -> OSError | None:
    """Return the error of a connection to the engine's socket; None if it can be reached, or if the address is no Unix
    socket."""
    address = engine_address()
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
