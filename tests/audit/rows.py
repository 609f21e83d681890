"""Functions that build ledger rows. Defaults: topic `t`, partition 0, producer 0, acknowledged, intact."""

from __future__ import annotations

from itertools import count

from .reference import Produced, Read, Transaction


def sent(seq, offset=None, *, producer=0, topic="t", partition=0, outcome=0, txn=-1):
    """Return a produced row. Default: acknowledged at the offset that equals `seq`."""
    at = seq if offset is None else offset
    return Produced(
        producer, seq, topic, partition, outcome, at,
        sent_ns=seq % 999 * 1000, done_ns=seq % 999 * 1000 + 500, txn=txn,
    )  # fmt: skip


def transaction(txn, outcome, commit_ns=0, *, producer=0):
    """Return a row of the table of transactions. `commit_ns`: when the commit was requested, -1 if never."""
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
    """Return a consumed row. Default: a final read at the offset that equals `seq`, with the next `read_seq`. `origin`:
    topic and partition that the record names as its own; None: those where it was read."""
    origin_topic, origin_partition = (topic, partition) if origin is None else origin
    return Read(
        reader, phase, assignment, next(_numbers) if read_seq is None else read_seq, topic, partition,
        seq if offset is None else offset, epoch, producer, seq, origin_topic, origin_partition, intact, read_ns,
        timestamp_ms,
    )  # fmt: skip


def live(seq, offset=None, **other):
    """Return a live read by reader 1. `other` overrides arguments of `read`."""
    return read(seq, offset, **{"phase": 0, "reader": 1, **other})


def committed(seq, offset=None, **other):
    """Return a read by the final reader at read_committed (reader 8). `other` overrides arguments of `read`."""
    return read(seq, offset, **{"phase": 3, "reader": 8, **other})


def committed_live(seq, offset=None, **other):
    """Return a live read at read_committed by reader 2. `other` overrides arguments of `read`."""
    return read(seq, offset, **{"phase": 2, "reader": 2, **other})


def undecodable(offset, **other):
    """Return a final read of a record without producer, seq and origin, not intact."""
    return read(-1, offset, **{"producer": -1, "origin": ("", -1), "intact": False, **other})
