"""Tests of the metadata checkpoint of new clusters, which is formatted once per version and features."""

from __future__ import annotations

import sys

import pytest

from ackproof.base.errors import BadInput
from ackproof.provision.checkpoint import bootstrap_checkpoint, meta_properties, new_cluster_id
from ackproof.provision.jars import kafka_jars
from ackproof.provision.java import find_java
from ackproof.provision.progress import ProvisionFailed

from .conftest import VERSION, Machine, script

# a Java that can run StorageTool: writes its arguments as the checkpoint; knows one feature
JAVA = f"""#!{sys.executable}
import pathlib, sys
if "format" in sys.argv:
    with open(pathlib.Path(sys.argv[0]).with_name("formats"), "a") as file:
        file.write("x")
    if "foo=1" in sys.argv or "BROKEN" in pathlib.Path(sys.argv[0]).read_text().splitlines()[-1]:
        sys.exit("Unsupported feature: foo.")
    settings = pathlib.Path(sys.argv[sys.argv.index("-c") + 1]).read_text()
    data = pathlib.Path(settings.split("log.dirs=")[1].strip())
    data.mkdir()
    (data / "bootstrap.checkpoint").write_text(" ".join(sys.argv))
else:
    print('openjdk version "17.0.99"', file=sys.stderr)
"""


def formats(machine: Machine) -> int:
    path = machine.bin / "formats"
    return len(path.read_text()) if path.exists() else 0


def test_once_per_version_and_features(machine: Machine) -> None:
    script(machine.bin / "java", JAVA)
    jars, java = kafka_jars(VERSION), find_java()
    plain = bootstrap_checkpoint(jars, java)
    assert plain.name == "bootstrap.checkpoint"
    assert bootstrap_checkpoint(jars, java, features={}) == plain
    assert formats(machine) == 1
    features = {"eligible.leader.replicas.version": 0, "a.version": 1}
    other = bootstrap_checkpoint(jars, java, features=features)
    assert other.read_text().endswith("--feature a.version=1 --feature eligible.leader.replicas.version=0")
    assert bootstrap_checkpoint(jars, java, features=dict(reversed(features.items()))) == other
    assert formats(machine) == 2
    assert [path.name for path in other.parent.iterdir()] == ["bootstrap.checkpoint"]


def test_features_that_kafka_refuses(machine: Machine) -> None:
    script(machine.bin / "java", JAVA)
    jars, java = kafka_jars(VERSION), find_java()
    with pytest.raises(BadInput, match=r"cannot be formatted with foo=1: Unsupported feature: foo\."):
        bootstrap_checkpoint(jars, java, features={"foo": 1})
    with pytest.raises(BadInput, match=r"\.\./x=1 is not a feature"):
        bootstrap_checkpoint(jars, java, features={"../x": 1})
    assert machine.left_in_cache() == []


def test_formatting_that_fails_by_itself(machine: Machine) -> None:
    script(machine.bin / "java", JAVA + "# BROKEN\n")
    with pytest.raises(ProvisionFailed, match=r"cannot be formatted \(exit 1\): Unsupported"):
        bootstrap_checkpoint(kafka_jars(VERSION), find_java())


def test_what_a_node_needs_beside_it() -> None:
    cluster = new_cluster_id()
    assert len(cluster) == 22
    assert cluster != new_cluster_id()
    assert not any(new_cluster_id().startswith("-") for _ in range(2000)), "one of 64 would"
    assert meta_properties("c", 3) == "version=1\ncluster.id=c\nnode.id=3\n"
