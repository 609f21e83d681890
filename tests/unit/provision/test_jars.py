"""Tests of Kafka's jars in the cache: fetched from Maven once, always compared with their lock, complete or absent."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput, MissingTool
from ackproof.base.processes import find_children
from ackproof.base.wait import wait_until
from ackproof.provision import releases
from ackproof.provision.jars import is_cached, kafka_jars
from ackproof.provision.progress import Progress, ProvisionFailed

from .conftest import JARS, VERSION, Machine

# another ackproof on the same machine
OTHER = """
import sys
from collections.abc import Callable
from pathlib import Path
from ackproof.provision import releases
from ackproof.provision.jars import kafka_jars
releases.LOCKS = Path(sys.argv[1])
print(len(kafka_jars(sys.argv[2]).classpath))
"""


def other(machine: Machine, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(releases.LOCKS), VERSION],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_fetched_once_then_offline(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_cached(VERSION)
    jars = kafka_jars(VERSION, machine.listen)
    assert [path.name for path in jars.classpath] == sorted(JARS)
    assert all(path.is_absolute() and path.is_file() for path in jars.classpath)
    assert jars.classpath_argument == ":".join(str(path) for path in jars.classpath)
    assert sorted(path.name for path in jars.directory.iterdir()) == sorted(JARS), "nothing but jars"
    assert machine.left_in_cache() == []

    assert is_cached(VERSION)
    monkeypatch.setenv("PATH", "/nowhere")  # neither mvn nor java
    assert kafka_jars(VERSION) == jars
    assert machine.maven_calls() == 1


def test_progress_is_told(machine: Machine) -> None:
    kafka_jars(VERSION, machine.listen)
    told = [event.message for event in machine.events]
    assert told[0].endswith("asking Maven")
    assert any("comparing SHA-256" in message for message in told)
    last = [event for event in machine.events if event.message.endswith("fetching its jars")][-1]
    assert (last.done, last.total) == (3, 3)


@pytest.mark.parametrize("text", ["9.9", "../locks/kafka-9.9.9", "3.8.1"])
def test_what_is_no_version_is_not_asked_for(machine: Machine, text: str) -> None:
    with pytest.raises(BadInput, match=r"expected a full version|is not supported"):
        kafka_jars(text)
    assert machine.maven_calls() == 0


def test_a_wrong_download_is_not_used(machine: Machine) -> None:
    (machine.repository / "a.jar").write_bytes(b"something else")
    expected, got = (hashlib.sha256(text).hexdigest() for text in (b"first", b"something else"))
    with pytest.raises(ProvisionFailed, match=rf"wrong SHA-256 of a\.jar: expected {expected}, got {got}"):
        kafka_jars(VERSION)
    assert not is_cached(VERSION)
    assert machine.left_in_cache() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "a.jar").unlink(), "a.jar is missing"),
        (lambda folder: (folder / "evil.jar").write_bytes(b""), "evil.jar is not in the lock"),
    ],
)
def test_too_few_or_too_many_jars(machine: Machine, change: Callable[[Path], object], message: str) -> None:
    change(machine.repository)
    with pytest.raises(ProvisionFailed, match=message):
        kafka_jars(VERSION)
    assert not is_cached(VERSION)


def test_a_jar_changed_in_the_cache_is_noticed(machine: Machine) -> None:
    jars = kafka_jars(VERSION)
    kafka_jars(VERSION)
    jars.classpath[0].write_bytes(b"fIrst")  # same length
    with pytest.raises(ProvisionFailed, match=r"wrong SHA-256 of a\.jar.*fetch it again: rm -r .*/jars"):
        kafka_jars(VERSION)
    jars.classpath[0].write_bytes(b"first")
    assert kafka_jars(VERSION) == jars


def test_another_lock_is_another_entry(machine: Machine) -> None:
    """Another version of ackproof may lock other versions of Kafka's libraries: its cache entry is not used."""
    before = kafka_jars(VERSION)
    (machine.repository / "a.jar").write_bytes(b"newer")
    hashes = dict(releases.lock(VERSION).jars, **{"a.jar": hashlib.sha256(b"newer").hexdigest()})
    (releases.LOCKS / f"kafka-{VERSION}.lock").write_text(releases.Lock(VERSION, hashes).text())
    after = kafka_jars(VERSION)
    assert after.directory != before.directory
    assert before.classpath[0].read_bytes() == b"first"


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("mvn", r"mvn is missing \(Kafka's jars are fetched with it\)\. Install it: apt-get install maven$"),
        ("java", r"java is missing .* apt-get install openjdk-17-jre-headless$"),
    ],
)
def test_a_tool_is_missing(machine: Machine, tool: str, said: str) -> None:
    (machine.bin / tool).unlink()
    with pytest.raises(MissingTool, match=f"^{said}"):
        kafka_jars(VERSION)
    assert machine.maven_calls() == 0


def test_maven_fails(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ERROR", "Could not transfer artifact x from central: Connection refused")
    with pytest.raises(ProvisionFailed) as caught:
        kafka_jars(VERSION)
    assert str(caught.value) == (
        "mvn could not fetch Kafka 9.9.9 (exit 1): Could not transfer artifact x from central: Connection refused"
    )
    assert machine.left_in_cache() == []


def test_two_at_once_share_one_download(machine: Machine) -> None:
    processes = [other(machine, FAKE_SLEEP="0.3") for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["3\n"] * 3
    assert machine.maven_calls() == 1
    assert machine.left_in_cache() == []


def test_waiting_for_another_is_told_and_its_failure_is_not_ours(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = other(machine, FAKE_SLEEP="0.5", FAKE_ERROR="no network there")
    try:
        wait_until(lambda: machine.maven_calls() == 1, what="the other's download", timeout_s=30)
        assert len(kafka_jars(VERSION, machine.listen).classpath) == 3
        assert machine.events[0].message.startswith("another ackproof is making ")
        assert machine.maven_calls() == 2
    finally:
        process.communicate(timeout=60)
    assert process.returncode != 0


def mine(machine: Machine) -> list[int]:
    return [child.pid for child in find_children() if child.directory.is_relative_to(machine.root)]


def test_killed_in_the_middle(machine: Machine) -> None:
    """kill -9 leaves a running Maven and an incomplete folder. The next call ends that process and removes the
    folder."""
    process = other(machine, FAKE_HANG="1")
    wait_until(lambda: list(machine.cache.rglob("a.jar")), what="half a download", timeout_s=30)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not is_cached(VERSION)
    assert len(mine(machine)) == 1
    assert len(machine.left_in_cache()) == 1

    assert len(kafka_jars(VERSION).classpath) == 3
    assert mine(machine) == []
    assert machine.left_in_cache() == []


def test_interrupted_in_the_middle(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_HANG", "1")

    def interrupt(event: Progress) -> None:
        if event.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kafka_jars(VERSION, interrupt)
    assert mine(machine) == []
    assert machine.left_in_cache() == []
    assert not is_cached(VERSION)


def test_the_cache_stands_where_it_is_told(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ackproof.base.environment import cache_root

    assert cache_root() == machine.cache
    monkeypatch.delenv("ACKPROOF_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "ackproof"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home" / ".cache" / "ackproof"
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path / "a:b"))
    with pytest.raises(BadInput, match="has a ':' in its name"):
        cache_root()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACKPROOF_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BadInput, match=r"cannot be made \(Not a directory\); set ACKPROOF_CACHE"):
        cache_root()
