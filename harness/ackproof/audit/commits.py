"""The classes of transactions: aborted-read, early-read, torn-transaction. A step of the pass over identities.

What was handed over at read_committed is held against what became of each record's transaction. A transaction spans
buckets: each tells how many of its records are there and how many acknowledged ones are not, and what they
come to together is found out where all of one transaction meet (`torn`), in the shuffle by identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ackproof.audit.findings_file import FindingsWriter
from ackproof.audit.handed import Handed
from ackproof.ledgers.rows import Bools, Ints, Rows, Schema, distinct, group_starts, order_of, together
from ackproof.ledgers.transactions import Fates, Table
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.arrow import texts
from ackproof.rundir.outcome import Outcome, TxnOutcome
from ackproof.rundir.partition import TopicPartition

PARTS: Schema = {
    "producer": "i4",
    "txn": "i8",
    "outcome": "i1",
    "there": "i8",
    "missing": "i8",
    "seq": "i8",
    "offset": "i8",
}
"""`there`: its records that the final read at read_committed holds; `missing`: those acknowledged that it does not
hold, `seq` and `offset` (the ack's) of the first of these."""

_FAR = int(np.iinfo(np.int64).max)


class CommitAudit:
    """The classes of transactions in one bucket. `untold`: rows of transactions that the table does not know."""

    def __init__(self, place: TopicPartition, findings: FindingsWriter, table: Table) -> None:
        self._place = place
        self._findings = findings
        self._table = table
        self.transactional = 0
        self.untold = 0

    def fates(self, produced: Rows) -> Fates | None:
        """What became of the transactions of these rows; None: they belong to none. Raises as `Table.fates`."""
        fates, untold = self._table.fates(produced)
        self.untold += untold
        if fates is not None:
            self.transactional += int(np.count_nonzero(fates.txn >= 0))
        return fates

    def reads(self, reads: Rows, found: Ints, fates: Fates, who: str) -> None:
        """Reads at read_committed; `found`: the index of each one's record among those of `fates`, or -1."""
        own = np.flatnonzero(found >= 0)
        of = found[own]
        commit_ns = fates.commit_ns[of]
        early = (commit_ns >= 0) & (reads.ints("read_ns")[own] < commit_ns)
        for anomaly, which, what in (
            (Anomaly.ABORTED_READ, fates.aborted[of], "of a transaction that was aborted"),
            (Anomaly.EARLY_READ, early, "before the commit of its transaction was asked for"),
        ):
            detail = f"handed to a {who} reader at read_committed, {what}"
            self._findings.add(self._place, anomaly, reads, own[which], detail=detail)

    def parts(self, produced: Rows, fates: Fates, visible: Bools, removed: Bools) -> Iterator[Handed]:
        """`visible`: which of the records the final read at read_committed holds; `removed`: which others were removed,
        as a setting or an administrator asked: a transaction is not torn by that."""
        inside = np.flatnonzero(fates.txn >= 0)
        if not self._table.told.committed_read or not len(inside):
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
                "seq": np.where(missing, rows["seq"], _FAR),
                "offset": np.where(missing, rows["offset"], -1),
            },
            len(inside),
        )
        yield Handed(self._place, "transactions", _by_transaction(columns)[0])


def _by_transaction(rows: Rows) -> tuple[Rows, Ints]:
    """One row a transaction, and where the first missing record of each stood among the given rows."""
    order = order_of([rows["producer"], rows["txn"], rows["seq"]])
    if order is None:
        order = np.arange(len(rows), dtype=np.int64)
    rows = rows.take(order)
    starts = group_starts([rows["producer"], rows["txn"]])
    summed = {name: np.add.reduceat(rows.ints(name), starts) for name in ("there", "missing")}
    return Rows({**rows.take(starts).columns, **summed}, len(starts)), order[starts]


def torn(given: Sequence[tuple[TopicPartition, Rows]], findings: FindingsWriter) -> None:
    """Transactions that are not whole at read_committed: committed, and not wholly there; or there in part.

    A finding stands at the first acknowledged record that is missing.
    """
    places, place, rows = together(given, PARTS)
    if not len(rows):
        return
    rows, first = _by_transaction(rows)
    wrong = np.flatnonzero(
        (rows["missing"] > 0) & ((rows["there"] > 0) | (rows["outcome"] == TxnOutcome.COMMITTED))
    )
    at = place[first[wrong]]
    for number in distinct(at).tolist():
        here = rows.take(wrong[at == number])
        told = texts([_told(here, index) for index in range(len(here))])
        findings.add(places[number], Anomaly.TORN_TRANSACTION, here, detail=told)


def _told(rows: Rows, index: int) -> str:
    txn, there, missing = (int(rows[name][index]) for name in ("txn", "there", "missing"))
    outcome = TxnOutcome(int(rows["outcome"][index])).name.lower()
    return (
        f"transaction {txn}, {outcome}: at read_committed {there} of its records are there, "
        f"{missing} acknowledged ones are not"
    )
