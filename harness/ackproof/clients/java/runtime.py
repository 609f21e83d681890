"""Makes the command lines of Java clients: Java, a class path in the cache, and a class-data archive that is made once.

The class path is the jar of this folder and five jars of a Kafka release: kafka-clients, its logging interface and its
codecs. `provision.jars` keeps these five for brokers too, so a release that runs already needs no download.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from ackproof.base.environment import cache_root
from ackproof.base.errors import AckproofError
from ackproof.provision.cache import build_once, sha256
from ackproof.provision.jars import KafkaJars, kafka_jars
from ackproof.provision.java import Java, find_java
from ackproof.provision.jvm import archive_folder, java_command, why_unusable
from ackproof.provision.progress import ignore

JAR: Final = Path(__file__).with_name("ackproof-client.jar")
MAIN: Final = "ackproof.Client"
_NEEDED: Final = ("kafka-clients-", "slf4j-api-", "lz4-java-", "snappy-java-", "zstd-jni-")
"""Beginnings of the names of the jars that a client needs."""
_ARCHIVE: Final = "client.jsa"
_WARM_UP_S: Final = 60.0
_BUFFERS_MB: Final = 64
_HEAP_MB: Final = 192
_FLAGS: Final = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto", "-Djava.awt.headless=true")
_WARM_UP: Final = """\
bootstrap.servers=127.0.0.1:1
acks=all
linger.ms=0
max.block.ms=200
request.timeout.ms=200
delivery.timeout.ms=200
"""
"""Settings of a client without a broker, which loads the classes of the archive."""


@cache
def client_jars(release: str) -> KafkaJars:
    """Return the jars on the class path of a Java client of this Kafka release: the jar of this folder, then jars of
    the release. The latter are verified by SHA-256, as the jars of brokers are.

    Raises as `provision.jars.kafka_jars` does: `BadInput` (no such release), `MissingTool` (mvn, java),
    `ProvisionFailed` (download, SHA-256), `WaitTimeout`.
    """
    every = kafka_jars(release)
    classpath = (JAR, *(jar for jar in every.classpath if jar.name.startswith(_NEEDED)))
    home = cache_root() / f"java-client-{release}-{every.digest[:12]}"
    return KafkaJars(release, home, classpath, {jar.name: sha256(jar) for jar in classpath})


@cache
def client_archive(release: str, java: Java) -> Path | None:
    """Return the class-data archive (CDS) of a client of this release, with which it starts three times as fast. It is
    made once, and kept in the cache.

    None if this Java shares no class data, or does not use the archive that it made. Raises as `client_jars` does, and
    `AckproofError` if the client that writes the archive does not start or end.
    """
    jars = client_jars(release)
    if not java.sharing:
        return None

    def make(folder: Path) -> None:
        settings = folder / "warm-up.properties"
        settings.write_text(_WARM_UP, encoding="utf-8")
        flags = [*_FLAGS, f"-XX:ArchiveClassesAtExit={folder / _ARCHIVE}"]
        command = java_command(java, jars, MAIN, ["warm-up", str(settings)], flags)
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=_WARM_UP_S, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired as error:
            raise AckproofError(
                f"the Java client {release} did not warm up within {_WARM_UP_S:g} s"
            ) from error
        if answer.returncode != 0:
            raise AckproofError(f"the Java client {release} does not start: {answer.stderr.strip()[-500:]}")

    archive = build_once(archive_folder(jars, java), make, ignore) / _ARCHIVE
    return None if why_unusable(archive, jars, java) else archive


def client_command(
    role: str, settings: Path, release: str, buffer_bytes: int = _BUFFERS_MB << 20
) -> list[str]:
    """Return the command line of a client of this release with this settings file. Fetches the client's jars and makes
    its archive if the cache lacks them.

    `role`: `producer`, `reader`, `member` or `share`. `buffer_bytes`: size of a producer's buffer. Raises
    `BadInput`, `MissingTool`, `ProvisionFailed`, and `AckproofError` if the archive cannot be made.
    """
    java = find_java()
    archive = client_archive(release, java)
    flags = [*_FLAGS, f"-Xmx{_HEAP_MB + (buffer_bytes >> 20)}m"]
    if archive is not None:
        flags.append(f"-XX:SharedArchiveFile={archive}")
    return java_command(java, client_jars(release), MAIN, [role, str(settings)], flags)
