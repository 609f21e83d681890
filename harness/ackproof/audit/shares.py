"""Classes that no bucket can decide alone: final rows of identities that their bucket did not produce, identities
produced twice, and transactions.

Each bucket sends the identities that it produced, with a flag (the final read found it there, intact). It also sends
the final rows of identities that it did not produce. Both are cut by a hash of (producer, block of seqs) into shares,
which go through Spark's shuffle at a few bits an identity; a share has everything about its identities. A transaction
spans buckets. Of each transaction a bucket sends two numbers: records that the final read at read_committed has, and
acknowledged records that it lacks. These go by a hash of (producer, block of transactions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ackproof.audit.outputs import NOTHING_DELETED, DeletedRecords, FindingsWriter, Handover
from ackproof.ledgers.directory import Rejected
from ackproof.ledgers.lookup import Identities
from ackproof.ledgers.rows import (
    Array,
    Bools,
    Ints,
    Rows,
    Schema,
    concat_rows,
    distinct_values,
    empty_rows,
    find_repeated,
    group_starts,
    join_places,
    sort_order,
)
from ackproof.ledgers.transactions import TransactionFates, TransactionTable
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import text_array
from ackproof.rundir.outcome import Outcome, TxnOutcome
from ackproof.rundir.partition import TopicPartition

UNMATCHED: Schema = {"producer": "i4", "seq": "i8", "offset": "i8", "intact": "?", "astray": "?"}
TRANSACTION_PARTS: Schema = {
    "producer": "i4",
    "txn": "i8",
    "outcome": "i1",
    "there": "i8",
    "missing": "i8",
    "rank": "i1",
    "seq": "i8",
    "offset": "i8",
}
"""Totals of one transaction in one bucket. `there`: number of its records in the final read at read_committed.
`missing`: number of its acked records that this read lacks, without those that were removed on purpose. `rank`: 0 if
the final read at read_uncommitted has a missing record intact, 1 if it has none of them, 2 if none is missing. `seq`,
`offset`: of the first missing record of this rank."""
_SPARSE: Schema = {"producer": "i4", "seq": "i8", "present": "?"}

_BLOCK_BITS = 16
_BLOCK = 1 << _BLOCK_BITS
_DENSE_FROM = 1024
"""A block with this many identities is sent as bitmaps (8 KiB each), a smaller one as rows."""


@dataclass(frozen=True)
class _Block:
    """Identities (producer, seq) of one producer with seq >> 16 == `number`, as two packed bitmaps over the low 16 bits
    of seq.

    `produced`: the bucket has a produced row of it. `present`: the final read found it in the bucket, intact.
    """

    producer: int
    number: int
    produced: bytes
    present: bytes


@dataclass(frozen=True)
class Share:
    """Message of one bucket (the rows of one partition) to one share, which is the input of one task after Spark's
    shuffle. `blocks`, `sparse`: the identities that the bucket produced, as bitmaps where they are many and else as
    rows. `unmatched`: final rows whose identities the bucket did not produce. `transactions`: totals of transactions in
    the bucket."""

    place: TopicPartition
    blocks: tuple[_Block, ...] = ()
    sparse: Rows = field(default_factory=partial(empty_rows, _SPARSE))
    """Identities in blocks that have too few for a bitmap (`_DENSE_FROM`)."""
    unmatched: Rows = field(default_factory=partial(empty_rows, UNMATCHED))
    transactions: Rows = field(default_factory=partial(empty_rows, TRANSACTION_PARTS))


def cut_shares(message: Handover, count: int) -> Iterator[tuple[int, Share]]:
    """Distribute the rows that a bucket passes on (`message`) over `count` shares. Yields (share number, rows for that
    share), numbers from 0. Rows of one producer and block of seqs, or block of transactions, go to the same share."""
    place, rows = message.place, message.rows
    if message.about == "identities":
        yield from _cut_identities(place, rows, count)
        return
    unmatched = message.about == "unmatched"
    number = _share_of(rows["producer"], rows.ints("seq" if unmatched else "txn") >> _BLOCK_BITS, count)
    for share in distinct_values(number).tolist():
        own = rows.take(np.flatnonzero(number == share))
        yield share, Share(place, unmatched=own) if unmatched else Share(place, transactions=own)


def _cut_identities(place: TopicPartition, rows: Rows, count: int) -> Iterator[tuple[int, Share]]:
    producer, seq, present = rows["producer"], rows.ints("seq"), rows.flags("present")
    block = seq >> _BLOCK_BITS
    starts = group_starts([producer, block])
    ends = np.append(starts[1:], len(seq))
    dense = ends - starts >= _DENSE_FROM
    share_of = _share_of(producer[starts], block[starts], count)
    blocks: list[list[_Block]] = [[] for _ in range(count)]
    for group in np.flatnonzero(dense).tolist():
        low, high = int(starts[group]), int(ends[group])
        inside = seq[low:high] & (_BLOCK - 1)
        blocks[int(share_of[group])].append(
            _Block(int(producer[low]), int(block[low]), _bits(inside), _bits(inside[present[low:high]]))
        )
    thin = np.repeat(~dense, ends - starts)
    sparse_share = np.repeat(share_of, ends - starts)
    for share in range(count):
        which = np.flatnonzero(thin & (sparse_share == share))
        if len(which) or blocks[share]:
            yield share, Share(place, tuple(blocks[share]), rows.take(which))


def _share_of(producer: Array, block: Ints, count: int) -> Ints:
    mixed = producer.astype(np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= block.view(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(count)).astype(np.int64)


def _bits(inside: Ints) -> bytes:
    flags = np.zeros(_BLOCK, dtype=np.bool_)
    flags[inside] = True
    return np.packbits(flags, bitorder="little").tobytes()


class IdentityRegister:
    """All identities of one share of a directory, each with two flags: produced, and present (read intact).
    `resolve_share` looks up final rows in it, to tell phantom from misrouted ones."""

    def __init__(self, given: Sequence[Share]) -> None:
        """Join the identities in `given`, the contributions of all buckets to the share. Raises `Rejected` if an
        identity was produced twice."""
        self._produced: dict[tuple[int, int], Array] = {}
        self._present: dict[tuple[int, int], Array] = {}
        for share in given:
            for block in share.blocks:
                self._add_block(block)
        sparse = concat_rows([share.sparse for share in given], _SPARSE).sorted_by("producer", "seq")
        if self._produced and len(sparse):
            sparse = self._add_to_blocks(sparse)
        producer, seq = sparse["producer"], sparse.ints("seq")
        if (twice := find_repeated(producer, seq)) is not None:
            raise _produced_twice(int(producer[twice]), int(seq[twice]))
        self._sparse = Identities(producer, seq)
        self._sparse_present = sparse.flags("present")

    def _add_block(self, block: _Block) -> None:
        key = (block.producer, block.number)
        produced = np.frombuffer(block.produced, dtype=np.uint8)
        present = np.frombuffer(block.present, dtype=np.uint8)
        if key in self._produced:
            both = self._produced[key] & produced
            if both.any():
                first = int(np.flatnonzero(np.unpackbits(both, bitorder="little"))[0])
                raise _produced_twice(block.producer, (block.number << _BLOCK_BITS) + first)
            self._produced[key] = self._produced[key] | produced
            self._present[key] = self._present[key] | present
        else:
            self._produced[key], self._present[key] = produced, present

    def _add_to_blocks(self, sparse: Rows) -> Rows:
        """Add each sparse identity whose block has a bitmap to this bitmap. Return the other rows. Raises `Rejected` if
        an identity was produced twice."""
        producer, seq, present = sparse["producer"], sparse.ints("seq"), sparse.flags("present")
        block = seq >> _BLOCK_BITS
        starts = group_starts([producer, block])
        ends = np.append(starts[1:], len(seq))
        moved = np.zeros(len(starts), dtype=np.bool_)
        for group, (low, high) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            key = (int(producer[low]), int(block[low]))
            if key in self._produced:
                moved[group] = True
                inside = seq[low:high] & (_BLOCK - 1)
                if (twice := find_repeated(inside)) is not None:
                    raise _produced_twice(key[0], int(seq[low + twice]))
                self._add_block(_Block(*key, _bits(inside), _bits(inside[present[low:high]])))
        return sparse.take(np.flatnonzero(~np.repeat(moved, ends - starts)))

    def find(self, producer: Array, seq: Ints) -> tuple[Bools, Bools]:
        """Return two masks over the identities (`producer[i]`, `seq[i]`): True if it was produced; True if the
        final read got it intact from the partition to which it was produced."""
        at = self._sparse.find(producer, seq)
        produced = at >= 0
        present = np.zeros(len(seq), dtype=np.bool_)
        present[produced] = self._sparse_present[at[produced]]
        if not self._produced:
            return produced, present
        block, inside = seq >> _BLOCK_BITS, seq & (_BLOCK - 1)
        starts = group_starts([producer, block])  # groups of equal neighbours; the rows need not be sorted
        for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(seq)], strict=True):
            key = (int(producer[low]), int(block[low]))
            if key in self._produced:
                byte, bit = inside[low:high] >> 3, inside[low:high] & 7
                produced[low:high] = (self._produced[key][byte] >> bit) & 1 == 1
                present[low:high] = (self._present[key][byte] >> bit) & 1 == 1
        return produced, present


def _produced_twice(producer: int, seq: int) -> Rejected:
    return Rejected(f"producer {producer}, seq {seq} was produced twice")


def resolve_share(
    given: Sequence[Share],
    open_producers: frozenset[int],
    findings: FindingsWriter,
    deleted: DeletedRecords = NOTHING_DELETED,
) -> int:
    """Audit one share of a directory, and add findings of classes phantom, misrouted, duplicate and torn-transaction.
    Return the number of final rows whose identity no ledger has, and whose producer has an incomplete ledger.

    `given`: contributions of all buckets. `open_producers`: producers with an incomplete ledger. Final rows are left
    out if no ledger has their identity, but a deleted window audited its attempt (`deleted`). Several intact copies of
    one identity are duplicates, except one: a copy in the partition where it was produced, else the copy at the lowest
    (topic, partition, offset). Raises `Rejected` if an identity was produced twice, OSError if a file cannot be
    written.
    """
    register = IdentityRegister(given)
    _add_torn([(share.place, share.transactions) for share in given], findings)
    places, place, rows = join_places([(share.place, share.unmatched) for share in given], UNMATCHED)
    if not len(rows):
        return 0
    order = sort_order([rows["producer"], rows["seq"], place, rows["offset"]])
    if order is not None:
        rows, place = rows.take(order), place[order]
    produced, present = register.find(rows["producer"], rows.ints("seq"))
    if deleted.attempts:
        reported = produced | ~deleted.has(rows.ints("producer"), rows.ints("seq"))
        rows, place, produced, present = (
            rows.take(reported),
            place[reported],
            produced[reported],
            present[reported],
        )
    open_ = np.isin(rows["producer"], np.asarray(sorted(open_producers), dtype=np.int64))

    def add(anomaly: Anomaly, which: Ints, detail: str) -> None:
        for number in distinct_values(place[which]).tolist():
            findings.add(places[number], anomaly, rows, which[place[which] == number], detail=detail)

    add(Anomaly.PHANTOM, np.flatnonzero(~produced & ~open_), "never produced")
    add(Anomaly.MISROUTED, np.flatnonzero(produced), "produced to another partition")
    astray = np.flatnonzero(~produced & rows.flags("astray"))
    add(Anomaly.MISROUTED, astray, "its payload names another partition")
    intact = np.flatnonzero(rows.flags("intact"))
    first = np.zeros(len(intact), dtype=np.bool_)
    first[group_starts([rows["producer"][intact], rows["seq"][intact]])] = True
    copies = intact[~first | present[intact]]
    add(Anomaly.DUPLICATE, copies, "another intact copy of the same record")
    return int(np.count_nonzero(~produced & open_))


_FAR = int(np.iinfo(np.int64).max)


class CommitAudit:
    """Compares reads at read_committed in one bucket with the outcome of each record's transaction. The method `fates`
    counts produced rows: `transactional`, those in transactions, and `unlisted`, those of them whose transaction the
    transaction table lacks."""

    def __init__(self, place: TopicPartition, findings: FindingsWriter, table: TransactionTable) -> None:
        self._place = place
        self._findings = findings
        self._table = table
        self.transactional = 0
        self.unlisted = 0

    def fates(self, produced: Rows) -> TransactionFates | None:
        """Return the outcome of each produced row's transaction; None if no row is in a transaction. Adds to
        `transactional` and `unlisted`, so call it only once for a row.

        Raises `Rejected` for a transaction table that cannot be right, `UnreadablePart` for one that cannot be read.
        """
        fates, unlisted = self._table.fates(produced)
        self.unlisted += unlisted
        if fates is not None:
            self.transactional += int(np.count_nonzero(fates.txn >= 0))
        return fates

    def reads(self, reads: Rows, found: Ints, fates: TransactionFates, who: str) -> None:
        """Add findings of classes aborted-read and early-read: reads that no reader at read_committed should get.
        `reads`: rows of readers at read_committed.

        `found`: index of each read's record in `fates`; -1: not produced in this range. `who`: kind of the reader, for
        the text of the findings (`final` or `live`). Raises OSError if the findings cannot be written.
        """
        own = np.flatnonzero(found >= 0)
        of = found[own]
        commit_ns = fates.commit_ns[of]
        early = (commit_ns >= 0) & (reads.ints("read_ns")[own] < commit_ns)
        for anomaly, which, what in (
            (Anomaly.ABORTED_READ, fates.aborted[of], "of a transaction that was aborted"),
            (Anomaly.EARLY_READ, early, "before the commit of its transaction was asked for"),
        ):
            detail = f"returned to a {who} reader at read_committed, {what}"
            self._findings.add(self._place, anomaly, reads, own[which], detail=detail)

    def parts(
        self, produced: Rows, fates: TransactionFates, visible: Bools, removed: Bools, present: Bools
    ) -> Iterator[Handover]:
        """Yield one `Handover` with the totals of each transaction in this range.

        Yields nothing if the range has no transaction, or the run has no final read at read_committed. Masks over
        `produced`: `visible`, records in the final read at read_committed; `removed`, records removed on purpose, which
        do not tear a transaction; `present`, records of which the final read has an intact copy.
        """
        inside = np.flatnonzero(fates.txn >= 0)
        if not self._table.files.committed_read or not len(inside):
            return
        rows = produced.take(inside)
        there = visible[inside]
        missing = (rows["outcome"] == Outcome.ACKED) & ~there & ~removed[inside]
        columns = Rows(
            {
                "producer": rows["producer"],
                "txn": fates.txn[inside],
                "outcome": fates.outcome[inside],
                "there": there.astype(np.int64),
                "missing": missing.astype(np.int64),
                "rank": np.where(missing, ~present[inside], 2).astype(np.int8),
                "seq": np.where(missing, rows["seq"], _FAR),
                "offset": np.where(missing, rows["offset"], -1),
            },
            len(inside),
        )
        yield Handover(self._place, "transactions", _by_transaction(columns)[0])


def _by_transaction(rows: Rows) -> tuple[Rows, Ints]:
    """Add up `there` and `missing` over the rows of each transaction (`TRANSACTION_PARTS`). Return one row per
    transaction, and the index in `rows` of the row from which its other columns come: the lowest rank, then the lowest
    seq."""
    order = sort_order([rows["producer"], rows["txn"], rows["rank"], rows["seq"]])
    if order is None:
        order = np.arange(len(rows), dtype=np.int64)
    rows = rows.take(order)
    starts = group_starts([rows["producer"], rows["txn"]])
    summed = {name: np.add.reduceat(rows.ints(name), starts) for name in ("there", "missing")}
    return Rows({**rows.take(starts).columns, **summed}, len(starts)), order[starts]


def _add_torn(given: Sequence[tuple[TopicPartition, Rows]], findings: FindingsWriter) -> None:
    """Add one finding for each torn transaction. `given`: totals of transactions in each bucket (`TRANSACTION_PARTS`).

    A transaction is torn if the final read at read_committed lacks acked records of it. It must also be known as
    committed, or that read must have another record of it. The finding names the first missing record that the final
    read at read_uncommitted has; if that read has none of them either, the first missing record.
    """
    places, place, rows = join_places(given, TRANSACTION_PARTS)
    if not len(rows):
        return
    rows, first = _by_transaction(rows)
    wrong = np.flatnonzero(
        (rows["missing"] > 0) & ((rows["there"] > 0) | (rows["outcome"] == TxnOutcome.COMMITTED))
    )
    at = place[first[wrong]]
    for number in distinct_values(at).tolist():
        here = rows.take(wrong[at == number])
        columns = (here[name].tolist() for name in ("txn", "outcome", "there", "missing"))
        details = [
            f"transaction {txn}, {TxnOutcome(outcome).name.lower()}: at read_committed {there} of its records are "
            f"there, {missing} acknowledged ones are not"
            for txn, outcome, there, missing in zip(*columns, strict=True)
        ]
        findings.add(places[number], Anomaly.TORN_TRANSACTION, here, detail=text_array(details))
