"""Tests of the Java client's jar: it is built from its source, and every known release of Kafka runs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import java_client
from ackproof.clients.java.runtime import JAR, client_archive, client_command
from ackproof.experiment.kafka import DEFAULT, NEWEST
from ackproof.provision.java import find_java

pytestmark = pytest.mark.cluster


def test_the_jar_is_that_of_its_source(tmp_path: Path) -> None:
    made = tmp_path / "made.jar"
    java_client.build(made)
    assert made.read_bytes() == JAR.read_bytes(), "run python tools/java_client.py"


@pytest.mark.nightly  # the test above compares all bytes
def test_another_source_makes_another_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = java_client.SOURCES / "ackproof"
    copy = tmp_path / "src" / "ackproof"
    copy.mkdir(parents=True)
    for file in source.glob("*.java"):
        text = file.read_text(encoding="utf-8")
        (copy / file.name).write_text(
            text.replace("MOST_BEHIND_S = 0.2", "MOST_BEHIND_S = 0.3"), encoding="utf-8"
        )
    monkeypatch.setattr(java_client, "SOURCES", tmp_path / "src")
    java_client.build(tmp_path / "made.jar")
    assert (tmp_path / "made.jar").read_bytes() != JAR.read_bytes()


@pytest.mark.parametrize(
    "release",
    [pytest.param(one, marks=[] if one == DEFAULT else [pytest.mark.nightly]) for one in NEWEST],
)
def test_a_release_runs_the_jar_and_tells_what_is_wrong(tmp_path: Path, release: str) -> None:
    """The class-data archive is made and used; a client without settings ends with an error message."""
    archive = client_archive(release, find_java())
    assert archive is not None and archive.stat().st_size > 1 << 20
    settings = tmp_path / "client.properties"
    settings.write_text("ackproof.places=orders/0\n", encoding="ascii")
    command = client_command("producer", settings, release)
    assert f"-XX:SharedArchiveFile={archive}" in command
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "NoSuchFileException" in done.stderr and "counters" in done.stderr
