"""Tests of decoding ZooKeeper's transaction log into metadata records about brokers and partitions."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ackproof.cluster.metadata import write_metadata_log
from ackproof.cluster.metadata.protocol import NotDecoded
from ackproof.cluster.metadata.zookeeper_log import decode
from ackproof.experiment.spec import ClusterSpec
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import (
    BrokerChanged,
    BrokerRegistered,
    ConfigChanged,
    LogEnded,
    PartitionChanged,
    TopicCreated,
    read_metadata,
)

STATE = "/brokers/topics/orders/partitions/0/state"
ID = "zq3FzNTdSDWsSk2MzQqXVA"
CREATE, DELETE, SET, CLOSE, MULTI = 1, 2, 5, -11, 14


ZOOKEEPER = ClusterSpec(kafka="3.9.2", mode="zookeeper")


def buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def create(path: str, value: object, *, ephemeral: bool = False) -> bytes:
    acl = struct.pack(">ii", 1, 31) + buffer(b"world") + buffer(b"anyone")
    return (
        buffer(path.encode())
        + buffer(json.dumps(value).encode())
        + acl
        + bytes([ephemeral])
        + struct.pack(">i", 1)
    )


def change(path: str, value: object, version: int) -> bytes:
    return buffer(path.encode()) + buffer(json.dumps(value).encode()) + struct.pack(">i", version)


def state(leader: int, epoch: int, isr: list[int]) -> dict[str, Any]:
    return {"leader": leader, "leader_epoch": epoch, "isr": isr, "controller_epoch": 7, "version": 1}


TRANSACTIONS = [
    (0xA, CREATE, create("/brokers/ids/1", {"rack": "a"}, ephemeral=True)),
    (0xB, CREATE, create("/brokers/ids/2", {}, ephemeral=True)),
    (0xA, CREATE, create("/config/topics/orders", {"config": {"min.insync.replicas": "2"}})),
    (0xA, CREATE, create("/brokers/topics/orders", {"partitions": {"0": [1, 2]}, "topic_id": ID})),
    (0xA, MULTI, struct.pack(">ii", 1, CREATE) + buffer(create(STATE, state(1, 0, [1, 2])))),
    (0xA, CLOSE, b""),
    (0xB, SET, change(STATE, state(2, 1, [2]), 1)),
    (0xB, DELETE, buffer(b"/admin/something")),
]


def log(server: Path, entries: list[tuple[int, int, bytes]], tail: bytes = b"\0" * 64) -> Path:
    folder = server / "version-2"
    folder.mkdir(parents=True)
    data = b"ZKLG" + struct.pack(">iq", 2, 0)
    for zxid, (session, type_, body) in enumerate(entries, start=1):
        whole = struct.pack(">qiqqi", session, 0, zxid, 1000 + zxid, type_) + body
        data += struct.pack(">qi", 0, len(whole)) + whole + b"B"
    (folder / "log.1").write_bytes(data + tail)
    return server


def test_znodes_become_the_records_of_a_metadata_log(tmp_path: Path) -> None:
    run = CaseDir(tmp_path / "run")
    assert write_metadata_log(ZOOKEEPER, [log(tmp_path / "zk", TRANSACTIONS)], run) == ""
    *records, end = read_metadata(run.metadata_log)
    assert isinstance(end, LogEnded)
    assert (end.offset, end.records) == (records[-1].offset + 1, len(records))
    kinds = (BrokerRegistered, BrokerRegistered, ConfigChanged, TopicCreated)
    assert tuple(map(type, records)) == (*kinds, PartitionChanged, BrokerChanged, PartitionChanged)
    first, second, setting, topic, created, gone, last = records
    assert topic.topic_id == "ceadc5cc-d4dd-4835-ac4a-4d8ccd0a9754"
    assert (first.node, first.broker_epoch, first.fenced, first.rack) == (1, 1, False, "a")
    assert second.rack == ""
    assert (setting.name, setting.key, setting.value) == ("orders", "min.insync.replicas", "2")
    assert (created.replicas, created.changed, created.epoch) == ((1, 2), ("created",), 7)
    assert (gone.node, gone.fenced, gone.broker_epoch) == (1, True, 1)
    assert (last.leader, last.leader_epoch, last.isr, last.partition_epoch, last.offset) == (2, 1, (2,), 1, 7)


def test_a_topic_that_is_made_anew_is_another_one(tmp_path: Path) -> None:
    again = create("/brokers/topics/orders", {"partitions": {"0": [2, 1]}, "topic_id": f"A{ID[1:]}"})
    entries = [
        *TRANSACTIONS[:5],
        (0xA, DELETE, buffer(STATE.encode())),
        (0xA, DELETE, buffer(b"/brokers/topics/orders")),
        (0xA, DELETE, buffer(b"/config/topics/orders")),
        (0xA, CREATE, again),
        (0xA, CREATE, create(STATE, state(2, 0, [1, 2]))),
    ]
    records = list(decode([log(tmp_path, entries) / "version-2"]))[4:]
    assert [one.kind for one in records] == ["partition", "topic-removed", "config", "topic", "partition"]
    _, removed, setting, anew, created = records
    assert removed.topic_id != anew.topic_id
    assert setting.value is None
    assert (created.replicas, created.leader, created.changed) == ((2, 1), 2, ("created",))


def test_an_id_that_is_none_is_not_decoded(tmp_path: Path) -> None:
    entries = [(0xA, CREATE, create("/brokers/topics/orders", {"partitions": {}, "topic_id": "x"}))]
    with pytest.raises(NotDecoded, match="zxid 0x1"):
        list(decode([log(tmp_path, entries) / "version-2"]))
    nameless = [(0xA, CREATE, create("/brokers/topics/orders", {"partitions": {}}))]
    (made,) = decode([log(tmp_path / "old", nameless) / "version-2"])
    assert isinstance(made, TopicCreated) and made.topic_id == ""


def test_only_what_a_majority_of_the_servers_logged_counts(tmp_path: Path) -> None:
    servers = [log(tmp_path / str(n), TRANSACTIONS[:count]) for n, count in enumerate((8, 6, 6))]
    records = list(decode([server / "version-2" for server in servers]))
    assert max(record.offset for record in records) == 6


def test_a_server_that_was_sent_a_snapshot_lacks_nothing_that_another_has(tmp_path: Path) -> None:
    whole = log(tmp_path / "a", TRANSACTIONS)
    late = log(tmp_path / "b", TRANSACTIONS)
    data = (late / "version-2" / "log.1").read_bytes()
    cut = data.index(struct.pack(">qi", 0xB, 0)) - 12
    (late / "version-2" / "log.1").write_bytes(data[:16] + data[cut:])
    assert len(list(decode([late / "version-2", whole / "version-2"]))) == 7


def test_a_torn_entry_ends_a_log(tmp_path: Path) -> None:
    server = log(tmp_path / "zk", TRANSACTIONS, tail=b"")
    file = server / "version-2" / "log.1"
    file.write_bytes(file.read_bytes()[:-3])
    assert len(list(decode([server / "version-2"]))) == 7


def test_another_file_is_told_of(tmp_path: Path) -> None:
    server = log(tmp_path / "zk", TRANSACTIONS)
    (server / "version-2" / "log.1").write_bytes(b"something else altogether")
    with pytest.raises(NotDecoded, match=r"no log of ZooKeeper"):
        list(decode([server / "version-2"]))
    assert "no log of ZooKeeper" in write_metadata_log(ZOOKEEPER, [server], CaseDir(tmp_path / "run"))


def test_no_log_at_all_is_told_of(tmp_path: Path) -> None:
    assert write_metadata_log(ZOOKEEPER, [tmp_path], CaseDir(tmp_path / "run")) == "there is no metadata log"
