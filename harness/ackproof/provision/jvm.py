"""How a Kafka JVM of ours is started, and where it logs to. INFO: elections, ISR changes, truncations, fencing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ackproof.provision.jars import KafkaJars
from ackproof.provision.java import Java
from ackproof.provision.releases import is_4

_HERE = Path(__file__).parent

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


def logging_arguments(jars: KafkaJars, log_file: Path) -> list[str]:
    """JVM arguments by which a node of this version appends its log to `log_file` (its folder must be there)."""
    return logging_by(configuration(jars.version), log_file)


def configuration(version: str) -> Path:
    """The file by which a node of this version logs to the file that `-Dackproof.log` names."""
    return _HERE / ("log4j2.properties" if is_4(version) else "log4j.properties")


def logging_by(configuration_file: Path, log_file: Path) -> list[str]:
    """JVM arguments for a configuration file, wherever it stands; its name says which log4j reads it."""
    target = f"-Dackproof.log={log_file}"
    if configuration_file.name.startswith("log4j2"):
        return [f"-Dlog4j2.configurationFile={configuration_file}", target]
    return [f"-Dlog4j.configuration=file:{configuration_file}", target]
