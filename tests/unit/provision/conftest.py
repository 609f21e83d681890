"""Fixtures for tests of provisioning: a fake machine with scripts for Maven and Java, its own cache, and a Kafka 9.9.9
of three jars."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ackproof.base.processes import end_children
from ackproof.provision import releases
from ackproof.provision.progress import Progress

VERSION = "9.9.9"
JARS = {"kafka_2.13-9.9.9.jar": b"the server", "a.jar": b"first", "log4j.jar": b"logger"}

# a Maven that copies what stands in $FAKE_REPOSITORY; counts its calls; can dawdle, fail, hang
MVN = f"""#!{sys.executable}
import os, pathlib, sys, time
calls = pathlib.Path(os.environ["FAKE_CALLS"])
with calls.open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
target = next(pathlib.Path(a.split("=", 1)[1]) for a in sys.argv if a.startswith("-DoutputDirectory="))
assert pathlib.Path("pom.xml").is_file()
time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))
if message := os.environ.get("FAKE_ERROR"):
    print("[INFO] Scanning for projects...\\n[ERROR] " + message)
    print("[ERROR] -> [Help 1]\\n[ERROR] \\n[ERROR] To see the full stack trace of the errors, re-run")
    sys.exit(1)
target.mkdir()
for jar in sorted(pathlib.Path(os.environ["FAKE_REPOSITORY"]).iterdir()):
    print(f"Downloaded from central: https://repo/x/1/{{jar.name}} (1 kB at 1 kB/s)", flush=True)
    (target / jar.name).write_bytes(jar.read_bytes())
    print(f"[INFO] Copying {{jar.name}} to {{target}}/{{jar.name}}", flush=True)
    if "FAKE_HANG" in os.environ:
        time.sleep(600)
"""

JAVA = """#!/bin/sh
echo 'openjdk version "{version}" 2026-01-01' >&2
echo 'OpenJDK Runtime Environment (build {version})' >&2
echo 'OpenJDK 64-Bit Server VM (build {version}, mixed mode{sharing})' >&2
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def java_script(path: Path, version: str = "17.0.99", sharing: str = ", sharing") -> Path:
    return script(path, JAVA.format(version=version, sharing=sharing))


@dataclass
class Machine:
    """Folders of the fake machine below `root`, and the progress events so far."""

    root: Path
    events: list[Progress] = field(default_factory=list)

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    def maven_calls(self) -> int:
        calls = self.root / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    def listen(self, event: Progress) -> None:
        self.events.append(event)

    def left_in_cache(self) -> list[str]:
        """Return the paths of folders in the cache whose building did not end."""
        return [str(path) for path in self.cache.rglob("*.building-*")]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return the fake machine. Its scripts are the only programs on the PATH."""
    made = Machine(tmp_path)
    script(made.bin / "mvn", MVN)
    java_script(made.bin / "java")
    made.repository.mkdir()
    for name, content in JARS.items():
        (made.repository / name).write_bytes(content)
    locks = tmp_path / "locks"
    locks.mkdir()
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in JARS.items()}
    (locks / f"kafka-{VERSION}.lock").write_text(releases.Lock(VERSION, hashes).text())
    (locks / "kafka-10.0.0.lock").write_text("")
    monkeypatch.setattr(releases, "LOCKS", locks)
    monkeypatch.setenv("PATH", str(made.bin))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("ACKPROOF_CACHE", str(made.cache))
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("FAKE_REPOSITORY", str(made.repository))
    return made


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> object:
    """End the processes that a test may have left running in its folder."""
    yield
    end_children(lambda child: child.directory.is_relative_to(tmp_path))
