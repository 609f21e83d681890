"""Where a node logs to. INFO: elections, ISR changes, truncations, fencing."""

from __future__ import annotations

from pathlib import Path

from ackproof.provision.jars import KafkaJars
from ackproof.provision.releases import is_4

_HERE = Path(__file__).parent


def logging_arguments(jars: KafkaJars, log_file: Path) -> list[str]:
    """JVM arguments by which a node of this version appends its log to `log_file` (its folder must be there)."""
    target = f"-Dackproof.log={log_file}"
    if is_4(jars.version):
        return [f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}", target]
    return [f"-Dlog4j.configuration=file:{_HERE / 'log4j.properties'}", target]
