"""Tests of transactional producers on a mock cluster: transaction numbers in the ledger, and the table of outcomes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from ackproof.clients.contract import ProducerSettings
from ackproof.clients.journal import read_transactions
from ackproof.clients.librdkafka.sending import Transactions
from ackproof.rundir.ledger import read_parts
from ackproof.rundir.outcome import TxnOutcome
from ackproof.rundir.schema import TRANSACTIONS

END_TXN = 26
ADD_PARTITIONS = 24
OUT_OF_DATE_EPOCH = 47


def table(load) -> list[dict[str, int]]:
    rows: pa.Table = read_parts(load.run.transactions, TRANSACTIONS)
    return rows.sort_by([("producer", "ascending"), ("txn", "ascending")]).to_pylist()


def start(loads, kafka, **producer):
    load = loads(
        kafka, acks="all", idempotence=True, transaction_size=50, rate=5000.0, chunk_rows=256, **producer
    )
    load.workload.start()
    return load


def test_each_record_has_its_transaction_and_each_transaction_its_outcome(load, kafka) -> None:
    load = start(load, kafka, abort_share=0.3)
    load.until(lambda: load.workload.acked() >= 1500, "1500 acks")
    load.workload.stop()
    produced = load.produced().to_pylist()
    rows = table(load)
    assert [row["txn"] for row in rows] == list(range(len(rows)))
    assert {row["seq"] // 50 for row in produced} == {row["txn"] for row in produced}
    assert all(row["txn"] == row["seq"] // 50 for row in produced)
    assert {row["outcome"] for row in produced} == {0}
    outcomes = Counter(row["outcome"] for row in rows)
    assert set(outcomes) == {TxnOutcome.COMMITTED, TxnOutcome.ABORTED}
    assert 0.1 < outcomes[TxnOutcome.ABORTED] / len(rows) < 0.55
    for row in rows:
        assert row["first_seq"] == 50 * row["txn"]
        assert (row["commit_ns"] > 0) == (row["outcome"] == TxnOutcome.COMMITTED)
        assert row["ended_ns"] > max(row["begun_ns"], row["commit_ns"])


def test_a_killed_producer_leaves_its_last_transaction_and_another_takes_its_id(load, kafka) -> None:
    load = start(load, kafka)
    load.until(lambda: load.workload.acked() >= 500, "500 acks")
    load.workload.kill("p0")
    other = load.workload.replace("p0")
    load.until(lambda: load.workload.at_work(other), "the other to work")
    load.workload.stop()
    rows = table(load)
    last = [row for row in rows if row["producer"] == 0][-1]
    assert last["outcome"] in (TxnOutcome.ABORTED, TxnOutcome.UNKNOWN, TxnOutcome.COMMITTED)
    assert {row["producer"] for row in rows} == {0, 1}
    of_killed = [row for row in load.produced().to_pylist() if row["producer"] == 0]
    assert all(row["txn"] == row["seq"] // 50 for row in of_killed)
    ids = {
        line.strip()
        for client in ("p0", "p1")
        for line in (load.run.clients / client / "settings.json").read_text().splitlines()
        if "transactional.id" in line
    }
    assert len(ids) == 1


def test_one_that_is_fenced_says_so_and_comes_back_as_another(load, kafka) -> None:
    load = start(load, kafka)
    load.until(lambda: load.workload.acked() >= 200, "200 acks")
    kafka.fail(END_TXN, [OUT_OF_DATE_EPOCH])
    load.until(lambda: "p1" in load.workload.running(), "another in its place")
    load.until(lambda: load.workload.at_work("p1"), "the other to work")
    load.workload.stop()
    outcomes = Counter((row["producer"], row["outcome"]) for row in table(load))
    assert outcomes[0, TxnOutcome.FENCED] == 1
    assert outcomes[1, TxnOutcome.COMMITTED] > 0


def refused(code: int, *, requires_abort: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, txn_requires_abort=requires_abort, retriable=not requires_abort))


class FencedClient:
    """Fake client library. Its commits fail with these errors, one after the other, and its aborts are fenced."""

    def __init__(self, commits: list[KafkaException]) -> None:
        self._commits = iter(commits)

    def begin_transaction(self) -> None:
        pass

    def commit_transaction(self, timeout_s: float) -> None:
        raise next(self._commits)

    def abort_transaction(self, timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))


@pytest.mark.parametrize(
    ("commits", "outcome"),
    [
        # A record timed out: the library sends no EndTxn.
        ([refused(KafkaError._TIMED_OUT, requires_abort=True)], TxnOutcome.ABORTED),
        # EndTxn may have been sent before, or was answered by the coordinator.
        (
            [refused(KafkaError._TIMED_OUT), refused(KafkaError._TIMED_OUT, requires_abort=True)],
            TxnOutcome.FENCED,
        ),
        ([refused(KafkaError.INVALID_PRODUCER_ID_MAPPING, requires_abort=True)], TxnOutcome.FENCED),
        ([KafkaException(KafkaError(KafkaError._FENCED, fatal=True))], TxnOutcome.FENCED),
        (None, TxnOutcome.ABORTED),
    ],
)
def test_what_the_coordinator_was_never_asked_to_commit_is_aborted(
    tmp_path: Path, commits: list[KafkaException] | None, outcome: TxnOutcome
) -> None:
    log = tmp_path / "transactions.log"
    settings = ProducerSettings(
        client="p0",
        run_id="r",
        case_dir=str(tmp_path),
        places=[("t", 0)],
        origin_ns=0,
        config={"message.timeout.ms": 1000},
        producer=7,
        first_place=0,
        value_size=100,
        rate=1.0,
        chunk_rows=256,
        transaction_size=5,
    )
    transactions = Transactions(
        FencedClient(commits or []),  # type: ignore[arg-type]
        log,
        settings,
        flush=lambda: None,
        ending=lambda: False,
        fatal=lambda error: None,
    )
    assert transactions.room(0) == 5
    transactions.finish(commit=commits is not None)
    assert [row.outcome for row in read_transactions(log, 7)] == [outcome]
    assert transactions.gave_up


def test_a_log_that_ends_anywhere_is_read(tmp_path: Path) -> None:
    log = tmp_path / "transactions.log"
    assert read_transactions(log, 7) == []
    whole = "begin 0 0 10\ncommit 0 20\nend 0 0 30\nbegin 1 50 40\ncommit 1 50\nend 1 3 55\n"
    whole += "begin 2 60 60\ncommit 2 70\n"
    log.write_text(whole)
    assert [row.outcome for row in read_transactions(log, 7)] == [
        TxnOutcome.COMMITTED,
        TxnOutcome.FENCED,
        TxnOutcome.UNKNOWN,
    ]
    for end in range(len(whole)):
        log.write_text(whole[:end])
        rows = read_transactions(log, 7)
        assert [row.txn for row in rows] == list(range(len(rows)))
    log.write_text("begin 0 0 10\n")
    (row,) = read_transactions(log, 7)
    assert row == (7, 0, TxnOutcome.ABORTED, 0, 10, -1, -1)
