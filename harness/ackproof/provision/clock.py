"""The library by which the wall clock of a node's JVM can be set and no other's: `clock.c`, compiled once.

libfaketime does not do for a JVM: it takes timed waits over too, and threads that wait for each other take minutes for
what takes milliseconds.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ackproof.base.cache import cache_root
from ackproof.base.errors import MissingTool
from ackproof.provision.failure import ProvisionFailed

INSTALL: Final = "apt-get install gcc libc6-dev"
_SOURCE: Final = Path(__file__).with_name("clock.c")
_WITHIN_S: Final = 60.0


def find_compiler() -> Path:
    """A C compiler. Raises `MissingTool`."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return Path(found)
    raise MissingTool("a C compiler", "clock_jump sets the clocks of nodes by a library of 40 lines", INSTALL)


def library() -> Path:
    """The library, from the cache if it was made before. Raises `MissingTool`, `ProvisionFailed`."""
    made = cache_root() / "clock" / f"{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]}.so"
    if made.exists():
        return made
    compiler = find_compiler()
    made.parent.mkdir(parents=True, exist_ok=True)
    new = made.with_suffix(f".{os.getpid()}")
    # no library is linked, not even C's: a container may have another
    flags = ("-O2", "-shared", "-fPIC", "-nostdlib")
    command = [str(compiler), *flags, "-o", str(new), str(_SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProvisionFailed(f"{compiler} cannot compile clock.c: {error}") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:300]
        raise ProvisionFailed(f"{compiler} cannot compile clock.c ({INSTALL}): {said}")
    new.replace(made)
    return made
