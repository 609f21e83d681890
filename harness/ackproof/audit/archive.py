"""The class-data archive of Spark's JVM: its classes, parsed and linked, which halves the time of its start.

Made once per pyspark and JVM, from the classes that a real audit loads, at that audit's end. It appears in the cache
folder whole, by a rename, so that any number of audits may make it or start from it at once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from ackproof.base import processes
from ackproof.base.cache import cache_root
from ackproof.provision.java import Java

_QUIET = ("-Xlog:disable", "-Xlog:all=off")
"""Hundreds of warnings about classes that cannot be archived are of no interest."""


@dataclass
class Archive:
    """One archive, there or not."""

    path: Path
    recording: bool = field(default=False, init=False)

    @classmethod
    def of(cls, java: Java, jars: list[Path]) -> Archive:
        """Where the archive for this JVM and these jars is, or would be. The paths of the jars count."""
        stamp = hashlib.sha256()
        for jar in jars:
            status = jar.stat()
            stamp.update(f"{jar}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        folder = cache_root() / "spark"
        folder.mkdir(exist_ok=True)
        return cls(folder / f"{java.identity}-{stamp.hexdigest()[:16]}.jsa")

    @property
    def _unfinished(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{processes.mark()}.tmp")

    def ready(self) -> bool:
        return self.path.exists()

    def use(self) -> tuple[str, ...]:
        """Options to start from it. With these the JVM ends at once if the archive does not fit or is damaged."""
        self.recording = False
        return (*_QUIET, "-Xshare:on", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={self.path}")

    def record(self) -> tuple[str, ...]:
        """Options to make it when the JVM ends in good order; `keep` then puts it into place."""
        for left in processes.left_behind(self.path.parent, f".{self.path.name}."):
            left.unlink(missing_ok=True)
        self.recording = True
        return (*_QUIET, f"-XX:ArchiveClassesAtExit={self._unfinished}")

    def keep(self) -> None:
        """Put what was recorded into place."""
        if self._unfinished.exists():
            self._unfinished.replace(self.path)

    def discard(self) -> None:
        """Remove it: it is of no use."""
        self.path.unlink(missing_ok=True)
