"""Folders in which nothing can be made, and back: the immutable flag (`chattr +i`; root) and the folder's mode."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
from pathlib import Path
from typing import Final

from ackproof.cluster.disks.file_systems import DiskError

_GET: Final = 0x80086601
"""FS_IOC_GETFLAGS."""
_SET: Final = 0x40086602
"""FS_IOC_SETFLAGS."""
_IMMUTABLE: Final = 0x10


def set_immutable(folder: Path, on: bool) -> None:
    """Set or clear the flag. Raises `DiskError` where the file system or the user's rights have no room for it."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(opened, _GET, struct.pack("l", 0)))
        wanted = flags | _IMMUTABLE if on else flags & ~_IMMUTABLE
        if wanted != flags:
            fcntl.ioctl(opened, _SET, struct.pack("l", wanted))
    except OSError as error:
        raise DiskError(f"{folder} cannot be made {'im' if on else ''}mutable: {error.strerror}") from error
    finally:
        os.close(opened)


def make_writable(folder: Path) -> None:
    """Take back what keeps files from being made in a folder and those below it, as far as we may."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(DiskError, OSError):
            set_immutable(Path(path), False)
        with contextlib.suppress(OSError):
            Path(path).chmod(stat.S_IMODE(Path(path).stat().st_mode) | stat.S_IWUSR)
