"""Tests of keyed records and tombstones: what a producer sends, and that a reader identifies it."""

from __future__ import annotations

import numpy as np
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from ackproof.observe.replica_logs import BatchContents
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.payload import HEADER, Keys, encoder


def test_tombstones_are_known_by_their_header(kafka, load) -> None:
    load = load(kafka, topics={"orders": 2}, rate="500/s", live=1, keys=3, tombstone_every=2)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 50 and load.workload.read() >= 50, "reads")
    load.workload.stop()
    produced = {row["seq"]: row for row in load.produced().to_pylist()}
    assert {row["outcome"] for row in produced.values()} == {Outcome.ACKED}
    reads = load.consumed().to_pylist()
    assert sorted(row["seq"] for row in reads) == sorted(produced)
    for row in reads:
        source = produced[row["seq"]]
        assert (row["producer"], row["intact"]) == (0, True)
        assert [row[name] for name in ("topic", "partition", "offset")] == [
            source[name] for name in ("topic", "partition", "offset")
        ]
    (listed,) = [client for client in load.workload.clients if client.kind == "producer"]
    assert (listed.keys, listed.tombstone_every) == (3, 2)


def test_every_nth_record_of_a_key_is_a_tombstone(kafka, load) -> None:
    load = load(kafka, topics={"orders": 1}, rate="500/s", keys=3, tombstone_every=2)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 24, "acks")
    load.workload.stop()
    client = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "t"})
    client.assign([ClientPartition("orders", 0, 0)])
    found = client.consume(12, 10)
    client.close()
    assert [message.key() for message in found] == [b"0-%d" % (n % 3) for n in range(12)]
    assert [message.value() is None for message in found] == [n // 3 % 2 == 1 for n in range(12)]
    assert all((message.value() is None) == bool(message.headers()) for message in found)
    assert {name for message in found for name, _ in message.headers() or ()} == {HEADER}


def test_numbers_and_arrays_of_them_are_deleted_alike() -> None:
    for keys in (Keys(3), Keys(3, 2), Keys(1, 5)):
        together = keys.deletes(np.arange(30, dtype=np.int64))
        assert together.tolist() == [bool(keys.deletes(seq)) for seq in range(30)]
        assert together.any() == (keys.tombstone_every > 0)


def test_a_keyed_record_is_found_in_a_batch() -> None:
    """In an encoded batch a record's key comes before its value. The value is recognized by its first bytes."""
    run = "00" * 8
    value = encoder(run, 7, "orders", 0, 100)(5)
    known = BatchContents(run, ["orders"])._record
    for key in (
        b"\x01",
        b"\x06" + Keys(3).record_key(7, 5),
        b"\x1a" + Keys(10**6).record_key(123456, 999_999),
    ):
        body = b"\x00\x02\x04" + key + b"\xc8\x01" + value + b"\x00"
        assert [match.end() for match in known.finditer(body)] == [3 + len(key)]
