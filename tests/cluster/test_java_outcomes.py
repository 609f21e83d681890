"""Tests of outcomes in the Java client (docs/clients.md), with errors from librdkafka's mock cluster.

They need no broker, but a JVM, so they are not in `tests/unit`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackproof.experiment.client import JAVA
from ackproof.rundir.guarantees import DEFINITE_CODES, LIBRARIES, Appended, Resend
from ackproof.rundir.outcome import Outcome
from mock_kafka import PRODUCE, Load, Loads, MockKafka, mock_kafka_for_java, stored

pytestmark = pytest.mark.cluster
ONE_BY_ONE = {"client": JAVA, "linger": "0s", "in_flight": 1, "batch_size": 1}
BY_BROKERS = [row for row in LIBRARIES[JAVA].errors if row.code > 0 and row.name != "NETWORK_EXCEPTION"]
"""Errors that a broker can return; all others come from the client itself."""


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with mock_kafka_for_java() as cluster:
        yield cluster


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Loads]:
    loads = Loads(tmp_path)
    with loads.stack:
        yield loads


def reported(load: Load) -> dict[int, Outcome]:
    """Return the outcome of the records with each error, by error code. Assert that such records have no offset."""
    rows = [row for row in load.produced().to_pylist() if row["error"]]
    assert all(row["offset"] == -1 and row["done_ns"] > row["sent_ns"] for row in rows)
    found = {row["error"]: Outcome(row["outcome"]) for row in rows}
    assert all(found[row["error"]] == row["outcome"] for row in rows)
    return found


def test_without_retries_each_error_is_reported_and_is_definite_as_the_table_says(
    kafka: MockKafka, load: Loads
) -> None:
    """Without retries each error ends exactly one record, and the next record is acknowledged."""
    run = load(kafka, topics={"orders": 1}, retries=0, rate="200/s", **ONE_BY_ONE)
    codes = [row.code for row in BY_BROKERS]
    kafka.fail(PRODUCE, codes)
    run.workload.start()
    run.until(lambda: run.workload.acked() >= 3, "three acks after the errors")
    run.workload.stop()
    rows = run.produced().to_pylist()
    assert [row["error"] for row in rows[: len(codes) + 1]] == [*codes, 0]
    found = reported(run)
    assert {code for code, outcome in found.items() if outcome is Outcome.FAILED} == DEFINITE_CODES[JAVA]
    acked = {row["offset"] for row in rows if row["outcome"] == Outcome.ACKED}
    assert len(stored(kafka, run.topics)) == len(acked) == len(rows) - len(codes)


def test_with_retries_each_error_is_sent_again_as_the_table_says(kafka: MockKafka, load: Loads) -> None:
    run = load(kafka, topics={"orders": 1}, retries=50, rate="200/s", **ONE_BY_ONE)
    kafka.fail(PRODUCE, [row.code for row in BY_BROKERS])
    run.workload.start()
    run.until(lambda: run.workload.acked() >= 20, "acks after the errors")
    run.workload.stop()
    final = {row.code for row in BY_BROKERS if row.resend is Resend.NEVER}
    assert reported(run) == dict.fromkeys(final, Outcome.INDETERMINATE)


def test_a_batch_that_is_too_large_is_split_and_sent_again_without_retries(
    kafka: MockKafka, load: Loads
) -> None:
    run = load(kafka, client=JAVA, topics={"orders": 1}, retries=0, rate="500/s", linger="100ms")
    kafka.fail(PRODUCE, [10])
    run.workload.start()
    run.until(lambda: run.workload.acked() >= 200, "acks after the error")
    run.workload.stop()
    rows = run.produced().to_pylist()
    assert {Outcome(row["outcome"]) for row in rows} == {Outcome.ACKED}
    assert len(stored(kafka, run.topics)) == len(rows), "no record is there twice"


@pytest.mark.parametrize("idempotence", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_callback_in_the_thread_of_send_is_a_local_refusal(
    kafka: MockKafka, load: Loads, idempotence: bool
) -> None:
    """A record that is refused locally was never sent, so it has failed, with retries or without."""
    limit = {"max.request.size": "2000"}
    run = load(kafka, client=JAVA, value_size=3000, idempotence=idempotence, config=limit)
    run.workload.start()
    run.until(lambda: run.failed() >= 5, "refusals")
    run.workload.stop()
    assert reported(run) == {10: Outcome.FAILED}
    assert not stored(kafka, run.topics)


def test_a_closed_producer_knows_nothing_of_what_it_had(kafka: MockKafka, load: Loads) -> None:
    """Time-outs, lost connections and a forced close end records that were sent, and records that were not: all are
    indeterminate."""
    run = load(kafka, client=JAVA, retries=0, rate="2000/s", delivery_timeout="1s")
    kafka.rtt(200)
    run.workload.start()
    run.until(lambda: run.workload.acked() >= 5, "acks")
    kafka.down()
    run.until(lambda: run.indeterminate() >= 10, "errors")
    run.workload.stop()
    found = reported(run)
    assert set(found.values()) == {Outcome.INDETERMINATE}
    unknown = {row.code for row in LIBRARIES[JAVA].errors if row.appended is Appended.PERHAPS}
    assert found.keys() <= unknown
