"""Tests of provisioning with Maven, Java and brokers. They use the machine's cache, and fetch only what is missing
there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.base.processes import end_children, find_children
from ackproof.base.wait import wait_until
from ackproof.cluster.doctor import doctor
from ackproof.provision.checkpoint import bootstrap_checkpoint
from ackproof.provision.jars import kafka_jars
from ackproof.provision.java import find_java
from ackproof.provision.jvm import ROLES, archive_folder, archive_in_use, warm_up, why_unusable

from .conftest import Clusters

pytestmark = pytest.mark.cluster

VERSIONS = ("4.4.0", "3.9.2")


def of_folder(folder: Path) -> list[int]:
    return [child.pid for child in find_children() if child.directory.is_relative_to(folder)]


@pytest.mark.parametrize("version", [VERSIONS[0], pytest.param(VERSIONS[1], marks=pytest.mark.nightly)])
def test_nodes_start_with_their_archives(clusters: Clusters, version: str) -> None:
    """Brokers map the class-data archive, log and serve requests; jars, archives and the formatted checkpoint are
    used."""
    archives = clusters.install(version).archives
    cluster = clusters.start(kafka=version, brokers=2, controllers=1)
    for node in cluster.nodes.values():
        assert node.pid is not None
        mapped = {role: archive_in_use(node.pid, path) for role, path in archives.items()}
        assert mapped == {role: (role == "broker") is node.is_broker for role in ROLES}
    warm_up(cluster.bootstrap, leader=1, follower=2)
    cluster.stop()
    for node in cluster.nodes.values():
        log = node.files.log.read_text()
        assert " INFO " in log
        # A controller of 3.9 calls it an error to be asked who it is before it knows its metadata version.
        errors = [line for line in log.splitlines() if "ERROR" in line and "DESCRIBE_CLUSTER" not in line]
        assert errors == []
        assert "cds" not in node.files.stdout.read_text(), "Java complains there about an archive"
    assert "Leader warm-up-0 " in cluster.node(1).files.log.read_text()


ASK = """
from ackproof.cluster.install import install
from ackproof.experiment.kafka import KafkaBuild
print(install(KafkaBuild("4.4.0")).archives["broker"])
"""


@pytest.mark.nightly
def test_archives_are_made_once_and_a_damaged_one_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes make the archives at the same time, in a new cache."""
    shared = kafka_jars("4.4.0")
    cache = tmp_path / "cache"
    shutil.copytree(shared.directory, cache / shared.home.name / "jars")
    monkeypatch.setenv("ACKPROOF_CACHE", str(cache))
    both = [
        subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        for _ in range(2)
    ]
    first, second = (process.communicate()[0].strip() for process in both)
    jars, java, archive = kafka_jars("4.4.0"), find_java(), Path(first)
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
    if version == "4.4.0":
        without = bootstrap_checkpoint(jars, java, features={"eligible.leader.replicas.version": 0})
        assert b"eligible.leader" in plain.read_bytes()
        assert b"eligible.leader" not in without.read_bytes()


KILLED = """
import sys
from pathlib import Path
from ackproof.cluster.backends.process import write_archives
from ackproof.cluster.install import install
from ackproof.experiment.kafka import KafkaBuild
def told(progress):
    if progress.done == 2:
        print("started", flush=True)
        threading.Event().wait()
import threading
write_archives(install(KafkaBuild("4.4.0")), told, Path(sys.argv[1]))
"""


@pytest.mark.nightly  # test_topologies.py kills a harness, and finds its nodes by the same marks
def test_a_builder_of_archives_that_is_killed_leaves_nothing_that_is_not_found(tmp_path: Path) -> None:
    harness = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    with harness.stdout:
        assert harness.stdout.readline() == "started\n"
        harness.kill()
        harness.wait()
    assert len(of_folder(tmp_path)) == 3
    ended, left = end_children(
        lambda child: child.directory.is_relative_to(tmp_path) and not child.owner_alive
    )
    assert sorted(child.role for child in ended) == ["broker-1", "broker-2", "controller-101"]
    assert left == []
    wait_until(lambda: not of_folder(tmp_path), what="nothing to be left", timeout_s=5)


def test_the_doctor_finds_all_well(tmp_path: Path) -> None:
    checks = doctor(runs=tmp_path)
    assert [(check.name, check.found) for check in checks if not check.ok] == []
    assert "started and answered in" in checks[-1].found
