"""Write locks anew: `python -m ackproof.provision.lock VERSION…`. Read the difference before committing it.

Maven compares each download with the repository's own checksum; from then on the lock's SHA-256 counts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ackproof.base.errors import AckproofError
from ackproof.provision import maven
from ackproof.provision.jars import sha256
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.provision.releases import LOCKS, Lock, direct_dependencies


def make_lock(version: str, progress: ProgressSink = ignore) -> Lock:
    """Fetch this version, verified by Maven alone, and lock what came. Raises what `maven.fetch` does."""
    with tempfile.TemporaryDirectory(prefix="ackproof-lock-") as folder:
        jars = Path(folder) / "jars"
        artifacts = direct_dependencies(version)
        maven.fetch(f"Kafka {version}", artifacts, jars, Path(folder), expected=(), progress=progress)
        return Lock(version, {jar.name: sha256(jar) for jar in jars.glob("*.jar")})


def main(versions: list[str]) -> int:
    """Write the lock of each version. Exit code 0, or 254 if one could not be fetched."""
    for version in versions:
        try:
            made = make_lock(version)
        except AckproofError as error:
            sys.stderr.write(f"{error}\n")
            return 254
        (LOCKS / f"kafka-{version}.lock").write_text(made.text(), encoding="utf-8")
        sys.stdout.write(f"kafka-{version}.lock: {len(made.jars)} jars\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
