"""Of which jars each release of Kafka consists (`ackproof.experiment.releases` says which releases there are).

`locks/kafka-<version>.lock` holds one jar a line, `<file name> <SHA-256>`, sorted.
`python -m ackproof.provision.lock VERSION…` writes these files anew.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ackproof.base.errors import BadInput
from ackproof.experiment.releases import numbers
from ackproof.provision.maven import Artifact

LOCKS = Path(__file__).parent / "locks"

_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+\.jar) (?P<sha256>[0-9a-f]{64})")
_LOG4J = "2.25.4"
_RELOAD4J = "1.7.36"


@dataclass(frozen=True)
class Lock:
    """The jars of one Kafka version: file name → SHA-256 (hex)."""

    version: str
    jars: dict[str, str]

    @cached_property
    def digest(self) -> str:
        """Tells two locks of one version apart: a cache made by another ackproof is not mistaken for ours."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:12]

    def text(self) -> str:
        return "".join(f"{name} {self.jars[name]}\n" for name in sorted(self.jars))


def lock(version: str) -> Lock:
    """The lock of this version. Raises `BadInput` with the known versions if there is none."""
    known = sorted((path.stem.removeprefix("kafka-") for path in LOCKS.glob("kafka-*.lock")), key=numbers)
    if version not in known:
        raise BadInput(f"Kafka {version!r} is not known; known versions: {', '.join(known)}")
    text = (LOCKS / f"kafka-{version}.lock").read_text(encoding="utf-8")
    return Lock(version, {match["name"]: match["sha256"] for match in map(_line, text.splitlines())})


def direct_dependencies(version: str) -> list[Artifact]:
    """(group, artifact, version) of what is asked of Maven: the server and a logger behind slf4j."""
    kafka = ("org.apache.kafka", "kafka_2.13", version)
    if is_4(version):
        log4j = "org.apache.logging.log4j"
        return [
            kafka,
            *((log4j, name, _LOG4J) for name in ("log4j-slf4j-impl", "log4j-core", "log4j-1.2-api")),
        ]
    return [kafka, ("org.slf4j", "slf4j-reload4j", _RELOAD4J)]


def is_4(version: str) -> bool:
    """Whether it logs by log4j 2 (4.0 and later) rather than reload4j."""
    return numbers(version)[0] >= 4


def _line(line: str) -> re.Match[str]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise BadInput(f"a damaged lock: {line!r} is not '<file name> <SHA-256>'")
    return match
