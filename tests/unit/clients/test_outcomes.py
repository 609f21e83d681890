"""The outcome table, against librdkafka's constants and against librdkafka itself with injected errors."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

import ackproof.clients
from ackproof.rundir.guarantees import (
    LIBRARIES,
    LIBRDKAFKA,
    NO_ERROR,
    REFUSED,
    Resend,
    classify_report,
)
from ackproof.rundir.outcome import Outcome

DEFINITE = {
    "NOT_ENOUGH_REPLICAS",
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_RECORD",
    "TOPIC_AUTHORIZATION_FAILED",
    "INVALID_REQUIRED_ACKS",
}
ALL_CODES = {
    name: code
    for name in dir(KafkaError)
    if name.lstrip("_").isupper() and isinstance(code := getattr(KafkaError, name), int)
}
BEFORE_APPEND = [row for row in LIBRARIES[LIBRDKAFKA].errors if row.code > 0 and row.definite]
PRODUCE = 0
ONE_BY_ONE = {"linger": "0s", "in_flight": 1, "config": {"batch.num.messages": "1"}}


def test_the_table_holds_just_the_codes_of_the_design_with_their_numbers() -> None:
    numbers = {name: ALL_CODES.get(name) for name in DEFINITE}
    # confluent-kafka 2.16 does not name INVALID_RECORD; Kafka's Errors.java: 87
    numbers["INVALID_RECORD"] = 87
    assert {entry.name: entry.code for entry in BEFORE_APPEND} == numbers


def test_any_other_code_is_indeterminate_whatever_the_retries() -> None:
    assert len(ALL_CODES) > 100
    for code in {*ALL_CODES.values(), 87, 12345, -12345}:
        definite = code in {entry.code for entry in BEFORE_APPEND}
        expected = Outcome.ACKED if code == 0 else Outcome.FAILED if definite else Outcome.INDETERMINATE
        assert classify_report(code, LIBRDKAFKA, may_resend=False) is expected
        assert classify_report(code, LIBRDKAFKA, may_resend=True) is (
            Outcome.ACKED if code == 0 else Outcome.INDETERMINATE
        )


def _outcome_table() -> str:
    """Return the table of the README: the outcome of each kind of delivery report (`classify_report`)."""
    once, again = "0, idempotence off, sent once", "> 0, idempotence, or perhaps sent twice"
    names, some, outcome = (
        ", ".join(row.name for row in BEFORE_APPEND),
        BEFORE_APPEND[0].code,
        partial(classify_report, library=LIBRDKAFKA),
    )
    rows = [
        ("report without error", "any", outcome(NO_ERROR, may_resend=True), "the offset is -1 with acks=0"),
        ("produce call raised (but BufferError)", "any", REFUSED, "refused locally, before any send"),
        *(
            (f"report {row.name} ({row.code})", once, outcome(row.code, may_resend=False), row.why)
            for row in BEFORE_APPEND
        ),
        (f"report {names}", again, outcome(some, may_resend=True), "an earlier send may have been appended"),
        (
            "report with any other code",
            "any",
            outcome(20, may_resend=False),
            "an append may have come before it: NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER, "
            "UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, time-outs, purges, what is not known",
        ),
        ("no report", "any", Outcome.INDETERMINATE, "the client ended first; done_ns is -1, error 0"),
    ]
    lines = ["| what came back | retries | outcome | why |", "|---|---|---|---|"]
    lines += [
        f"| {what} | {retries} | {decided.name.lower()} | {why} |" for what, retries, decided, why in rows
    ]
    return "\n".join(lines)


def test_the_readme_shows_the_table() -> None:
    readme = Path(ackproof.clients.__file__).with_name("README.md").read_text()
    assert _outcome_table() in readme


CODES = [19, 10, 18, 87, 21, 20, 56, 7, 2, 1, -1, 47, 74]


def test_each_code_of_a_broker_without_retries(kafka, load) -> None:
    load = load(kafka, topics={"orders": 1}, retries=0, rate="200/s", **ONE_BY_ONE)
    kafka.fail(PRODUCE, CODES)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 3, "three acks after the errors")
    load.workload.stop()
    rows = load.produced().slice(0, len(CODES) + 1).to_pylist()
    seen = {row["error"]: Outcome(row["outcome"]) for row in rows[: len(CODES)]}
    assert [row["error"] for row in rows] == [*CODES, 0]
    failed = {code for code, outcome in seen.items() if outcome is Outcome.FAILED}
    assert failed == {19, 10, 18, 87, 21}
    assert all(outcome is Outcome.INDETERMINATE for code, outcome in seen.items() if code not in failed)
    assert all(row["offset"] == -1 and row["done_ns"] > row["sent_ns"] for row in rows[: len(CODES)])
    assert load.failed() == 5
    assert load.indeterminate() == len(CODES) - 5


def test_librdkafka_sends_again_without_retries_so_a_change_of_leader_leaves_it_open(kafka, load) -> None:
    """The broker answers NOT_LEADER_OR_FOLLOWER, perhaps after an append; then the next leader answers
    NOT_ENOUGH_REPLICAS."""
    load = load(kafka, topics={"orders": 1}, retries=0, rate="200/s", **ONE_BY_ONE)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 100, "acks, and statistics meanwhile")
    kafka.new_epoch("orders", 0)
    kafka.fail(PRODUCE, [6] + [19] * 150)
    load.until(lambda: load.failed() >= 20, "errors")
    before = load.workload.acked()
    load.until(lambda: load.workload.acked() >= before + 3, "acks")
    load.workload.stop()
    errors = [row for row in load.produced().to_pylist() if row["error"]]
    assert {row["error"] for row in errors} == {19}
    assert errors[0]["done_ns"] - errors[0]["sent_ns"] >= 400_000_000
    assert errors[0]["outcome"] == Outcome.INDETERMINATE
    assert errors[-1]["outcome"] == Outcome.FAILED
    assert all(
        row["outcome"] == Outcome.FAILED for row in errors if row["done_ns"] - row["sent_ns"] < 400_000_000
    )
    assert load.failed() == sum(row["outcome"] == Outcome.FAILED for row in errors)
    assert load.indeterminate() == sum(row["outcome"] == Outcome.INDETERMINATE for row in errors)


def test_old_records_are_failed_when_their_partition_kept_its_leader(kafka, load) -> None:
    """The broker is slow: reports come later than librdkafka waits before it sends a record again."""
    load = load(kafka, topics={"orders": 1}, retries=0, rate="500/s", chunk_rows=64)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 300, "acks, and statistics meanwhile")
    kafka.rtt(700)
    kafka.fail(PRODUCE, [19] * 200)
    load.until(lambda: load.failed() >= 100, "errors")
    kafka.rtt(0)
    load.workload.stop()
    errors = [row for row in load.produced().to_pylist() if row["error"]]
    assert {(row["error"], row["outcome"]) for row in errors} == {(19, Outcome.FAILED)}
    assert max(row["done_ns"] - row["sent_ns"] for row in errors) >= 600_000_000
    assert load.failed() == len(errors)
    assert load.indeterminate() == 0


def test_a_refused_topic_is_failed(kafka, load) -> None:
    load = load(kafka, topics={"orders": 1}, retries=0, rate="200/s", **ONE_BY_ONE)
    kafka.fail(PRODUCE, [29])
    load.workload.start()
    load.until(lambda: load.failed() >= 3, "errors, which librdkafka now makes up by itself")
    load.workload.stop()
    errors = {(row["error"], Outcome(row["outcome"])) for row in load.produced().to_pylist() if row["error"]}
    assert errors == {(29, Outcome.FAILED)}


@pytest.mark.parametrize("idempotence", [False, True])
def test_with_retries_a_final_error_of_a_broker_is_indeterminate(kafka, load, idempotence: bool) -> None:
    permanent = [10, 87] if not idempotence else [10]
    load = load(
        kafka,
        topics={"orders": 1},
        rate="100/s",
        idempotence=idempotence,
        linger="0s",
        config={"batch.num.messages": "1", "retry.backoff.ms": "5", "retry.backoff.max.ms": "10"},
        in_flight=1,
    )
    kafka.fail(PRODUCE, [19, 20, 7, *permanent])
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 3, "three acks after the errors")
    load.workload.stop()
    rows = load.produced().to_pylist()
    errors = {row["error"]: Outcome(row["outcome"]) for row in rows if row["error"]}
    assert set(errors) >= set(permanent) - {0} or idempotence
    assert set(errors.values()) <= {Outcome.INDETERMINATE}
    assert not {19, 20, 7} & set(errors), "these are retried until they succeed"
    assert load.failed() == 0


def test_time_out_after_retries_is_indeterminate(kafka, load) -> None:
    load = load(kafka, rate="50/s", delivery_timeout="1s")
    kafka.fail(PRODUCE, [7] * 2000)
    load.workload.start()
    load.until(lambda: load.indeterminate() >= 5, "time-outs")
    kafka.clear(PRODUCE)
    load.workload.stop()
    codes = {(row["error"], Outcome(row["outcome"])) for row in load.produced().to_pylist() if row["error"]}
    assert codes == {(KafkaError._MSG_TIMED_OUT, Outcome.INDETERMINATE)}


def test_all_brokers_down(kafka, load) -> None:
    load = load(kafka, rate="50/s", delivery_timeout="1s")
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 5, "acks")
    kafka.down()
    load.until(lambda: load.indeterminate() >= 5, "time-outs")
    load.workload.stop()
    rows = load.produced().to_pylist()
    assert {Outcome(row["outcome"]) for row in rows if row["error"]} == {Outcome.INDETERMINATE}
    assert {row["error"] for row in rows} - {0} <= {KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT}
    assert [row["seq"] for row in rows] == list(range(len(rows)))


def test_without_retries_a_lost_connection_is_indeterminate(kafka, load) -> None:
    load = load(kafka, rate="500/s", retries=0, delivery_timeout="1s")
    kafka.rtt(100)
    load.workload.start()
    load.until(lambda: load.sent() >= 20, "sends")
    kafka.down()
    load.until(lambda: load.indeterminate() >= 10, "errors")
    load.workload.stop()
    rows = load.produced().to_pylist()
    assert {Outcome(row["outcome"]) for row in rows if row["error"]} == {Outcome.INDETERMINATE}


def test_what_the_library_refuses_is_failed_with_its_code(kafka, load) -> None:
    load = load(kafka, value_size=3000, config={"message.max.bytes": "2000"})
    load.workload.start()
    load.until(lambda: load.failed() >= 5, "refusals")
    load.workload.stop()
    rows = load.produced().to_pylist()
    assert {(row["error"], Outcome(row["outcome"])) for row in rows} == {(10, Outcome.FAILED)}
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert all(row["done_ns"] >= row["sent_ns"] and row["offset"] == -1 for row in rows)


def test_acks_0_has_no_offsets(kafka, load) -> None:
    load = load(kafka, acks=0)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 5000, "acks")
    load.workload.stop()
    rows = load.produced()
    assert set(rows["offset"].to_pylist()) == {-1}
    assert set(rows["outcome"].to_pylist()) == {Outcome.ACKED}


def test_a_fatal_error_ends_the_producer_and_a_new_one_takes_its_place(kafka, load) -> None:
    load = load(
        kafka,
        topics={"orders": 1},
        idempotence=True,
        rate="2000/s",
        config={"enable.gapless.guarantee": "true", "batch.num.messages": "10"},
    )
    kafka.rtt(50)
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 10, "acks")
    kafka.fail(PRODUCE, [10])
    load.until(lambda: len(load.workload.clients) == 2, "a second producer")
    before = load.workload.acked()
    load.until(lambda: load.workload.acked() >= before + 10, "acks of the second producer")
    load.workload.stop()
    assert [client.id for client in load.workload.clients] == ["p0", "p1"]
    rows = load.produced().to_pylist()
    assert {row["producer"] for row in rows} == {0, 1}
    for producer in (0, 1):
        own = [row for row in rows if row["producer"] == producer]
        assert [row["seq"] for row in own] == list(range(len(own)))
        assert (load.run.produced / f"client=p{producer}" / "_END").exists()
    refused = {row["error"] for row in rows if row["outcome"] == Outcome.FAILED}
    assert refused <= {KafkaError._FATAL}, "produce calls that came too late"
    assert KafkaError._PURGE_QUEUE in {row["error"] for row in rows}
    resets = [event for event in load.events() if event.kind == "client-reset"]
    assert [event.client for event in resets] == ["p0"]
    assert resets[0].detail["reason"]


def test_the_table_says_which_errors_librdkafka_sends_again_after_without_retries(kafka, load) -> None:
    """The broker returns each error once, with one record in flight. If no report has the error, librdkafka sent the
    record again."""
    errors = [row for row in LIBRARIES[LIBRDKAFKA].errors if row.code > 0 and row.code != 29]
    load = load(kafka, topics={"orders": 1}, retries=0, rate="200/s", **ONE_BY_ONE)
    kafka.fail(PRODUCE, [row.code for row in errors])
    load.workload.start()
    load.until(lambda: load.workload.acked() >= 3, "three acks after the errors")
    load.workload.stop()
    reported_codes = {row["error"] for row in load.produced().to_pylist()} - {0}
    counted = {row.code for row in errors if row.resend is not Resend.UNCOUNTED}
    assert reported_codes == counted
