"""Tests of decoding the KRaft metadata log, from records that are encoded here field by field. tests/cluster decodes a
real log."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

import pytest

from ackproof.cluster.metadata import write_metadata_log
from ackproof.cluster.metadata.kraft_log import FOLDER, MetadataLog
from ackproof.cluster.metadata.protocol import NotDecoded, committed
from ackproof.experiment.spec import ClusterSpec
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.metadata import (
    MetadataRecord,
    read_metadata,
    write_metadata,
)
from broker_files import batch

TOPIC = uuid.UUID("0f0e0d0c-0b0a-0908-0706-050403020100")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _text(text: str | None) -> bytes:
    return _varint(0) if text is None else _varint(len(text.encode()) + 1) + text.encode()


def _nodes(*nodes: int) -> bytes:
    return _varint(len(nodes) + 1) + b"".join(struct.pack(">i", node) for node in nodes)


def _tags(**tags: bytes) -> bytes:
    numbered = {int(name[1:]): value for name, value in tags.items()}
    return _varint(len(numbered)) + b"".join(_varint(n) + _varint(len(v)) + v for n, v in numbered.items())


def _frame(api_key: int, version: int, *parts: bytes) -> bytes:
    return _varint(1) + _varint(api_key) + _varint(version) + b"".join(parts)


TOPIC_RECORD = _frame(2, 0, _text("orders"), TOPIC.bytes, _tags())
PARTITION = _frame(
    3,
    2,
    struct.pack(">i", 4),
    TOPIC.bytes,
    _nodes(1, 2, 3),
    _nodes(1, 2),
    _nodes(),
    _nodes(),
    struct.pack(">iii", 1, 5, 9),
    _varint(4) + bytes(48),
    _tags(t1=_nodes(3), t2=_nodes(2)),
)
SHRINK = _frame(
    5, 2, struct.pack(">i", 4), TOPIC.bytes, _tags(t0=_nodes(2), t1=struct.pack(">i", 2), t6=_nodes(1, 3))
)
LEADERLESS = _frame(5, 0, struct.pack(">i", 4), TOPIC.bytes, _tags(t1=struct.pack(">i", -1)))
UNCLEAN = _frame(
    5, 0, struct.pack(">i", 4), TOPIC.bytes, _tags(t0=_nodes(3), t1=struct.pack(">i", 3), t5=b"\x01")
)
REGISTER = _frame(
    0,
    3,
    struct.pack(">i", 2),
    b"\0",
    TOPIC.bytes,
    struct.pack(">q", 77),
    _varint(2) + _text("EXTERNAL") + _text("host") + struct.pack(">Hh", 9092, 0) + _tags(),
    _varint(2) + _text("metadata.version") + struct.pack(">hh", 1, 21) + _tags(),
    _text("left"),
    b"\x01\x00",
    _tags(),
)
FENCED = _frame(17, 0, struct.pack(">iq", 2, 77), _tags(t0=b"\x01"))
UNFENCED = _frame(17, 0, struct.pack(">iq", 2, 77), _tags(t0=b"\xff"))
LEAVING = _frame(17, 0, struct.pack(">iq", 2, 77), _tags(t1=b"\x01"))
CONFIG = _frame(4, 0, b"\x02", _text("orders"), _text("min.insync.replicas"), _text("2"), _tags())
FEATURE = _frame(12, 0, _text("metadata.version"), struct.pack(">h", 25), _tags())
REMOVE = _frame(9, 0, TOPIC.bytes, _tags())
NO_OP = _frame(20, 0, _tags())


def _decode(*values: bytes) -> list[MetadataRecord]:
    log = MetadataLog()
    return [
        log.decode(value, {"offset": number, "epoch": 1, "timestamp_ms": 1000 + number})
        for number, value in enumerate(values)
    ]


def test_a_partition_from_its_creation_on() -> None:
    _, made, shrunk, leaderless, unclean = _decode(TOPIC_RECORD, PARTITION, SHRINK, LEADERLESS, UNCLEAN)
    assert (made.topic, made.partition) == ("orders", 4)
    assert (made.leader, made.leader_epoch, made.partition_epoch) == (1, 5, 9)
    assert (made.replicas, made.isr, made.elr, made.last_known_elr) == ((1, 2, 3), (1, 2), (3,), (2,))
    assert (shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch, shrunk.isr) == (2, 6, 10, (2,))
    assert (shrunk.elr, shrunk.last_known_elr, shrunk.replicas) == ((1, 3), (2,), (1, 2, 3))
    assert shrunk.changed == ("isr", "leader", "elr")
    assert (leaderless.leader, leaderless.leader_epoch, leaderless.isr) == (-1, 7, (2,))
    assert (unclean.leader, unclean.leader_epoch, unclean.isr, unclean.recovering) == (3, 8, (3,), True)
    assert unclean.timestamp_ms == 1004


def test_brokers_configs_features_and_the_rest() -> None:
    said = [
        record.model_dump(exclude={"offset", "epoch", "timestamp_ms", "incarnation"})
        for record in _decode(REGISTER, FENCED, UNFENCED, LEAVING, CONFIG, FEATURE, NO_OP)
    ]
    broker = {"node": 2, "broker_epoch": 77}
    assert said == [
        {
            "kind": "broker-registered",
            **broker,
            "fenced": True,
            "controlled_shutdown": False,
            "log_dirs": (),
            "rack": "left",
        },
        {"kind": "broker", **broker, "fenced": True, "controlled_shutdown": None, "log_dirs": None},
        {"kind": "broker", **broker, "fenced": False, "controlled_shutdown": None, "log_dirs": None},
        {"kind": "broker", **broker, "fenced": None, "controlled_shutdown": True, "log_dirs": None},
        {"kind": "config", "resource": 2, "name": "orders", "key": "min.insync.replicas", "value": "2"},
        {"kind": "feature", "feature": "metadata.version", "level": 25},
        {"kind": "other", "api_key": 20},
    ]


def test_log_dirs_of_brokers_and_of_replicas() -> None:
    """KIP-858: records of brokers name the log dirs that work, records of partitions the log dir of each replica."""
    one, two = uuid.UUID(int=11).bytes, uuid.UUID(int=12).bytes
    lost = _frame(17, 2, struct.pack(">iq", 2, 77), _tags(t2=_varint(2) + two))
    moved = _frame(5, 2, struct.pack(">i", 4), TOPIC.bytes, _tags(t8=_varint(4) + one + two + two))
    *_, changed = _decode(TOPIC_RECORD, PARTITION, moved)
    assert changed.directories == tuple(str(uuid.UUID(bytes=id_)) for id_ in (one, two, two))
    assert changed.changed == ("directories",)
    (decided,) = _decode(lost)
    assert (decided.fenced, decided.log_dirs) == (None, (str(uuid.UUID(int=12)),))


@pytest.mark.parametrize(("topic", "cleared"), [("orders", True), ("", True), ("others", False)])
def test_eligible_replicas_are_forgotten_with_a_record_of_their_own(topic: str, cleared: bool) -> None:
    """ClearElrRecord raises the partition epoch of each partition that had an ELR."""
    record = _frame(28, 0, _text(topic), _tags())
    _, made, _, after = _decode(
        TOPIC_RECORD, PARTITION, record, _frame(5, 0, struct.pack(">i", 4), TOPIC.bytes, _tags())
    )
    assert made.elr == (3,)
    assert (after.elr, after.last_known_elr) == (((), ()) if cleared else ((3,), (2,)))
    assert after.partition_epoch == made.partition_epoch + 1 + cleared


def test_a_topic_that_is_gone_takes_its_partitions_along() -> None:
    kinds = [record.kind for record in _decode(TOPIC_RECORD, PARTITION, REMOVE)]
    assert kinds == ["topic", "partition", "topic-removed"]
    with pytest.raises(NotDecoded, match="offset 3"):
        _decode(TOPIC_RECORD, PARTITION, REMOVE, SHRINK)


@pytest.mark.parametrize("value", [PARTITION, SHRINK, REGISTER, FENCED, CONFIG, FEATURE])
def test_a_record_that_is_cut_anywhere_is_refused(value: bytes) -> None:
    for length in range(len(value)):
        with pytest.raises(NotDecoded):
            _decode(TOPIC_RECORD, PARTITION, value[:length])


def test_fields_that_nobody_knows_are_not_passed_over() -> None:
    with pytest.raises(NotDecoded, match="1 bytes behind"):
        _decode(FEATURE + b"\0")


def test_another_frame_is_refused() -> None:
    with pytest.raises(NotDecoded, match="frame version 2"):
        _decode(b"\x02" + NO_OP[1:])


def test_it_is_written_and_read_back(tmp_path: Path) -> None:
    records = _decode(TOPIC_RECORD, PARTITION, SHRINK, REGISTER, FENCED, CONFIG, FEATURE, NO_OP, REMOVE)
    write_metadata(tmp_path / "metadata.jsonl", records)
    assert list(read_metadata(tmp_path / "metadata.jsonl")) == records


@pytest.mark.parametrize(
    ("ends", "bound"), [([], 0), ([7], 7), ([9, 5], 5), ([9, 5, 7], 7), ([1, 2, 3, 4, 5], 3), ([4, 4, 9], 4)]
)
def test_what_a_majority_of_voters_has(ends: list[int], bound: int) -> None:
    assert committed(ends) == bound


def test_a_metadata_log_with_a_damaged_batch_is_told_of(tmp_path: Path) -> None:
    folder = tmp_path / "node" / FOLDER
    folder.mkdir(parents=True)
    whole = batch(0, [TOPIC_RECORD], key=None)
    records = bytes([0x7E]) * (len(whole) - 61)  # a length that reaches beyond the batch
    (folder / f"{0:020d}.log").write_bytes(whole[:61] + records)
    said = write_metadata_log(ClusterSpec(), [tmp_path / "node"], CaseDir(tmp_path / "run"))
    assert said.startswith("the metadata log was not decoded: ")
