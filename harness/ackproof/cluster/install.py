"""What provisioning must have ready before a cluster starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ackproof.provision.archive import ROLES, Role, class_data_archive
from ackproof.provision.checkpoint import bootstrap_checkpoint
from ackproof.provision.jars import KafkaJars, kafka_jars
from ackproof.provision.java import Java, find_java
from ackproof.provision.progress import ProgressSink, ignore


@dataclass(frozen=True)
class Installation:
    """What provisioning made ready. `archives` by role; a role without one starts slowly."""

    java: Java
    jars: KafkaJars
    archives: Mapping[Role, Path]
    checkpoint: Path


def install(version: str, progress: ProgressSink = ignore) -> Installation:
    """Find or make everything for this version of Kafka. Raises as `ackproof.provision` does.

    A Java that cannot share class data goes without archives: nodes start slowly, and nothing else changes.
    """
    java = find_java()
    jars = kafka_jars(version, progress)
    return Installation(
        java=java,
        jars=jars,
        archives={role: class_data_archive(jars, role, java, progress) for role in ROLES}
        if java.sharing
        else {},
        checkpoint=bootstrap_checkpoint(jars, java, progress=progress),
    )


def with_features(
    installed: Installation, features: Mapping[str, int], progress: ProgressSink = ignore
) -> Installation:
    """The same installation for a cluster that starts at these feature levels (0.5 s the first time).

    Raises `BadInput` with Kafka's words when it refuses them.
    """
    if not features:
        return installed
    made = bootstrap_checkpoint(installed.jars, installed.java, features=features, progress=progress)
    return replace(installed, checkpoint=made)
