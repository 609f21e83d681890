"""What a producer's `transactions.log` says, read back: after its end, whatever that was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ackproof.rundir.ledger import TxnRow
from ackproof.rundir.outcome import TxnOutcome
from ackproof.workload.settings import TRANSACTIONS_LOG as LOG

__all__ = ["LOG", "numbers_of", "read_log"]


def read_log(path: Path, producer: int) -> list[TxnRow]:
    """The transactions in order of their numbers; empty without such a file. A torn last line is passed over."""
    if not path.exists():
        return []
    text = path.read_text(encoding="ascii")
    rows: dict[int, TxnRow] = {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        word, number, *rest = line.split()
        txn = int(number)
        if word == "begin":
            # never asked to be committed so far: whatever happens to its producer, it cannot be
            rows[txn] = TxnRow(producer, txn, TxnOutcome.ABORTED, int(rest[0]), int(rest[1]), -1, -1)
        elif word == "commit":
            rows[txn] = rows[txn]._replace(outcome=TxnOutcome.UNKNOWN, commit_ns=int(rest[0]))
        else:
            rows[txn] = rows[txn]._replace(outcome=TxnOutcome(int(rest[0])), ended_ns=int(rest[1]))
    return [rows[txn] for txn in sorted(rows)]


def numbers_of(starts: list[int], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The transaction of each seq, where transaction k begins with seq `starts[k]`; -1 where there is none."""
    return np.searchsorted(np.array(starts, np.int64), seqs, side="right").astype(np.int64) - 1
