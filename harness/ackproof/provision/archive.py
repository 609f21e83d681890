"""Class-data archives (AppCDS): Kafka's classes, parsed and laid out once, mapped by every node from then on.

A cluster starts in less than half the time with them. An archive is valid for one build of Java and one class path:
the same jars, by absolute path, size and time, in the same order. All of that is in its folder's name, so one that
no longer fits is not found; and since Java drops one that does not fit without a word, it is tried before it is
handed out, and `archive_in_use` looks whether a process really has it mapped.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ackproof.provision.cache import build_once, discard
from ackproof.provision.failure import ProvisionFailed
from ackproof.provision.jars import KafkaJars
from ackproof.provision.java import Java
from ackproof.provision.jvm import jvm_flags
from ackproof.provision.progress import Progress, ProgressSink, ignore

Role = Literal["broker", "controller"]
ROLES: tuple[Role, ...] = ("broker", "controller")

_TRY_TIMEOUT_S = 30.0


def class_data_archives(
    jars: KafkaJars, java: Java, make: Callable[[Path], None], progress: ProgressSink = ignore
) -> dict[Role, Path]:
    """The archive for nodes of each role (a combined node takes the broker's): `-XX:SharedArchiveFile=PATH`.

    Those of both roles are made together by `make(folder)`, once per version, Java and class path. Raises
    `ProvisionFailed` if none can be made that works.
    """
    folder = archive_folder(jars, java)
    archives: dict[Role, Path] = {role: folder / f"{role}.jsa" for role in ROLES}

    def unusable() -> str:
        build_once(folder, make, progress)
        return next(filter(None, (why_unusable(path, jars, java) for path in archives.values())), "")

    if reason := unusable():
        progress(Progress("archive", f"the class-data archive is of no use ({reason}): making it anew"))
        discard(folder, progress)
        if reason := unusable():
            raise ProvisionFailed(f"{java.path} ({java.version}) does not use the archive it made: {reason}")
    return archives


def archive_folder(jars: KafkaJars, java: Java) -> Path:
    """Where the archives for this Java and exactly these files stand, or will stand."""
    stats = ((path, path.stat()) for path in jars.classpath)
    text = "\n".join(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    return jars.home / "archives" / f"java-{java.major}-{java.identity}-{key}"


def archive_in_use(pid: int, archive: Path) -> bool:
    """Whether this process has the archive mapped. Java maps it before anything else. False if the process is gone."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    wanted = str(archive.resolve())
    return any(line.endswith(wanted) for line in maps.splitlines())


_tried: set[tuple[str, int, int, str, str]] = set()
"""What this process has seen work: archive, size and time of change (ns), class path, Java."""


def why_unusable(archive: Path, jars: KafkaJars, java: Java) -> str:
    """Why Java cannot use the archive; empty if it can (0.1 s, once per process)."""
    if not archive.is_file():
        return "it is not there"
    stat = archive.stat()
    look = (str(archive), stat.st_size, stat.st_mtime_ns, jars.classpath_argument, java.identity)
    if look in _tried:
        return ""
    command = [
        str(java.path),
        *jvm_flags(),
        "-Xshare:on",  # an archive that does not fit ends this JVM; with "auto" it would only be slow
        "-XX:+VerifySharedSpaces",  # a damaged one too
        f"-XX:SharedArchiveFile={archive}",
        "-cp",
        jars.classpath_argument,
        "-version",
    ]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TRY_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"Java did not answer within {_TRY_TIMEOUT_S:g} s"
    if answer.returncode != 0:
        return (
            " ".join((answer.stderr + answer.stdout).split())[:300] or f"Java ended with {answer.returncode}"
        )
    _tried.add(look)
    return ""
