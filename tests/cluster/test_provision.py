"""Provisioning for real: Maven, Java, brokers. Uses the machine's own cache; what is in it already is not fetched."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput, NodeDied
from ackproof.base.processes import end_children, find_children
from ackproof.base.wait import wait_until
from ackproof.provision.archive import (
    ROLES,
    Role,
    archive_folder,
    archive_in_use,
    class_data_archive,
    why_unusable,
)
from ackproof.provision.checkpoint import bootstrap_checkpoint
from ackproof.provision.doctor import doctor
from ackproof.provision.jars import kafka_jars
from ackproof.provision.java import find_java
from ackproof.provision.trial import Trial, TrialNode
from ackproof.provision.warm_up import warm_up

pytestmark = pytest.mark.cluster

VERSIONS = ("4.3.1", "3.9.2")


def of_folder(folder: Path) -> list[int]:
    return [child.pid for child in find_children() if child.directory.is_relative_to(folder)]


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_start_with_their_archives(version: str, tmp_path: Path) -> None:
    """Jars, archives and a formatted checkpoint: a controller and a broker that map them, log, and serve."""
    jars, java = kafka_jars(version), find_java()
    archives = {role: class_data_archive(jars, role, java) for role in ROLES}
    roles: dict[int, Role] = {1: "controller", 2: "broker", 3: "broker"}
    nodes = [
        TrialNode(number, role, [f"-XX:SharedArchiveFile={archives[role]}"]) for number, role in roles.items()
    ]
    with Trial(jars, java, nodes, tmp_path) as trial:
        for node in nodes:
            mapped = {role: archive_in_use(trial.pid(node.node_id), path) for role, path in archives.items()}
            assert mapped == {role: role == node.roles for role in ROLES}
        warm_up(trial.bootstrap, leader=2, follower=3)
        assert len(of_folder(tmp_path)) == 3
    assert of_folder(tmp_path) == []
    for node in nodes:
        home = tmp_path / "nodes" / node.name
        log = (home / "server.log").read_text()
        assert " INFO " in log
        assert "ERROR" not in log
        assert "cds" not in (home / "stdout.log").read_text(), "Java complains there about an archive"
    assert "Leader warm-up-0 " in (tmp_path / "nodes/broker-2/server.log").read_text()


def test_an_archive_that_does_not_fit_is_seen_not_to_be_in_use(tmp_path: Path) -> None:
    """The class path in another order: Java starts all the same, only slower."""
    jars, java = kafka_jars("4.3.1"), find_java()
    archive = class_data_archive(jars, "broker", java)
    other = replace(jars, classpath=tuple(reversed(jars.classpath)))
    node = TrialNode(1, "broker,controller", [f"-XX:SharedArchiveFile={archive}"])
    with Trial(other, java, [node], tmp_path) as trial:
        assert not archive_in_use(trial.pid(1), archive)
        assert "cds" in trial.output(1)


ASK = """
from ackproof.provision.archive import class_data_archive
from ackproof.provision.jars import kafka_jars
from ackproof.provision.java import find_java
print(class_data_archive(kafka_jars("4.3.1"), "broker", find_java()))
"""


@pytest.mark.nightly
def test_archives_are_made_once_and_a_damaged_one_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cache of its own, by two processes at once."""
    shared = kafka_jars("4.3.1")
    cache = tmp_path / "cache"
    shutil.copytree(shared.directory, cache / shared.home.name / "jars")
    monkeypatch.setenv("ACKPROOF_CACHE", str(cache))
    both = [
        subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        for _ in range(2)
    ]
    first, second = (process.communicate()[0].strip() for process in both)
    jars, java, archive = kafka_jars("4.3.1"), find_java(), Path(first)
    assert first == second == str(archive_folder(jars, java) / "broker.jsa")
    assert sorted(path.name for path in archive.parent.iterdir()) == ["broker.jsa", "controller.jsa"]
    assert len(list(archive.parent.parent.iterdir())) == 2, "nothing but this folder and its lock"
    assert why_unusable(archive, jars, java) == ""

    damaged = tmp_path / "damaged.jsa"
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    assert "Checksum verification failed" in why_unusable(damaged, jars, java)
    reordered = replace(jars, classpath=tuple(reversed(jars.classpath)))
    shutil.copy(archive, damaged)
    assert "shared class paths mismatch" in why_unusable(damaged, reordered, java)


@pytest.mark.parametrize("version", VERSIONS)
def test_formatting_takes_features(version: str) -> None:
    jars, java = kafka_jars(version), find_java()
    plain = bootstrap_checkpoint(jars, java)
    assert 100 < plain.stat().st_size < 1000
    with pytest.raises(
        BadInput, match=r"cannot be formatted with no\.such\.thing=1: .*Supported features are"
    ):
        bootstrap_checkpoint(jars, java, features={"no.such.thing": 1})
    if version == "4.3.1":
        without = bootstrap_checkpoint(jars, java, features={"eligible.leader.replicas.version": 0})
        assert b"eligible.leader" in plain.read_bytes()
        assert b"eligible.leader" not in without.read_bytes()


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    jars, java = kafka_jars("4.3.1"), find_java()
    with (
        pytest.raises(
            NodeDied, match=r"broker-controller-1 ended with status 1; last lines:\n(.*\n)*.*Unrecognized"
        ),
        Trial(jars, java, [TrialNode(1, "broker,controller", ["-XX:+NoSuchFlag"])], tmp_path),
    ):
        pytest.fail("it must not start")
    assert of_folder(tmp_path) == []


KILLED = """
import sys
from pathlib import Path
from ackproof.provision.jars import kafka_jars
from ackproof.provision.java import find_java
from ackproof.provision.trial import Trial, TrialNode
import threading
with Trial(kafka_jars("4.3.1"), find_java(), [TrialNode(1, "broker,controller")], Path(sys.argv[1])):
    print("started", flush=True)
    threading.Event().wait()
"""


def test_a_killed_harness_leaves_nothing_that_is_not_found(tmp_path: Path) -> None:
    harness = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    with harness.stdout:
        assert harness.stdout.readline() == "started\n"
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    assert len(of_folder(tmp_path)) == 1
    ended = end_children(lambda child: child.directory == tmp_path and not child.owner_alive)
    assert [child.role for child in ended.gone] == ["broker-controller-1"]
    assert ended.left == ()
    wait_until(lambda: not of_folder(tmp_path), what="nothing to be left", timeout_s=5)


def test_the_doctor_finds_all_well(tmp_path: Path) -> None:
    checks = doctor(runs=tmp_path)
    assert [(check.name, check.found) for check in checks if not check.ok] == []
    assert "started and answered in" in checks[-1].found
