"""Tests of the doctor: it reports all checks at once, and raises nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.cluster import doctor as room
from ackproof.cluster.doctor import Check, doctor
from ackproof.provision.jars import kafka_jars

from .conftest import VERSION, Machine, java_script


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_machine_that_lacks_everything(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (machine.root / "file").write_text("")
    checks = by_name(doctor(machine.listen, version=VERSION, runs=machine.root / "file" / "runs"))
    assert checks["Java"].found == "java is missing (17 or newer is needed; none found)"
    assert checks["Java"].advice == "install it: apt-get install openjdk-17-jre-headless"
    assert checks["Maven"].advice == "install it: apt-get install maven"
    assert [name for name, check in checks.items() if not check.ok] == [
        *("Java", "Maven", "runs", "jars", "class data", "start")
    ]
    assert all(bool(check.advice) != check.ok for check in checks.values())
    assert [event.done for event in machine.events] == list(range(len(checks)))


def test_a_java_home_that_is_passed_over_is_said(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "JAVA_HOME" not in by_name(doctor(version=VERSION))["Java"].found
    monkeypatch.setenv("JAVA_HOME", "/no/such/jdk")
    java = by_name(doctor(version=VERSION))["Java"]
    assert java.ok
    assert "JAVA_HOME=/no/such/jdk has no Java that can be used" in java.found


def test_maven_is_not_missed_when_the_jars_are_there(machine: Machine) -> None:
    kafka_jars(VERSION)
    (machine.bin / "mvn").unlink()
    checks = by_name(doctor(version=VERSION))
    assert checks["Maven"].ok
    assert "not needed: the jars of Kafka 9.9.9 are in the cache" in checks["Maven"].found
    assert checks["jars"].ok


def test_a_java_without_class_data(machine: Machine) -> None:
    java_script(machine.bin / "java", sharing="")
    found = by_name(doctor(version=VERSION))["class data"]
    assert not found.ok
    assert "shares no class data; make its own archive: " in found.found
    assert found.found.endswith("java -Xshare:dump")
    assert found.advice == "a run works without, but starts slower"


def test_space(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_RUNS_BYTES", 1 << 60)
    runs = by_name(doctor(version=VERSION, runs=tmp_path / "not" / "yet" / "there"))["runs"]
    assert not runs.ok
    assert "are needed" in runs.found
    assert "--out" in runs.advice
    assert not (tmp_path / "not").exists()
