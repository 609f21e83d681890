"""The locale, the cache folder and the disks that a process finds.

ackproof encodes file names in UTF-8 whatever the locale is. Many CI jobs and containers have the locale C. There, Java
finds no file with an umlaut in its path, and Python without its UTF-8 mode cannot even name one. Messages on the
terminal keep the encoding of the locale.
"""

from __future__ import annotations

import locale
import os
import shutil
import sys
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput

_UTF8: Final = ("C.UTF-8", "C.utf8", "en_US.UTF-8")
"""Locales to try, in this order. glibc has the first one built in since 2.35; Debian and Fedora had it long before."""


def use_utf8_in_children() -> None:
    """Make every process that this one starts from now on decode file names as UTF-8: set PYTHONUTF8 and LC_ALL, unless
    the locale is UTF-8 already. The LC_CTYPE of this process changes too.

    If this machine has no UTF-8 locale, only Python processes obey. `BadInput` is raised then if the current folder or
    an argument of the command is not ASCII.
    """
    if _is_utf8(locale.getencoding()):
        return
    os.environ["PYTHONUTF8"] = "1"
    for name in _UTF8:
        try:
            locale.setlocale(locale.LC_CTYPE, name)
        except locale.Error:
            continue
        os.environ["LC_ALL"] = name
        return
    if not " ".join((str(Path.cwd()), *sys.argv)).isascii():
        raise BadInput(
            "Java finds no file whose path is not ASCII in this locale (see LC_ALL, LANG), and there is none with "
            "UTF-8 here: install one (apt-get install locales), or use paths of plain letters"
        )


def restart_in_utf8() -> None:
    """Call `use_utf8_in_children`. If this process itself does not decode file names as UTF-8, replace it (exec) by the
    same command in Python's UTF-8 mode. Raises `BadInput` like `use_utf8_in_children`."""
    use_utf8_in_children()
    if _is_utf8(sys.getfilesystemencoding()) or os.environ.get("PYTHONUTF8") != "1":
        return
    os.environ.setdefault("PYTHONIOENCODING", f"{sys.stdout.encoding}:backslashreplace")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("-", "") == "utf8"


def cache_root() -> Path:
    """Return the cache folder, created if it is missing: `$ACKPROOF_CACHE`, else `$XDG_CACHE_HOME/ackproof`, else
    `~/.cache/ackproof`.

    Raises `BadInput` if it cannot be created or written, or if its path has a colon (it goes into class paths).
    """
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


def free_space(folder: Path) -> int:
    """Return the free bytes of the file system that holds a folder, or will hold it once it is created."""
    return shutil.disk_usage(next(at for at in (folder, *folder.absolute().parents) if at.exists())).free
