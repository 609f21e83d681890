"""Tests of decoded logs of real brokers and controllers, against Kafka's dump tool and the brokers' answers."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ackproof.cluster.backends.process import ProcessCluster
from ackproof.cluster.disks.log import scan
from ackproof.cluster.install import Installation
from ackproof.cluster.metadata import kraft_log as metadata_log
from ackproof.cluster.metadata import write_metadata_log
from ackproof.experiment.spec import TopicSpec
from ackproof.observe.replica_logs import LogDir, collect_replica_logs
from ackproof.provision.jvm import java_command, jvm_flags
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import BrokerChanged, BrokerRegistered, PartitionChanged, read_metadata
from ackproof.rundir.partition import TopicPartition

from .conftest import NEWEST, OLDER, Clusters
from .helpers import await_full_isr, await_leader, partition_of, produce

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=[OLDER, NEWEST])
def shaken(request: pytest.FixtureRequest, module_clusters: Clusters) -> Iterator[ProcessCluster]:
    """A cluster at rest whose leader was killed and restarted."""
    cluster = module_clusters.start(
        kafka=request.param, brokers=2, config={"broker.session.timeout.ms": "2000"}
    )
    cluster.create_topics({"t": TopicSpec(partitions=2, replication_factor=2)})
    assert produce(cluster, "t", 200) == 200
    leader = partition_of(cluster, "t").leader
    cluster.node(leader).kill()
    await_leader(cluster, "t", other_than=leader)
    assert produce(cluster, "t", 100) == 100
    cluster.node(leader).start()
    await_full_isr(cluster, "t")
    yield cluster
    cluster.stop()


def _data(cluster: ProcessCluster, node: int) -> Path:
    return cluster.nodes_dir / str(node) / "data"


def _dump(installed: Installation, segment: Path, *words: str) -> Iterator[str]:
    """Yield the lines that `kafka.tools.DumpLogSegments` prints for a copy of a segment. Only the jars of 3.9 have the
    tool, which cannot read paths with a comma."""
    copied = Path(shutil.copy(segment, tempfile.mkdtemp(prefix="ackproof-dump-")))
    flags = [*jvm_flags(), f"-XX:SharedArchiveFile={installed.archives['broker']}"]
    arguments = [*words, "--files", str(copied)]
    command = java_command(installed.java, installed.jars, "kafka.tools.DumpLogSegments", arguments, flags)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shutil.rmtree(copied.parent)
    assert done.returncode == 0, done.stderr
    yield from done.stdout.splitlines()


@pytest.mark.parametrize("shaken", [OLDER], indirect=True)
def test_the_metadata_log_as_kafkas_own_tool_reads_it(
    shaken: ProcessCluster, installs: Callable[[str], Installation]
) -> None:
    folder = _data(shaken, 101) / metadata_log.FOLDER
    (segment,) = folder.glob("[0-9]*.log")
    dumped: dict[int, dict[str, Any]] = {}
    for line in _dump(installs(OLDER), segment, "--cluster-metadata-decoder"):
        if " payload: " in line:
            offset = int(line.split("offset: ")[1].split()[0])
            dumped[offset] = json.loads(line.split(" payload: ")[1])
    ours = {record.offset: record for record in metadata_log.decode(folder) if record.offset in dumped}
    assert ours.keys() == dumped.keys()
    seen = set()
    for offset, record in ours.items():
        kind, data = dumped[offset]["type"], dumped[offset]["data"]
        seen.add(kind)
        if isinstance(record, PartitionChanged):
            names = {"isr": "isr", "leader": "leader", "replicas": "replicas"}
            said = {mine: data[theirs] for mine, theirs in names.items() if theirs in data}
            shown = record.model_dump(include=set(said), mode="json")
            assert shown == said, f"offset {offset}: {kind}"
            assert record.partition == data["partitionId"]
            if kind == "PARTITION_RECORD":
                assert (record.leader_epoch, record.partition_epoch) == (
                    data["leaderEpoch"],
                    data["partitionEpoch"],
                )
        elif isinstance(record, BrokerRegistered):
            assert (record.node, record.broker_epoch, record.fenced, record.rack) == (
                data["brokerId"],
                data["brokerEpoch"],
                data["fenced"],
                data.get("rack") or "",
            )
            assert uuid.UUID(record.incarnation).bytes == base64.urlsafe_b64decode(
                data["incarnationId"] + "=="
            )
        elif isinstance(record, BrokerChanged):
            assert (record.node, record.fenced) == (
                data["brokerId"],
                {1: True, -1: False}.get(data.get("fenced", 0)),
            )
        else:
            assert record.kind in ("topic", "feature", "config", "other"), kind
    assert {"PARTITION_RECORD", "PARTITION_CHANGE_RECORD", "REGISTER_BROKER_RECORD"} <= seen
    assert "BROKER_REGISTRATION_CHANGE_RECORD" in seen


def test_batches_as_kafkas_own_tool_reads_them(
    shaken: ProcessCluster, installs: Callable[[str], Installation]
) -> None:
    segment = _data(shaken, 1) / "t-0" / f"{0:020d}.log"
    theirs = []
    for line in _dump(installs(OLDER), segment):
        if line.startswith("baseOffset: "):
            words = line.replace(": ", ":").split()
            said = dict(word.split(":", 1) for word in words if ":" in word)
            names = ("baseOffset", "lastOffset", "count", "partitionLeaderEpoch", "position", "size", "crc")
            theirs.append(tuple(int(said[name]) for name in names))
    ours = [(b.first, b.last, b.records, b.epoch, b.position, b.size, b.crc) for b in scan(segment)[0]]
    assert ours == theirs
    assert len({epoch for *_, epoch, _, _, _ in ours}) == 2, "batches of both leaders"


def test_what_the_log_says_last_is_what_the_brokers_answer(shaken: ProcessCluster, tmp_path: Path) -> None:
    run = CaseDir(tmp_path / shaken.spec.kafka.version)
    run.observed.mkdir(parents=True)
    assert write_metadata_log(shaken.spec, [_data(shaken, 101)], run) == ""
    last = {
        (record.topic, record.partition): record
        for record in read_metadata(run.metadata_log)
        if isinstance(record, PartitionChanged)
    }
    for place, state in shaken.topic_state(["t"]).items():
        assert isinstance(place, TopicPartition)
        decided = last[place.topic, place.partition]
        assert (decided.leader, decided.leader_epoch) == (state.leader, state.leader_epoch)
        assert set(decided.isr) == set(state.isr)
        assert decided.replicas == tuple(state.replicas)


def test_replicas_hold_what_was_acknowledged_in_epochs_that_agree(
    shaken: ProcessCluster, tmp_path: Path
) -> None:
    run = CaseDir(tmp_path / shaken.spec.kafka.version)
    found = collect_replica_logs([LogDir(node, _data(shaken, node)) for node in (1, 2)], ["t"], run, "00" * 8)
    assert found.reasons == ()
    mine = [replica for replica in found.replicas if replica.partition == 0]
    assert [(one.node, one.records, one.log_end, one.reason) for one in mine] == [
        (n, 300, 300, "") for n in (1, 2)
    ]
    leader = partition_of(shaken, "t")
    assert {one.epochs for one in mine} == {mine[0].epochs}
    assert mine[0].epochs[-1].epoch == leader.leader_epoch
    assert mine[0].epochs[-1].start == 200
