"""Build the jar of the Java client, reproducibly: `python tools/java_client.py`.

It is compiled with `--release 17` against the oldest supported line of kafka-clients, so the same bytes run with all
later releases. Needs a JDK (javac). The entries of the jar are sorted and have one fixed time.
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


def build(target: Path) -> None:
    """Compile the sources and write them as a jar. Raises CalledProcessError with the compiler's words."""
    needed = [jar for jar in kafka_jars(NEWEST[0]).classpath if jar.name.startswith("kafka-clients-")]
    files = sorted(SOURCES.rglob("*.java"))
    with tempfile.TemporaryDirectory() as folder:
        flags = [
            "--release",
            "17",
            "-g:source,lines",
            "-proc:none",
            "-d",
            folder,
            "-cp",
            ":".join(map(str, needed)),
        ]
        subprocess.run(["javac", *flags, *map(str, files)], check=True, capture_output=True, text=True)
        with zipfile.ZipFile(target, "w") as jar:  # stored: bytes that depend on no version of zlib
            for path in sorted(Path(folder).rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())


if __name__ == "__main__":
    build(JAR)
