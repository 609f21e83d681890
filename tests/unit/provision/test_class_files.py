"""Tests of reading classes and methods from jars without a JVM: what is missing, and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.provision.class_files import find_missing_name
from class_jar import write_class_jar

LOG = "org.apache.kafka.storage.internals.log.UnifiedLog"
SERVER = {
    "kafka.cluster.Partition": (("makeLeader", "(IJ)Z"), ("topic", "()Ljava/lang/String;")),
    "kafka.server.ReplicaManager$Inner": (("$anonfun$read$1", "()V"), ("read", "()V")),
}
STORAGE = {
    LOG: (
        ("<init>", "()V"),
        ("roll", "()V"),
        ("roll", "(Ljava/util/Optional;[[J)V"),
        ("inner", "(Lkafka/server/ReplicaManager$Inner;Z)V"),
    ),
    "other.Partitions": (("makeLeader", "()V"),),
}


@pytest.fixture
def jars(tmp_path: Path) -> tuple[Path, ...]:
    return (
        write_class_jar(tmp_path / "server.jar", SERVER),
        write_class_jar(tmp_path / "storage.jar", STORAGE),
    )


@pytest.mark.parametrize(
    ("class_name", "method"),
    [
        ("kafka.cluster.Partition", "makeLeader"),
        ("kafka.cluster.Partition", "makeLeader(int, long)"),
        ("kafka.cluster.Partition", "topic()"),
        (LOG, "<init>"),
        (LOG, "roll(Optional,long[][])"),
        (LOG, "roll(java.util.Optional, long[][])"),
        (LOG, "inner(Inner, boolean)"),
        ("kafka.server.ReplicaManager$Inner", "read"),
        ("other.Partitions", "makeLeader"),
    ],
)
def test_what_is_there_is_found(jars: tuple[Path, ...], class_name: str, method: str) -> None:
    assert find_missing_name(class_name, method, jars) is None


@pytest.mark.parametrize(
    ("class_name", "method", "said", "nearest"),
    [
        (
            "kafka.cluster.Partitions",
            "x",
            "Kafka 4 has no class kafka.cluster.Partitions",
            "kafka.cluster.Partition",
        ),
        ("kafka.log.UnifiedLog", "roll", "Kafka 4 has no class kafka.log.UnifiedLog", LOG),
        ("a.Nowhere", "x", "Kafka 4 has no class a.Nowhere", None),
        ("kafka.cluster.Partition", "makeLeaders", "declares no method makeLeaders in Kafka 4", "makeLeader"),
        ("kafka.cluster.Partition", "makeLeader(int)", "no method makeLeader(int)", "makeLeader(int, long)"),
        ("kafka.server.ReplicaManager$Inner", "anonfun", "no method anonfun", "read"),
        (LOG, "roll(Optional,long[])", "no method roll", "roll(java.util.Optional, long[][])"),
    ],
)
def test_what_is_missing_is_said_with_the_nearest_name(
    jars: tuple[Path, ...], class_name: str, method: str, said: str, nearest: str | None
) -> None:
    missing = find_missing_name(class_name, method, jars)
    assert missing is not None
    assert said in missing.describe("4")
    assert missing.nearest == nearest
