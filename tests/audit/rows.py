"""Rows of ledgers in few words: one topic `t`, one partition 0, all well unless said otherwise."""

from __future__ import annotations

from itertools import count

from .reference import Produced, Read, Transaction


def sent(seq, offset=None, *, producer=0, topic="t", partition=0, outcome=0, txn=-1):
    """A produce attempt, acked at the offset that equals its seq unless said otherwise."""
    at = seq if offset is None else offset
    return Produced(
        producer, seq, topic, partition, outcome, at,
        sent_ns=seq % 999 * 1000, done_ns=seq % 999 * 1000 + 500, txn=txn,
    )  # fmt: skip


def transaction(txn, outcome, commit_ns=0, *, producer=0):
    """The outcome of a transaction."""
    return Transaction(producer, txn, outcome, commit_ns)


_numbers = count()


def read(
    seq,
    offset=None,
    *,
    producer=0,
    topic="t",
    partition=0,
    reader=9,
    phase=1,
    assignment=0,
    read_seq=None,
    epoch=0,
    origin=None,
    intact=True,
    read_ns=0,
    timestamp_ms=0,
):
    """A read of a record, at the offset that equals its seq unless said otherwise; read_seq rises from call to call."""
    origin_topic, origin_partition = (topic, partition) if origin is None else origin
    return Read(
        reader, phase, assignment, next(_numbers) if read_seq is None else read_seq, topic, partition,
        seq if offset is None else offset, epoch, producer, seq, origin_topic, origin_partition, intact, read_ns,
        timestamp_ms,
    )  # fmt: skip


def live(seq, offset=None, **other):
    """A live read, by reader 1."""
    return read(seq, offset, **{"phase": 0, "reader": 1, **other})


def committed(seq, offset=None, **other):
    """A read by the final reader at read_committed."""
    return read(seq, offset, **{"phase": 3, "reader": 8, **other})


def committed_live(seq, offset=None, **other):
    """A live read at read_committed."""
    return read(seq, offset, **{"phase": 2, "reader": 2, **other})


def undecodable(offset, **other):
    """A read of something that says nothing of itself."""
    return read(-1, offset, **{"producer": -1, "origin": ("", -1), "intact": False, **other})
