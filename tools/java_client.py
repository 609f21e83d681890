"""Build the jar of the Java client, reproducibly: `python tools/java_client.py`.

It is compiled with `--release 17` against the oldest supported line of kafka-clients, so the same bytes run with all
later releases. Only `ShareMember.java`, which older releases cannot load, is compiled against the newest. Needs a JDK
(javac). The entries of the jar are sorted and have one fixed time.
"""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from pathlib import Path

from ackproof.clients.java.runtime import JAR
from ackproof.experiment.kafka import NEWEST
from ackproof.provision.jars import kafka_jars

SOURCES = JAR.parent / "src"
SHARE = "ShareMember.java"


def build(target: Path) -> None:
    """Compile the sources and write them as the jar `target`. Raises CalledProcessError with the compiler's output."""
    files = sorted(SOURCES.rglob("*.java"))
    newer = [file for file in files if file.name == SHARE]
    with tempfile.TemporaryDirectory() as folder:
        for release, sources in (
            (NEWEST[0], [file for file in files if file not in newer]),
            (NEWEST[-1], newer),
        ):
            jars = [jar for jar in kafka_jars(release).classpath if jar.name.startswith("kafka-clients-")]
            classes = ":".join(map(str, [*jars, folder]))
            flags = ["--release", "17", "-g:source,lines", "-proc:none", "-d", folder, "-cp", classes]
            if sources:
                subprocess.run(
                    ["javac", *flags, *map(str, sources)], check=True, capture_output=True, text=True
                )
        with zipfile.ZipFile(target, "w") as jar:  # stored: bytes that depend on no version of zlib
            for path in sorted(Path(folder).rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())


if __name__ == "__main__":
    build(JAR)
