"""Where a node logs to. INFO: elections, ISR changes, truncations, fencing."""

from __future__ import annotations

from pathlib import Path

from ackproof.provision.jars import KafkaJars
from ackproof.provision.releases import is_4

_HERE = Path(__file__).parent


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
