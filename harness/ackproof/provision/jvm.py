"""How a Kafka JVM of ours is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ackproof.provision.jars import KafkaJars
from ackproof.provision.java import Java
from ackproof.provision.node_logging import logging_arguments

SERVER = "kafka.Kafka"
STORAGE_TOOL = "kafka.tools.StorageTool"


def jvm_flags(heap_bytes: int = 256 << 20) -> list[str]:
    """Flags that make a small node start fast and stay small.

    Serial collector, first compiler tier only, no performance file; a heap of at most `heap_bytes`.
    """
    megabytes = max(1, heap_bytes >> 20)
    return [
        f"-Xmx{megabytes}m",
        f"-Xms{min(64, megabytes)}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
    ]


def java_command(
    java: Java,
    jars: KafkaJars,
    main: str,
    arguments: Sequence[str],
    *,
    log: Path,
    heap_bytes: int = 256 << 20,
    flags: Sequence[str] = (),
) -> list[str]:
    """The command line that runs a main class of these jars. It logs to `log`; `flags` come after `jvm_flags`."""
    return [
        str(java.path),
        *jvm_flags(heap_bytes),
        *flags,
        *logging_arguments(jars, log),
        "-cp",
        jars.classpath_argument,
        main,
        *arguments,
    ]
