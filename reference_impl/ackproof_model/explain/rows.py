"""The acknowledged rows of the ledgers by partition, and which of them the audit found gone, as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir import storage
from ackproof.rundir.anomalies import REMOVED
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import FinalRows, ledger_rows, parts, read_parts
from ackproof.rundir.outcome import Outcome, TxnOutcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS, TRANSACTIONS
from ackproof_model.replay.account import LOSSES, PRESENT

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_SEQ_BITS: Final = 40
_REMOVED: Final = [number for number, anomaly in enumerate(LOSSES) if anomaly in REMOVED]


@dataclass(frozen=True)
class AckedRows:
    """Acknowledged rows of one partition. `found`: index into `LOSSES`, `PRESENT` where the audit found it."""

    producer: Ints
    seq: Ints
    offset: Ints
    sent: Ints
    done: Ints
    found: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def missing(self) -> Bools:
        """Which are gone, and not because a setting or an administrator removed them: that takes no step."""
        gone: Bools = (self.found != PRESENT) & ~np.isin(self.found, _REMOVED)
        return gone

    def take(self, which: Bools | Ints) -> AckedRows:
        """Some of them."""
        return AckedRows(*(column[which] for column in vars(self).values()))


def acked_rows(run: CaseDir) -> Iterator[tuple[TopicPartition, AckedRows]]:
    """Partition by partition. Rows of a transaction whose commit was not acknowledged are left out: see the audit."""
    if not parts(run.produced):
        return
    wanted = ["producer", "seq", "topic", "partition", "offset", "sent_ns", "done_ns", "txn"]
    table = ledger_rows(run.produced, wanted, pc.field("outcome") == int(Outcome.ACKED))
    table = table.filter(pa.array(_committed(run, table)))
    keys, kinds = _findings(run)
    topics = table["topic"].combine_chunks().dictionary_encode()
    code = topics.indices.to_numpy().astype(np.int64) * (1 << 32) + table["partition"].to_numpy()
    order = np.argsort(code, kind="stable")
    names = topics.dictionary.to_pylist()
    numbers = {
        name: table[name].to_numpy().astype(np.int64)[order]
        for name in ("producer", "seq", "offset", "sent_ns", "done_ns")
    }
    code = code[order]
    bounds = [0, *(np.flatnonzero(np.diff(code)) + 1).tolist(), len(code)]
    for begin, stop in pairwise(bounds):
        if begin == stop:
            continue
        mine = {name: column[begin:stop] for name, column in numbers.items()}
        found = _found(identity(mine["producer"], mine["seq"]), keys, kinds)
        place = TopicPartition(names[code[begin] >> 32], int(code[begin] & 0xFFFFFFFF))
        yield (
            place,
            AckedRows(mine["producer"], mine["seq"], mine["offset"], mine["sent_ns"], mine["done_ns"], found),
        )


def identity(producer: Ints, seq: Ints) -> Ints:
    """(producer, seq) as one number."""
    return (producer << _SEQ_BITS) + seq


def _committed(run: CaseDir, table: pa.Table) -> Bools:
    txn = table["txn"].to_numpy().astype(np.int64)
    if not (txn >= 0).any():
        return np.ones(len(txn), np.bool_)
    told = read_parts(run.transactions, TRANSACTIONS)
    told = told.filter(pc.equal(told["outcome"], int(TxnOutcome.COMMITTED)))
    sure = identity(told["producer"].to_numpy().astype(np.int64), told["txn"].to_numpy().astype(np.int64))
    mine = identity(table["producer"].to_numpy().astype(np.int64), np.maximum(txn, 0))
    committed: Bools = (txn < 0) | np.isin(mine, sure)
    return committed


def _findings(run: CaseDir) -> tuple[Ints, npt.NDArray[np.int8]]:
    """Identities that the audit found gone, sorted, with their class."""
    keys, kinds = [], []
    if files := run.finding_parts:
        for number, anomaly in enumerate(LOSSES):
            table = storage.read_rows(files, ["producer", "seq"], pc.field("class") == anomaly, FINDINGS)
            producer = table["producer"].to_numpy().astype(np.int64)
            keys.append(identity(producer, table["seq"].to_numpy().astype(np.int64)))
            kinds.append(np.full(len(producer), number, np.int8))
    if not keys:
        return np.empty(0, np.int64), np.empty(0, np.int8)
    every, classes = np.concatenate(keys), np.concatenate(kinds)
    order = np.argsort(every, kind="stable")
    return every[order], classes[order]


def _found(mine: Ints, keys: Ints, kinds: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    if len(keys) == 0:
        return np.full(len(mine), PRESENT, np.int8)
    at = np.clip(np.searchsorted(keys, mine), 0, len(keys) - 1)
    return np.where(keys[at] == mine, kinds[at], PRESENT).astype(np.int8)


def timestamps(final_rows: FinalRows, place: TopicPartition) -> tuple[Ints, Ints]:
    """Offsets of the final read of a partition, sorted, and the timestamp of the record at each, in ms."""
    table = final_rows.of(place)
    offset = table["offset"].to_numpy().astype(np.int64)
    order = np.argsort(offset, kind="stable")
    return offset[order], table["timestamp_ms"].to_numpy().astype(np.int64)[order]
