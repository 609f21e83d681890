"""Writes `kafka_settings.tsv`, the settings of brokers and topics in the known releases: `python
tools/kafka_settings.py`.

Each line of releases is read from the ConfigDef of its newest release (`KafkaSettings.java` in this folder). A setting
that `setting_effects.txt` lacks makes a test fail: add its effect there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ackproof.experiment.kafka import LINES
from ackproof.experiment.setting_effects import NAMES
from ackproof.provision.jars import kafka_jars
from ackproof.provision.java import find_java

_SOURCE: Final = Path(__file__).with_name("KafkaSettings.java")

Name = tuple[str, str]
"""Scope (`broker` or `topic`) and name of a setting."""


def ask(version: str) -> dict[Name, str]:
    """Return the default of each setting of a release, as text. Raises OSError and CalledProcessError, and the errors
    of `kafka_jars`."""
    command = [find_java().path, "-Xint", "-cp", kafka_jars(version).classpath_argument, _SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {(scope, name): default for scope, name, default in rows}


def table(releases: Iterable[tuple[str, Mapping[Name, str]]]) -> str:
    """Return the text of `kafka_settings.tsv`. `releases`: (line, default by setting), oldest first."""
    lines = list(releases)
    oldest, newest = lines[0][0], lines[-1][0]
    rows = {}
    for name in sorted({name for _, found in lines for name in found}):
        having = [(line, found[name]) for line, found in lines if name in found]
        last, default = having[-1]
        earlier = ";".join(f"{line}={text}" for line, text in having if text != default)
        rows[name] = (*name, having[0][0], "" if last == newest else last, default, earlier)
    head = ("scope", "name", "first", "last", "default", "earlier", f"{oldest} to {newest}")
    return "".join("\t".join(row) + "\n" for row in (head, *rows.values()))


def main() -> int:
    NAMES.write_text(table((str(line), ask(line.releases[-1])) for line in LINES), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
