"""Jars of each Kafka release, as ackproof locks them or Maven offers them (`ackproof.experiment.kafka` lists the
releases).

`locks/kafka-<version>.lock` holds one jar a line, `<file name> <SHA-256>`, sorted (`tools/new_release.py VERSION`
writes it). A release without such a file is fetched as Maven offers it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput, WaitTimeout
from ackproof.experiment.kafka import RELEASES, not_a_version, numbers
from ackproof.provision import maven
from ackproof.provision.maven import Artifact
from ackproof.provision.progress import ProvisionFailed

LOCKS = Path(__file__).parent / "locks"
SERVER: Final = ("org.apache.kafka", "kafka_2.13")
"""Maven group and artifact of the Kafka server."""

_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+\.jar) (?P<sha256>[0-9a-f]{64})")
_LOG4J = "2.25.4"
_RELOAD4J = "1.7.36"


@dataclass(frozen=True)
class Lock:
    """The jars of one Kafka version that ackproof accepts: SHA-256 (hex) by file name."""

    version: str
    jars: Mapping[str, str]

    @cached_property
    def digest(self) -> str:
        """12 hexadecimal digits that identify the jars' names and SHA-256. The name of the cache folder has them, so
        that another lock of this version gets another folder."""
        return compute_digest(self.jars)

    def text(self) -> str:
        return "".join(f"{name} {self.jars[name]}\n" for name in sorted(self.jars))


def compute_digest(files: Mapping[str, str]) -> str:
    """Return 12 hexadecimal digits that identify a set of files. `files`: SHA-256 (hex) by file name."""
    return hashlib.sha256(Lock("", files).text().encode()).hexdigest()[:12]


def lock(version: str) -> Lock | None:
    """Return the lock that ackproof ships for this Kafka version. None if there is none, or if the text is no version.
    Raises `BadInput` if the lock's file is damaged."""
    file = LOCKS / f"kafka-{version}.lock"
    return read_lock(version, file) if not_a_version(version) is None and file.is_file() else None


def read_lock(version: str, file: Path) -> Lock:
    """Return the lock in a file: lines of `FILE-NAME SHA-256`. Raises `BadInput` if it is damaged, OSError if it cannot
    be read."""
    jars: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise BadInput(f"a damaged lock: {line!r} is not '<file name> <SHA-256>'")
        jars[match["name"]] = match["sha256"]
    return Lock(version, jars)


def list_offered_releases() -> list[str]:
    """Return the Kafka releases that Maven's repositories offer now, oldest first (2 s).

    Raises `MissingTool` without mvn or Java, `WaitTimeout` if it takes too long, `ProvisionFailed` if Maven
    fails or no repository answers.
    """
    published = maven.list_published_versions(*SERVER)
    return sorted((one for one in published if not_a_version(one) is None), key=numbers)


def find_newest_release() -> str:
    """Return the newest release that Maven's repositories offer. Raises `BadInput` if Maven fails or no repository
    answers in time, `MissingTool` without mvn or Java."""
    try:
        return list_offered_releases()[-1]
    except (ProvisionFailed, WaitTimeout) as error:
        raise BadInput(
            f"the newest release of Kafka is not known, for Maven cannot be asked ({error})",
            f"name one, such as {RELEASES[-1]}",
        ) from error


def require_offered(version: str) -> None:
    """Raise `BadInput` with the nearest versions if no repository offers this release, if Maven fails, or if no
    repository answers in time. Raises `MissingTool` without mvn or Java."""
    try:
        there = list_offered_releases()
    except (ProvisionFailed, WaitTimeout) as error:
        known = ", ".join(_nearest(version, RELEASES))
        raise BadInput(
            f"Kafka {version} is not in the cache and not known, and Maven cannot be asked ({error})",
            f"the nearest that are known: {known}",
        ) from error
    if version not in there:
        raise BadInput(
            f"Maven's repositories have no Kafka {version}",
            f"the nearest there: {', '.join(_nearest(version, there))}",
        )


def _nearest(version: str, there: Sequence[str]) -> list[str]:
    """Return at most three of the versions `there`: the two below `version` and the one above it. If there are versions
    of the same release line, all three are of that line."""
    wanted = numbers(version)
    line = [one for one in there if numbers(one)[:2] == wanted[:2]] or list(there)
    below, above = ([one for one in line if (numbers(one) < wanted) is side] for side in (True, False))
    return [*below[-2:], *above[:1]]


def direct_dependencies(version: str) -> list[Artifact]:
    """Return (group, artifact, version) of each Maven artifact that a Kafka server needs directly: the server and its
    logging backend."""
    kafka = (*SERVER, version)
    if is_4(version):
        log4j = "org.apache.logging.log4j"
        return [
            kafka,
            *((log4j, name, _LOG4J) for name in ("log4j-slf4j-impl", "log4j-core", "log4j-1.2-api")),
        ]
    return [kafka, ("org.slf4j", "slf4j-reload4j", _RELOAD4J)]


def is_4(version: str) -> bool:
    """Return True for Kafka 4.0 and later, which logs with log4j 2 instead of reload4j."""
    return numbers(version)[0] >= 4
