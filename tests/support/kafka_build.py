"""Writes folders of jars that look like a build of Kafka, without code that runs."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

NAMES = (
    "kafka_2.13-{}.jar",
    "kafka-clients-{}.jar",
    "kafka-server-{}.jar",
    "scala-library-2.13.18.jar",
    "slf4j-api-1.7.36.jar",
    "log4j-slf4j-impl-2.25.4.jar",
    "netty-transport-4.1.130-linux-x86_64.jar",
    "netty-transport-4.1.130-linux-aarch_64.jar",
)


def write_jar(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as opened:
        for name, text in files.items():
            opened.writestr(zipfile.ZipInfo(name), text)
    return path


def write_build(
    folder: Path, version: str = "4.9.0-SNAPSHOT", names: Sequence[str] = NAMES, commit: str = "abc123"
) -> Path:
    """Write the jars `names` into a folder, and return it. `{}` in a name stands for the version. The jar of
    kafka-clients states the version and the commit."""
    for name in names:
        files = {f"{name}/A.class": "code"}
        if name.startswith("kafka-clients"):
            files["kafka/kafka-version.properties"] = f"commitId={commit}\nversion={version}\n"
        write_jar(folder / name.format(version), files)
    return folder
