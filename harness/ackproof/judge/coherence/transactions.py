"""The transactions table: the course of each, and what its rows in the produced ledgers say of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts, lacks
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.outcome import TxnOutcome
from ackproof.rundir.schema import PRODUCED, TRANSACTIONS

_KEY: Final = ["producer", "txn"]


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about transactions, and whether enough of them is known."""
    if facts.case.experiment.workload.producers.transaction_size is None:
        return
    try:
        table = read_parts(facts.run.transactions, TRANSACTIONS)
        rows = read_parts(facts.run.produced, PRODUCED).select([*_KEY, "seq", "sent_ns"])
    except (OSError, pa.ArrowException):
        return  # the audit says that a part cannot be read
    yield from map(lacks, _known(facts, table))
    sent = rows.group_by(_KEY).aggregate([("seq", "min"), ("sent_ns", "min"), ("sent_ns", "max")])
    for words, broken in _rules(table.join(sent, _KEY, join_type="left outer")):
        if broken.num_rows:
            one = broken.slice(0, 1).to_pylist()[0]
            such = f"such as {one['txn']} of producer {one['producer']}"
            yield contradicts(f"transactions that {words}: {broken.num_rows:,}, {such}")


def _known(facts: Facts, table: pa.Table) -> Iterator[str]:
    """A commit is known of at least one, and no more are unknown than of attempts: else nothing was tried."""
    outcomes = table["outcome"].to_pylist()
    unknown, bound = outcomes.count(int(TxnOutcome.UNKNOWN)), facts.case.experiment.evidence.max_indeterminate
    if not outcomes:
        yield "producers were to write in transactions, and there is none"
    elif int(TxnOutcome.COMMITTED) not in outcomes:
        yield f"of {len(outcomes)} transactions none is known to be committed"
    elif unknown > bound * len(outcomes):
        yield f"of {len(outcomes)} transactions {unknown} are unknown, more than the {bound:.0%} that may be"


def _rules(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """What transactions that break it did, and which do."""
    begun, commit, ended = (pc.field(name) for name in ("begun_ns", "commit_ns", "ended_ns"))
    first, last = pc.field("sent_ns_min"), pc.field("sent_ns_max")
    committed = pc.field("outcome") == int(TxnOutcome.COMMITTED)
    yield "begin before the run", table.filter(begun < 0)
    yield (
        "are committed and were never asked to be, or never ended",
        table.filter(committed & ((commit < 0) | (ended < 0))),
    )
    yield (
        "end or are to be committed before they begin, or end before that",
        table.filter(
            ((commit >= 0) & (commit < begun)) | ((ended >= 0) & ((ended < begun) | (ended < commit)))
        ),
    )
    yield "have records from before they begin", table.filter(first < begun)
    yield "have records from after their commit was asked for", table.filter((commit >= 0) & (last > commit))
    yield (
        "begin with another seq than their first record has",
        table.filter(pc.field("first_seq") != pc.field("seq_min")),
    )
