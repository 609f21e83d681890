"""Reads the ledgers in batches of rows: memory grows with the time of a run and with its transactions, not with its
records.

Of the event times in each 10 ms only the first and the last are kept: a gap longer than 10 ms is known to the
nanosecond. Latencies are kept in buckets, each 1/2048 of its power of two wide, so a quantile is known to 0.05 %.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir import storage
from ackproof.rundir.guarantees import taken_back_codes
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts, read_parts
from ackproof.rundir.lifelines import Spans
from ackproof.rundir.outcome import Outcome, ReadPhase, TxnOutcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import ClientLibrary
from ackproof.rundir.schema import TRANSACTIONS

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
BIN_NS: Final = 10_000_000
_ROWS: Final = 1 << 18
_LOOSE: Final = 1 << 16
"""`Stamps` merges its pieces once they have more bins than this."""
_MANTISSA: Final = 11
_LIVE: Final = (int(ReadPhase.LIVE), int(ReadPhase.LIVE_COMMITTED))
_NEVER: Final = np.iinfo(np.int64).max


class Stamps:
    """Times of events, in ns since the run began: of each 10 ms, only the first and the last are kept."""

    def __init__(self) -> None:
        self._loose: list[tuple[Ints, Ints]] = []
        self._count = 0

    def add(self, times: Ints) -> None:
        if len(times):
            self._gather(np.sort(times), None)

    def _gather(self, first: Ints, last: Ints | None) -> None:
        number = first // BIN_NS
        begins = np.flatnonzero(np.diff(number, prepend=number[0] - 1))
        ends = np.append(begins[1:], len(number)) - 1
        until = first[ends] if last is None else np.maximum.reduceat(last, begins)
        self._loose.append((first[begins], until))
        self._count += len(begins)
        if last is None and self._count > _LOOSE:
            _ = self.bins

    @property
    def bins(self) -> tuple[Ints, Ints]:
        """Two arrays of times: of the first and of the last event of each 10 ms that has events, ascending."""
        if len(self._loose) > 1:
            first, last = (np.concatenate(column) for column in zip(*self._loose, strict=True))
            order = np.argsort(first, kind="stable")
            self._loose, self._count = [], 0
            self._gather(first[order], last[order])
        if not self._loose:
            none = np.empty(0, np.int64)
            return none, none
        return self._loose[0]

    @property
    def last(self) -> int | None:
        return int(self.bins[1][-1]) if self._loose else None


@dataclass
class PartitionOperations:
    """Operations on one partition: produce calls, or reads by live readers. Times in ns since the run began.

    `done`: times at which records were acknowledged, or live readers got them. `waiting_ns`: latest time at which a
    never acknowledged attempt was sent, or its outcome reported; -1: there is none. `begun_ns`: send time of the first
    attempt; the greatest int64: there is none. For both, records that the producer itself took back with their
    transaction do not count.

    `last_offset`: highest offset that was acknowledged (in transactions: committed), or that a reader got in the newest
    leader epoch; -1: unknown. `last_epoch`: newest leader epoch of the records that readers got; -1: unknown, -2: no
    record. `nameless`: True if a record was acknowledged without an offset, as with acks=0.
    """

    done: Stamps = field(default_factory=Stamps)
    waiting_ns: int = -1
    begun_ns: int = _NEVER
    last_offset: int = -1
    last_epoch: int = -2
    nameless: bool = False


@dataclass
class FirstOutcomes:
    """First outcomes of the records of one partition that were sent at or after a moment. Times in ns since the run
    began; None: no record had this outcome.

    `refused`: time of the first report of an error, whether the outcome is failed or indeterminate. `acked`: time of
    the first acknowledgement. `accepted`: send time of the first of these records that was ever acknowledged.
    """

    refused: int | None = None
    accepted: int | None = None
    acked: int | None = None


@dataclass
class Tally:
    """Outcomes and latencies of the produce attempts of one partition within some time spans.

    `outcomes`: number of attempts by the ledger's outcome code. `errors`: number of attempts by error code (0: no
    error). `latencies`: number of latencies by bucket of a logarithmic histogram (`_bucket`). `longest_ns`: greatest
    latency; -1: there is none. `at_work`: True if a record was sent or reported within the spans, so that a failure
    would have shown.
    """

    outcomes: Counter[int] = field(default_factory=Counter)
    errors: Counter[int] = field(default_factory=Counter)
    latencies: Counter[int] = field(default_factory=Counter)
    longest_ns: int = -1
    at_work: bool = False

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.errors += other.errors
        self.latencies += other.latencies
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        self.at_work |= other.at_work

    def quantile(self, share: float) -> tuple[float, float] | None:
        """Return two bounds, in ns, of the quantile at `share` (0 … 1) of the latencies; None if there are
        none.
        """
        count = sum(self.latencies.values())
        if not count:
            return None
        wanted = max(1, math.ceil(round(share * count, 9)))  # 0.07 of 100 are 7, not 8
        for bucket in sorted(self.latencies):
            wanted -= self.latencies[bucket]
            if wanted <= 0:
                return _edges(bucket)
        raise AssertionError("the counts of all buckets are their sum")


class Ledgers:
    """Operations in the produced and the consumed ledger of a run, read at the first use of each method or property.
    Raises OSError or ArrowException if a part cannot be read."""

    def __init__(self, run: CaseDir) -> None:
        self._run = run
        self._tallies: dict[Spans, dict[TopicPartition, Tally]] = {}
        self._since: dict[int, dict[TopicPartition, FirstOutcomes]] = {}

    @cached_property
    def produced(self) -> dict[TopicPartition, PartitionOperations]:
        """Operations of producers, by partition; partitions to which nothing was sent are missing."""
        found: dict[TopicPartition, PartitionOperations] = defaultdict(PartitionOperations)
        columns = ["topic", "partition", "outcome", "error", "offset"]
        columns += ["sent_ns", "done_ns", "producer", "txn"]
        for (place, rows), library in _by_library(self._run.produced, columns):
            one, acked = found[place], rows["outcome"] == int(Outcome.ACKED)
            one.done.add(rows["done_ns"][acked])
            kept = rows["offset"][acked & self._committed(rows)]
            one.last_offset = max(one.last_offset, int(kept.max(initial=-1)))
            one.nameless |= bool((kept < 0).any())
            waited = ~acked & ~np.isin(rows["error"], taken_back_codes(library))
            one.begun_ns = min(one.begun_ns, int(rows["sent_ns"].min(initial=_NEVER, where=acked | waited)))
            if waited.any():
                latest = np.maximum(rows["sent_ns"], rows["done_ns"])[waited]
                one.waiting_ns = max(one.waiting_ns, int(latest.max()))
        return dict(found)

    def _committed(self, rows: dict[str, Ints]) -> Bools:
        """Return a mask: True for each row that belongs to no transaction, or to a committed one."""
        own: Bools = rows["txn"] < 0
        if not own.all():
            own |= np.isin(_transaction(rows["producer"], rows["txn"]), self._commits)
        return own

    @cached_property
    def _commits(self) -> Ints:
        told = read_parts(self._run.transactions, TRANSACTIONS)
        told = told.filter(pc.equal(told["outcome"], int(TxnOutcome.COMMITTED)))
        return _transaction(*(told[name].to_numpy().astype(np.int64) for name in ("producer", "txn")))

    @cached_property
    def read(self) -> dict[TopicPartition, PartitionOperations]:
        """Reads of live readers, by partition; partitions without any read are missing."""
        found: dict[TopicPartition, PartitionOperations] = defaultdict(PartitionOperations)
        for place, rows in _by_place(
            self._run.consumed, ["topic", "partition", "phase", "offset", "leader_epoch", "read_ns"]
        ):
            live = np.isin(rows["phase"], _LIVE)
            if live.any():
                one = found[place]
                one.done.add(rows["read_ns"][live])
                epoch = int(rows["leader_epoch"][live].max())
                newest = int(rows["offset"][live & (rows["leader_epoch"] == epoch)].max())
                one.last_epoch, one.last_offset = max((one.last_epoch, one.last_offset), (epoch, newest))
        return dict(found)

    def since(self, t_ns: int) -> dict[TopicPartition, FirstOutcomes]:
        if t_ns not in self._since:
            found: dict[TopicPartition, FirstOutcomes] = defaultdict(FirstOutcomes)
            for place, rows in _by_place(
                self._run.produced, ["topic", "partition", "outcome", "sent_ns", "done_ns"]
            ):
                after, acked = rows["sent_ns"] >= t_ns, rows["outcome"] == int(Outcome.ACKED)
                told = rows["done_ns"] >= 0
                one = found[place]
                one.refused = _first(one.refused, rows["done_ns"][after & ~acked & told])
                one.accepted = _first(one.accepted, rows["sent_ns"][after & acked])
                one.acked = _first(one.acked, rows["done_ns"][after & acked])
            self._since[t_ns] = dict(found)
        return self._since[t_ns]

    def tally(self, spans: Spans) -> dict[TopicPartition, Tally]:
        """Return counts of the attempts of each partition whose delivery report lies within `spans` (begin, end in ns).
        An attempt without a report counts at its send time. Partitions to which nothing was sent, and of which nothing
        was reported, within `spans` are missing."""
        if spans not in self._tallies:
            found: dict[TopicPartition, Tally] = defaultdict(Tally)
            columns = ["topic", "partition", "outcome", "error", "sent_ns", "done_ns"]
            for place, rows in _by_place(self._run.produced, columns):
                at = np.where(rows["done_ns"] >= 0, rows["done_ns"], rows["sent_ns"])
                inside = _inside(at, spans)
                if inside.any():
                    _count(found[place], {name: column[inside] for name, column in rows.items()})
                if (inside | _inside(rows["sent_ns"], spans)).any():
                    found[place].at_work = True
            self._tallies[spans] = dict(found)
        return self._tallies[spans]

    def reads(self, spans: Spans) -> Counter[TopicPartition]:
        found: Counter[TopicPartition] = Counter()
        for place, rows in _by_place(self._run.consumed, ["topic", "partition", "phase", "read_ns"]):
            found[place] += int((np.isin(rows["phase"], _LIVE) & _inside(rows["read_ns"], spans)).sum())
        return found


def live_reads(folder: Path, spans: Spans) -> Iterator[tuple[TopicPartition, Ints]]:
    """Yield (partition, read times in ns) for the records that a live reader got within `spans`.

    `folder`: the reader's folder in the ledger. A partition is yielded several times, also with no times. Raises
    OSError or ArrowException if a part cannot be read.
    """
    for place, rows in _by_place(folder, ["topic", "partition", "phase", "read_ns"]):
        yield place, rows["read_ns"][np.isin(rows["phase"], _LIVE) & _inside(rows["read_ns"], spans)]


def _transaction(producer: Ints, txn: Ints) -> Ints:
    return (producer << 40) + np.maximum(txn, 0)


def _count(tally: Tally, rows: dict[str, Ints]) -> None:
    for column, counter in (("outcome", tally.outcomes), ("error", tally.errors)):
        values, counts = np.unique(rows[column], return_counts=True)
        counter.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    acked = rows["outcome"] == int(Outcome.ACKED)
    if acked.any():
        latency = np.maximum(rows["done_ns"][acked] - rows["sent_ns"][acked], 0)
        tally.longest_ns = max(tally.longest_ns, int(latency.max()))
        buckets, counts = np.unique(_bucket(latency), return_counts=True)
        tally.latencies.update(dict(zip(buckets.tolist(), counts.tolist(), strict=True)))


def _bucket(latency: Ints) -> Ints:
    """Return the bucket of each latency: the exponent and the first 11 bits (`_MANTISSA`) of the fraction of its IEEE
    754 number."""
    numbers: Ints = latency.astype(np.float64).view(np.int64) >> (52 - _MANTISSA)
    return numbers


def _edges(bucket: int) -> tuple[float, float]:
    """Return the least and the greatest integer latency, in ns, of a bucket."""
    low, above = np.array([bucket, bucket + 1], np.int64) << (52 - _MANTISSA)
    first, behind = (math.ceil(float(np.int64(one).view(np.float64))) for one in (low, above))
    return float(first), float(max(first, behind - 1))


def _first(known: int | None, times: Ints) -> int | None:
    if not len(times):
        return known
    return int(times.min()) if known is None else min(known, int(times.min()))


def _inside(times: Ints, spans: Spans) -> Bools:
    found = np.zeros(len(times), np.bool_)
    for begin, end in spans:
        found |= (times >= begin) & (times < end)
    return found


def _by_place(folder: Path, columns: Sequence[str]) -> Iterator[tuple[TopicPartition, dict[str, Ints]]]:
    """Yield (partition, columns by name) for batches of rows of a ledger; a partition comes many times."""
    yield from (found for found, _ in _by_library(folder, columns))


def _by_library(
    folder: Path, columns: Sequence[str]
) -> Iterator[tuple[tuple[TopicPartition, dict[str, Ints]], str]]:
    """Yield ((partition, columns by name), client library) for batches of rows of a ledger. The library is the one that
    the rows' part names; '' if it names none."""
    for path in parts(folder):
        with storage.open_parquet(path) as file:
            library = ClientLibrary.read(file.metadata)
            for batch in file.iter_batches(_ROWS, columns=list(columns)):
                for found in _split(batch):
                    yield found, library.name if library else ""


def _split(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, dict[str, Ints]]]:
    if not len(batch):
        return
    topics = pc.dictionary_encode(batch["topic"])
    names = topics.dictionary.to_pylist()
    partition = batch["partition"].to_numpy(zero_copy_only=False).astype(np.int64)
    code = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) * (1 << 32) + partition
    rows = {
        name: batch[name].to_numpy(zero_copy_only=False).astype(np.int64)
        for name in batch.schema.names
        if name not in ("topic", "partition")
    }
    there = np.unique(code)
    for one in there.tolist():
        place = TopicPartition(names[one >> 32], one & 0xFFFFFFFF)
        if len(there) == 1:
            yield place, rows
        else:
            mine = code == one
            yield place, {name: column[mine] for name, column in rows.items()}
