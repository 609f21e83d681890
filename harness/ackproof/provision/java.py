"""Find the Java that runs the nodes, and ask it for its version."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ackproof.base.errors import MissingTool

LEAST_MAJOR = 17
INSTALL = "apt-get install openjdk-17-jre-headless"

_VERSION = re.compile(r'version "(?P<full>(?:1\.)?(?P<major>\d+)[^"]*)"')


@dataclass(frozen=True)
class Java:
    """A Java launcher. `identity`: a hash of the output of `java -version`. `sharing`: True if the JVM has a class-data
    archive of its own, from which archives of Kafka's classes are built."""

    path: Path
    version: str
    major: int
    identity: str
    sharing: bool


def find_java() -> Java:
    """Return `$JAVA_HOME/bin/java`, else `java` on the PATH: the first that is 17 or newer. Raises `MissingTool` if
    neither is."""
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    paths = [Path(home) / "bin" / "java"] if home else []
    paths = [path for path in paths if os.access(path, os.X_OK)] + ([Path(found).absolute()] if found else [])
    unfit: list[str] = []
    for path in paths:
        java = _ask(path, path.stat().st_mtime_ns)
        if java is not None and java.major >= LEAST_MAJOR:
            return java
        unfit.append(f"{path} is {java.version}" if java else f"{path} does not tell its version")
    raise MissingTool(
        "java", f"{LEAST_MAJOR} or newer is needed; {', '.join(unfit) or 'none found'}", INSTALL
    )


@lru_cache(maxsize=8)
def _ask(path: Path, _changed_ns: int) -> Java | None:
    """Return the Java that this launcher starts; None if it does not run or does not tell its version. Takes 50 ms,
    once per process and launcher. `_changed_ns`: time of the launcher's last change, so that a changed one is asked
    again."""
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # with JAVA_TOOL_OPTIONS, Java prints another line before the version
    lines = [line for line in answer.stderr.splitlines() if not line.startswith("Picked up ")]
    text = "\n".join(lines)
    match = _VERSION.search(text)
    if answer.returncode != 0 or match is None:
        return None
    return Java(
        path=path,
        version=match["full"],
        major=int(match["major"]),
        identity=hashlib.sha256(text.encode()).hexdigest()[:12],
        sharing="sharing" in text,
    )
