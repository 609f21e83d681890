"""Adds releases of Kafka to the known ones: `python tools/new_release.py VERSION…`. Review the differences before you
commit them.

Maven compares each download with the repository's checksum; later downloads are compared with the SHA-256 of the lock.
The feature levels are those that a running node of the release reports (ApiVersions)."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from ackproof.base.errors import AckproofError
from ackproof.base.processes import RunTag
from ackproof.cluster import admin
from ackproof.cluster.backends.process import ProcessCluster
from ackproof.experiment.kafka import KRAFT, ROWS, KafkaBuild, numbers
from ackproof.experiment.spec import ClusterSpec
from ackproof.provision import maven
from ackproof.provision.cache import sha256
from ackproof.provision.progress import ProgressSink, ignore
from ackproof.provision.releases import LOCKS, Lock, direct_dependencies
from ackproof.rundir.layout import CaseDir


def make_lock(version: str, progress: ProgressSink = ignore) -> Lock:
    """Fetch a release, verified by Maven alone, and return a lock of its jars. Raises the errors of `maven.fetch`."""
    with tempfile.TemporaryDirectory(prefix="ackproof-lock-") as folder:
        work, jars = Path(folder), Path(folder) / "jars"
        artifacts = direct_dependencies(version)
        maven.fetch(f"Kafka {version}", artifacts, jars, work, expected=(), progress=progress, strict=True)
        return Lock(version, {jar.name: sha256(jar) for jar in jars.glob("*.jar")})


def supported_levels(version: str) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest level of each feature except `kraft.version`, as a running node reports them (2 s;
    20 s the first time)."""
    spec = ClusterSpec(kafka=KafkaBuild(version), brokers=1, combined=True)
    with tempfile.TemporaryDirectory(prefix="ackproof-levels-") as folder:
        work = CaseDir(Path(folder))
        tag = RunTag(f"levels-{os.getpid()}", work.path, work.path)
        with ProcessCluster(spec, work.nodes, tag, lambda _: None) as cluster:
            cluster.start()
            told = admin.features(cluster.running_links()[1]).supported
    return {name: levels for name, levels in sorted(told.items()) if name != KRAFT}


def with_release(rows: str, version: str, levels: dict[str, tuple[int, int]]) -> str:
    """Return the text of `releases.json` with this release added, and `levels` as the features of its line. `rows`: the
    present text."""
    lines = json.loads(rows)
    line = ".".join(version.split(".")[:2])
    there = lines.get(line, {}).get("releases", [])
    lines[line] = {"releases": sorted({*there, version}, key=numbers), "features": levels}
    ordered = {name: lines[name] for name in sorted(lines, key=numbers)}
    return (
        _LIST.sub(lambda match: "[" + " ".join(match[1].split()) + "]", json.dumps(ordered, indent=1)) + "\n"
    )


_LIST: Final = re.compile(r"\[([^\[\]{}]*)\]")
"""Pattern of a list of plain values, which is written on one line."""


def main(versions: list[str]) -> int:
    """Write lock and row of each version. Exit code 0, or 254 if one could not be fetched or does not run; the versions
    after it are not tried."""
    for version in versions:
        try:
            made = make_lock(version)
            (LOCKS / f"kafka-{version}.lock").write_text(made.text(), encoding="utf-8")
            levels = supported_levels(version)
        except AckproofError as error:
            sys.stderr.write(f"{error}\n")
            return 254
        ROWS.write_text(with_release(ROWS.read_text(encoding="utf-8"), version, levels), encoding="utf-8")
        sys.stdout.write(f"Kafka {version}: {len(made.jars)} jars, {len(levels)} features\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
