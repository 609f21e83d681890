"""Context of a window: rows of earlier windows that the audit passes need in addition to the window's own rows.

| what is checked | rows of earlier windows |
|---|---|
| order, duplicates | `context`: each producer's highest records (`highest_of`), and first copies (`first_copies`) |
| surfaced and resurrected records | attempts that were not acknowledged (`surfaced`) |
| records that a live reader skipped | the last read of each reader (`last_reads`), compared with `next_reads` |
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ackproof.ledgers.lookup import Identities, NumberRuns
from ackproof.ledgers.rows import (
    PRODUCED,
    Array,
    Bools,
    Ints,
    Rows,
    Schema,
    concat_rows,
    constant_column,
    distinct_values,
    group_starts,
)
from ackproof.rundir.outcome import Outcome

HIGHEST: Schema = {"producer": "i4", "seq": "i8", "offset": "i8", "acked": "?"}
_BEFORE_ALL = -2
"""Highest artificial offset of a first copy; further ones count down from it. (-1 means an unknown offset.)
"""


def surfaced(unsaid: Mapping[tuple[int, int], NumberRuns], read: Rows, which: Bools) -> tuple[Bools, Rows]:
    """Return a mask of the records of `read` that belong to unacknowledged attempts of earlier windows, and these
    attempts as produced rows.

    `unsaid`: seqs of the unacknowledged attempts, by (producer, outcome). `which`: mask of the records to check; the
    result is False for all others.
    """
    found = np.zeros(len(read), dtype=np.bool_)
    found_attempts: list[Rows] = []
    for (producer, outcome), runs in unsaid.items():
        mine = which & (read["producer"] == producer)
        mine[mine] = runs.has(read.ints("seq")[mine])
        found |= mine
        seqs = distinct_values(read.ints("seq")[mine])
        found_attempts.append(
            _attempts_of(np.full(len(seqs), producer), seqs, outcome, np.full(len(seqs), -1))
        )
    return found, concat_rows(found_attempts, PRODUCED)


def _attempts_of(producer: Ints, seq: Ints, outcome: Ints | int, offset: Ints) -> Rows:
    """Return attempts as produced rows. Times and transactions are constants, because the checks of order and
    duplicates do not read them. The arrays have one element per attempt; a single `outcome` is that of all."""
    count = len(seq)
    columns: dict[str, Array] = {
        "producer": producer.astype(np.int32),
        "seq": seq,
        "outcome": np.broadcast_to(np.asarray(outcome, np.int8), (count,)),
        "offset": offset,
        "at_ns": constant_column(0, "i8", count),
        "latency_ns": constant_column(-1, "i8", count),
        "txn": constant_column(-1, "i8", count),
        "sent_ns": constant_column(0, "i8", count),
    }
    return Rows(columns, count)


def first_copies(read: Rows) -> Rows:
    """Return one row (columns of `HIGHEST`) for each distinct record of `read`. These are records that this window
    found, and that an earlier window had found too.

    A row stands for the copy in the earlier window, whose offset is no longer known. It gets an artificial offset below
    all others, so that the copy in this window counts as the duplicate."""
    rows = read.sorted_by("producer", "seq")
    rows = rows.take(group_starts([rows["producer"], rows["seq"]]))
    count = len(rows)
    columns = {
        "producer": rows["producer"],
        "seq": rows["seq"],
        "offset": np.arange(_BEFORE_ALL - count + 1, _BEFORE_ALL + 1, dtype=np.int64),
        "acked": np.ones(count, dtype=np.bool_),
    }
    return Rows(columns, count)


def context(highest: Rows, again: Rows) -> tuple[Rows, Rows]:
    """Return rows of earlier windows with which this window's checks of order and duplicates compare: produced rows,
    and rows as a final read has them.

    `highest`: each producer's records with the highest seq (`highest_of`). `again`: first copies of records that were
    found again (`first_copies`). Where both have a row about the same record, that of `again` is used."""
    known = Identities(again["producer"], again.ints("seq"))
    highest = highest.take(known.find(highest["producer"], highest.ints("seq")) < 0)
    rows = concat_rows([highest, again], HIGHEST)
    count = len(rows)
    offset = rows.ints("offset")
    outcome = np.where(rows.flags("acked"), Outcome.ACKED, Outcome.INDETERMINATE)
    acked_at = np.where(rows.flags("acked") & (offset >= 0), offset, -1)
    produced = _attempts_of(rows.ints("producer"), rows.ints("seq"), outcome, acked_at)
    read = {
        "reader": constant_column(-1, "i4", count),
        "assignment": np.arange(count, dtype=np.int32),
        "read_seq": constant_column(0, "i8", count),
        "offset": offset,
        "leader_epoch": constant_column(-1, "i4", count),
        "producer": rows["producer"],
        "seq": rows["seq"],
        "intact": constant_column(True, "?", count),
        "astray": constant_column(False, "?", count),
        "timestamp_ms": constant_column(-1, "i8", count),
    }
    return produced, Rows(read, count)


def last_reads(live: Rows) -> Rows:
    """Return the last row of each reader: its last read in its newest assignment."""
    rows = live.sorted_by("reader", "assignment", "read_seq")
    starts = group_starts([rows["reader"]])
    ends = np.append(starts[1:], len(rows)) - 1 if len(starts) else starts
    return rows.take(ends)


def next_reads(live: Rows) -> Rows:
    """Return the first read of each reader and assignment in `live`, the reads at offsets after the window. A gap
    between a reader's last read and this one shows skipped records."""
    rows = live.sorted_by("reader", "assignment", "read_seq")
    return rows.take(group_starts([rows["reader"], rows["assignment"]]))


def highest_of(before: Rows, there: Rows, read: Rows) -> Rows:
    """Return two records of each producer, from all records that windows have found in the log so far: the one with the
    highest seq, and the acknowledged one with the highest seq. One row if they are the same.

    The offset of a row is that of the lowest copy. `before`: the result for earlier windows. `there`: attempts whose
    records this window found. `read`: rows that were read back for this window.
    """
    copies = read.take(read.flags("intact")).sorted_by("producer", "seq", "offset")
    copies = copies.take(group_starts([copies["producer"], copies["seq"]]))
    at = Identities(copies["producer"], copies.ints("seq")).find(there["producer"], there.ints("seq"))
    columns = {
        "producer": there["producer"],
        "seq": there["seq"],
        "offset": copies.ints("offset")[at],
        "acked": there["outcome"] == Outcome.ACKED,
    }
    rows = concat_rows([before, Rows(columns, len(there))], HIGHEST)
    kept = []
    for some in (rows, rows.take(rows.flags("acked"))):
        ordered = some.sorted_by("producer", "seq")
        starts = group_starts([ordered["producer"]])
        if len(starts):
            kept.append(ordered.take(np.append(starts[1:], len(ordered)) - 1))
    both = concat_rows(kept, HIGHEST).sorted_by("producer", "seq")
    return both.take(group_starts([both["producer"], both["seq"]]))
