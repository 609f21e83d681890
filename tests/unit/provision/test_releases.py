"""Tests of the committed locks, and of the POM that Maven gets."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.experiment.kafka import RELEASES, numbers
from ackproof.provision import releases
from ackproof.provision.jvm import logging_flags
from ackproof.provision.maven import pom

MAVEN = {"m": "http://maven.apache.org/POM/4.0.0"}


def test_what_an_experiment_may_name_is_what_is_locked() -> None:
    assert {f"kafka-{release}.lock" for release in RELEASES} == {
        path.name for path in releases.LOCKS.iterdir()
    }
    assert list(RELEASES) == sorted(RELEASES, key=numbers), "oldest first"


@pytest.mark.parametrize("version", RELEASES)
def test_a_lock_names_every_direct_dependency_and_is_sorted(version: str) -> None:
    locked = releases.lock(version)
    assert locked is not None
    text = (releases.LOCKS / f"kafka-{version}.lock").read_text()
    assert locked.text() == text
    assert text.splitlines() == sorted(text.splitlines())
    for _, artifact, exact in releases.direct_dependencies(version):
        assert f"{artifact}-{exact}.jar" in locked.jars
    assert f"kafka-clients-{version}.jar" in locked.jars


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_the_project_pins_exact_versions(version: str) -> None:
    root = ET.fromstring(pom(releases.direct_dependencies(version)))
    found = root.findall("m:dependencies/m:dependency/m:version", MAVEN)
    assert len(found) == len(releases.direct_dependencies(version))
    assert all(re.fullmatch(r"\d+(\.\d+)+", element.text or "") for element in found)


def test_a_damaged_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "LOCKS", tmp_path)
    (tmp_path / f"kafka-{RELEASES[0]}.lock").write_text("../../evil.jar 00\n")
    with pytest.raises(BadInput, match="damaged lock"):
        releases.lock(RELEASES[0])


@pytest.mark.parametrize(
    ("version", "option"),
    [("3.9.2", "-Dlog4j.configuration=file:"), ("4.3.1", "-Dlog4j2.configurationFile=")],
)
def test_each_generation_has_its_logger(version: str, option: str) -> None:
    config, target = logging_flags(version, Path("/node/server.log"))
    assert config.startswith(option)
    path = Path(config.removeprefix(option))
    assert "ackproof.log" in path.read_text()
    assert target == "-Dackproof.log=/node/server.log"
