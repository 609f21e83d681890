"""Tests of lies about transactions in copies of one honest run on a real broker. The audit names each, and the verdict
is INCONCLUSIVE, because another witness contradicts the lie.

Changed are the rows of the final reader at read_committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow.parquet as pq
import pytest

from ackproof.base.processes import find_children
from ackproof.base.wait import wait_until
from ackproof.clients.contract import TRANSACTIONS_LOG
from ackproof.cluster.install import Installation
from ackproof.run.case import CaseRun
from ackproof.run.phases import Phase
from ackproof.rundir.documents import FinalReadFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import TxnOutcome, Verdict

from .conftest import NEWEST
from .lies import ledger_files as lies
from .lies.stage import Judged, Stage

pytestmark = pytest.mark.cluster

IN_TRANSACTIONS = """\
cluster: {brokers: 2, combined: true}
topics: {orders: {partitions: 2, replication_factor: 2, config: {min.insync.replicas: 2}}}
workload:
  producers: {idempotence: true, rate: 1000/s, transaction_size: 20, abort_share: 0.4}
  consumers: {live: 1, isolation: read_committed}
  duration: 2s
"""
COMMITTED_READER = "consumed/client=f1"


@pytest.fixture(scope="module")
def judged(
    installs: Callable[[str], Installation], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Judged]]:
    stage = Stage(tmp_path_factory.mktemp("transaction-lies"), installs(NEWEST))
    honest = stage.play("honest", IN_TRANSACTIONS, {Phase.HEAL: until_one_is_committed_and_one_aborted})
    for name, lie in LIES.items():
        copy = stage.runs[name] = lies.copy_of(honest, stage.folder / name)
        lie(copy)
    yield stage.judge()
    assert not [child for child in find_children() if stage.folder in child.directory.parents]


def until_one_is_committed_and_one_aborted(run: CaseRun) -> None:
    """Wait until the producer has committed a transaction and aborted another one. A busy machine may need long for
    that."""
    log = run.run.clients / "p0" / TRANSACTIONS_LOG

    def both() -> bool:
        lines = log.read_text(encoding="ascii").splitlines() if log.exists() else []
        ended = {int(line.split()[2]) for line in lines if line.startswith("end ")}
        return ended >= {TxnOutcome.COMMITTED, TxnOutcome.ABORTED}

    wait_until(both, what="a transaction committed and one aborted", timeout_s=60)


def table(run: CaseDir) -> lies.Rows:
    found = [pq.read_table(path, partitioning=None) for path in run.transactions.glob("*/part-*.parquet")]
    return [row for part in found for row in part.to_pylist()]


def first_seq_of(run: CaseDir, outcome: TxnOutcome) -> int:
    return min(int(str(row["first_seq"])) for row in table(run) if row["outcome"] == int(outcome))


def hand_over_an_aborted_record(run: CaseDir) -> None:
    """Lie: the committed reader gets a record of an aborted transaction, which only the uncommitted reader got."""
    seq = first_seq_of(run, TxnOutcome.ABORTED)
    (path,) = (run.consumed / "client=f0").glob("part-*.parquet")
    (row,) = [row for row in pq.read_table(path, partitioning=None).to_pylist() if row["seq"] == seq]

    def put_in(rows: lies.Rows) -> lies.Rows:
        # in the place of a record that it should have got: its count stays that of what it was handed
        before = [r for r in lies.in_order(rows, row["partition"]) if int(str(r["offset"])) < row["offset"]]
        number = int(str(before[-1]["read_seq"])) if before else -1
        mine = {name: rows[0][name] for name in ("reader", "phase", "assignment", "read_ns")}
        moved = [
            {**r, "read_seq": int(str(r["read_seq"])) + (int(str(r["read_seq"])) > number)} for r in rows
        ]
        return [*moved, {**row, **mine, "read_seq": number + 1}]

    lies.rewrite(run.ledger / COMMITTED_READER, put_in)
    handed(run, +1)


def take_out_a_committed_record(run: CaseDir) -> None:
    seq = first_seq_of(run, TxnOutcome.COMMITTED)
    lies.rewrite(run.ledger / COMMITTED_READER, lambda rows: [row for row in rows if row["seq"] != seq])
    handed(run, -1)


def ask_for_a_commit_too_late(run: CaseDir) -> None:
    """Lie: a commit was requested only after its records had been read."""
    (path,) = run.transactions.glob("*/part-*.parquet")
    rows = pq.read_table(path, partitioning=None)
    number = next(n for n, row in enumerate(rows.to_pylist()) if row["outcome"] == int(TxnOutcome.COMMITTED))
    late = [row | ({"commit_ns": 10**15} if n == number else {}) for n, row in enumerate(rows.to_pylist())]
    pq.write_table(rows.from_pylist(late, schema=rows.schema), path)
    lies.reseal(run)


def handed(run: CaseDir, more: int) -> None:
    """Add `more` to the number of records that the reader says it got, so that only Kafka can be blamed."""
    file = FinalReadFile.load(run.final_read)
    first, *rest = file.committed
    changed = first.model_copy(update={"records": first.records + more})
    file.model_copy(update={"committed": (changed, *rest)}).save(run.final_read)
    lies.reseal(run)


def drop_a_row_of_the_ledger(run: CaseDir) -> None:
    """Remove a committed record from the ledger, although the reader counted it: that proves nothing against Kafka."""
    seq = first_seq_of(run, TxnOutcome.COMMITTED)
    lies.rewrite(run.ledger / COMMITTED_READER, lambda rows: [row for row in rows if row["seq"] != seq])


LIES: dict[str, Callable[[CaseDir], None]] = {
    "aborted-read": hand_over_an_aborted_record,
    "torn-transaction": take_out_a_committed_record,
    "early-read": ask_for_a_commit_too_late,
    "dropped": drop_a_row_of_the_ledger,
}


def found(one: Judged) -> dict[str, int]:
    return {name: count for name, count in one.audit.counts.items() if count}


def only_ours(one: Judged, why: str) -> None:
    """Assert that the verdict is INCONCLUSIVE for this reason: another witness contradicts the lie."""
    assert one.verdict.verdict is Verdict.INCONCLUSIVE
    assert why in one.reasons


def test_the_honest_run_passes(judged: dict[str, Judged]) -> None:
    one = judged["honest"]
    assert (one.verdict.verdict, one.verdict.reasons, found(one)) == (Verdict.PASS, (), {})
    outcomes = {row["outcome"] for row in table(one.run)}
    assert outcomes == {int(TxnOutcome.COMMITTED), int(TxnOutcome.ABORTED)}
    assert 0 < one.audit.consumed_committed < one.audit.records.consumed_final
    assert one.audit.records.consumed_live == one.audit.consumed_committed


def test_a_record_of_an_aborted_transaction_is_handed_to_the_committed_reader(
    judged: dict[str, Judged],
) -> None:
    one = judged["aborted-read"]
    assert found(one) == {"aborted-read": 1, "torn-transaction": 1}
    only_ours(one, "read other records than the markers in the log of node")


def test_a_record_of_a_committed_transaction_is_kept_from_it(judged: dict[str, Judged]) -> None:
    one = judged["torn-transaction"]
    assert found(one) == {"torn-transaction": 1}
    only_ours(one, "read other records than the markers in the log of node")


def test_a_record_is_handed_over_before_its_commit(judged: dict[str, Judged]) -> None:
    one = judged["early-read"]
    assert set(found(one)) == {"early-read"}
    only_ours(one, "transactions that end or are to be committed")


def test_a_ledger_that_lacks_what_was_handed_over_proves_no_torn_transaction(
    judged: dict[str, Judged],
) -> None:
    one = judged["dropped"]
    assert one.verdict.verdict is Verdict.INCONCLUSIVE
    assert "the final reader at read_committed read" in one.reasons
