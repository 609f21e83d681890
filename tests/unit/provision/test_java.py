"""Tests of `find_java`: which launcher is chosen, and when it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.base.errors import MissingTool
from ackproof.provision.java import find_java

from .conftest import Machine, java_script, script


def test_from_the_path(machine: Machine) -> None:
    java = find_java()
    assert (java.path, java.version, java.major, java.sharing) == (machine.bin / "java", "17.0.99", 17, True)


def test_java_home_goes_first(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_script(tmp_path / "home" / "bin" / "java", "21", sharing="")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    java = find_java()
    assert (java.path.parent.parent, java.major, java.sharing) == (tmp_path / "home", 21, False)


@pytest.mark.parametrize("old", ["1.8.0_392", "11.0.22"])
def test_too_old(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str) -> None:
    java_script(tmp_path / "home" / "bin" / "java", old)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java().path == machine.bin / "java", "the next one is good enough"
    java_script(machine.bin / "java", "16.0.2")
    with pytest.raises(MissingTool) as caught:
        find_java()
    assert str(caught.value) == (
        f"java is missing (17 or newer is needed; {tmp_path}/home/bin/java is {old}, {machine.bin}/java is 16.0.2)."
        " Install it: apt-get install openjdk-17-jre-headless"
    )


def test_none(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.bin / "java").unlink()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(MissingTool, match="17 or newer is needed; none found"):
        find_java()


def test_one_that_does_not_run(machine: Machine) -> None:
    script(machine.bin / "java", "#!/bin/sh\nexit 1\n")
    with pytest.raises(MissingTool, match="does not tell its version"):
        find_java()


def test_options_from_the_environment_are_no_version(machine: Machine) -> None:
    before = find_java()
    text = (machine.bin / "java").read_text()
    options = "echo 'Picked up JAVA_TOOL_OPTIONS: -Dversion=\"5\"' >&2"
    script(machine.bin / "java", text.replace("#!/bin/sh\n", f"#!/bin/sh\n{options}\n"))
    assert find_java() == before


def test_another_build_is_another_identity(machine: Machine) -> None:
    before = find_java()
    java_script(machine.bin / "java", "17.0.100")
    assert find_java().identity != before.identity
