"""Tests of excuses: a finding that a client library or a setting explains is allowed with evidence, any other is
FAIL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ackproof.judge import judge_case
from ackproof.rundir.documents import ClassJudgement, VerdictFile
from ackproof.rundir.outcome import Verdict
from judged_run import HEALTHY, MakeRun, attempt, batch_row, finding, in_sync, life, read_row
from run_directory import write_run

EXPERIMENT = """\
name: t
cluster: {{config: {{{config}}}}}
topics: {{orders: {{partitions: 1, config: {{min.insync.replicas: {min_insync}}}}}}}
workload: {{duration: 1s, producers: {{{producers}}}}}
faults:
  - kill: {{target: leader(orders/0)}}
    at: 1s
    restart_after: 1s
{more}
"""
JUMP = "  - clock_jump: {{target: broker({node}), by: {by}}}\n    at: 1s\n    for: 1s"
ONCE = "acks: all, retries: 0"
IDEMPOTENT = "acks: all, idempotence: true, delivery_timeout: 60s"

Judged = Callable[..., tuple[VerdictFile, ClassJudgement]]


def batch(first: int, last: int, **fields: int) -> dict[str, Any]:
    """Return a row of `replicas.BATCHES` with offsets `first` to `last`, of producer id 7 in epoch 0. `fields` replace
    its values."""
    return {**batch_row(first, last, 7, 0), **fields}


@pytest.fixture
def judged(make_run: MakeRun) -> Judged:
    """Return a function that judges a run with findings about seq 3, and returns the verdict and the class's ruling.

    `copies`: number of these findings. `batches`: those on disk. `lasted_s`: duration of the attempt. `offsets`: where
    the final read has seq 3. `epochs`: sampled leader epochs. `config`: settings of the brokers. `more`: further
    faults, as YAML. `jumped`: node that fault 2 hit; None: fault 2 did not happen.
    """

    def judge(
        batches: Sequence[dict[str, Any]],
        *,
        anomaly: str = "duplicate",
        producers: str = ONCE,
        lasted_s: float = 1.0,
        offsets: Sequence[int] = (3, 13),
        epochs: Sequence[int] = (0, 1),
        config: str = "",
        min_insync: int = 2,
        more: str = "",
        jumped: int | None = None,
        copies: int = 1,
    ) -> tuple[VerdictFile, ClassJudgement]:
        run = make_run(
            experiment=EXPERIMENT.format(
                producers=producers, config=config, more=more, min_insync=min_insync
            ),
            events=HEALTHY if jumped is None else (*HEALTHY[:-1], *life(2, 0.1, 9.0), HEALTHY[-1]),
            attempts=[attempt(3, lasted_s), attempt(4, 0.1)],
            findings=[finding(anomaly, detail="both acked" if anomaly == "reordered" else "")] * copies,
            **{anomaly: copies},
        )
        if jumped is not None:
            text = run.timeline.read_text().replace('"nodes":[2]', f'"nodes":[{jumped}]')
            run.timeline.write_text(text)
        looks = [replace(in_sync("orders", 0), leader_epoch=epoch) for epoch in epochs]
        rows = [read_row(offset, 3) for offset in offsets] + [read_row(4, 4)]
        write_run(run.path, samples=looks, consumed={"f0": rows}, replica_batches=batches)
        verdict = judge_case(run)
        (one,) = [one for one in verdict.classes if one.anomaly == anomaly]
        return verdict, one

    return judge


TWO_LEADERS = (batch(0, 9), batch(10, 19, leader_epoch=1))
ONE_LEADER = (batch(0, 9), batch(10, 19))


def test_a_copy_under_a_new_leader_is_allowed_without_retries_and_told(judged: Judged) -> None:
    verdict, said = judged(TWO_LEADERS)
    assert (verdict.verdict, said.forbidden) == (Verdict.PASS, False), verdict.reasons
    assert said.why.startswith(
        "1 were appended in one leader epoch and again in a later one: the client sends"
    )


@pytest.mark.parametrize(
    ("batches", "lasted_s", "producers"),
    [
        (ONE_LEADER, 1.0, ONCE),
        (TWO_LEADERS, 0.1, ONCE),  # it had its answer before librdkafka sends anything again
        (TWO_LEADERS, 1.0, "acks: 0, retries: 0"),
        ((), 1.0, ONCE),  # nobody knows the epochs
    ],
)
def test_any_other_copy_without_retries_fails(
    judged: Judged, batches: Sequence[dict[str, Any]], lasted_s: float, producers: str
) -> None:
    said = judged(batches, lasted_s=lasted_s, producers=producers)[1]
    assert said.forbidden
    assert said.why.startswith("retries = 0")


@pytest.mark.parametrize(
    ("epochs", "lasted_s", "config", "expected"),
    [
        ((0, 1), 1.0, "", Verdict.PASS),
        ((0, 1), 0.1, "", Verdict.FAIL),
        ((1, 1), 1.0, "", Verdict.FAIL),
        ((1, 1), 3.0, ", config: {socket.timeout.ms: 2000}", Verdict.PASS),  # it waited in the client
        ((1, 1), 1.0, ", config: {socket.timeout.ms: 2000}", Verdict.FAIL),
    ],
)
def test_order_without_retries_is_kept_unless_the_record_was_sent_again(
    judged: Judged, epochs: Sequence[int], lasted_s: float, config: str, expected: Verdict
) -> None:
    verdict, said = judged(
        ONE_LEADER, anomaly="reordered", epochs=epochs, lasted_s=lasted_s, producers=ONCE + config
    )
    assert (verdict.verdict, said.forbidden) == (expected, expected is Verdict.FAIL)


@pytest.mark.parametrize(("min_insync", "expected"), [(1, Verdict.PASS), (2, Verdict.FAIL)])
def test_an_acknowledged_copy_may_go_only_where_a_loss_may(
    judged: Judged, min_insync: int, expected: Verdict
) -> None:
    assert judged(ONE_LEADER, anomaly="displaced", min_insync=min_insync)[0].verdict is expected


def _seconds_ms(seconds: float) -> int:
    return round(seconds * 1000)


EXPIRES = "producer.id.expiration.ms: 2000, producer.id.expiration.check.interval.ms: 500"


@pytest.mark.parametrize(
    ("config", "lasted_s", "idle_s", "expected"),
    [
        (EXPIRES, 5.0, 0.0, Verdict.PASS),
        (EXPIRES, 1.0, 0.0, Verdict.FAIL),  # the id was not idle for so long
        (EXPIRES, 1.0, 1.5, Verdict.PASS),  # it had been idle before the record was sent
        ("", 5.0, 0.0, Verdict.FAIL),
        (
            "producer.id.expiration.ms: 2000, producer.id.expiration.check.interval.ms: 600000",
            5.0,
            0.0,
            "PASS",
        ),
        (
            "producer.id.expiration.ms: 2000, producer.id.expiration.check.interval.ms: 6000000",
            5.0,
            0.0,
            "FAIL",
        ),
    ],
)
def test_a_copy_of_a_producer_id_that_may_have_been_forgotten_is_the_price_of_the_setting(
    judged: Judged, config: str, lasted_s: float, idle_s: float, expected: Verdict
) -> None:
    batches = (batch(0, 9), batch(10, 19, max_timestamp_ms=_seconds_ms(idle_s)))
    if config.endswith("check.interval.ms: 600000"):
        batches = (batches[0], {**batches[1], "leader_epoch": 1})  # another leader has loaded its log
    verdict, said = judged(batches, producers=IDEMPOTENT, config=config, lasted_s=lasted_s)
    assert verdict.verdict == expected, said.why
    if verdict.verdict is Verdict.PASS:
        assert "forgotten the producer id (producer.id.expiration.ms is 2000)" in said.why


@pytest.mark.parametrize(
    ("by", "jumped", "forbidden"),
    [
        ("24h", 1, False),
        ("24h", 2, True),  # not the leader's clock
        ("23h", 1, True),
        ("-24h", 1, True),
    ],
)
def test_a_clock_that_is_a_day_ahead_makes_the_leader_forget_at_kafkas_default(
    judged: Judged, by: str, jumped: int, forbidden: bool
) -> None:
    said = judged(
        (batch(0, 9, leader_epoch=1), batch(10, 19, leader_epoch=1)),
        producers=IDEMPOTENT,
        config="producer.id.expiration.check.interval.ms: 500",
        more=JUMP.format(node=jumped, by=by),
        jumped=jumped,
        lasted_s=4.0,
    )[1]
    assert said.forbidden is forbidden, said.why


def test_timestamps_of_the_leader_say_by_themselves_how_long_it_was_idle(judged: Judged) -> None:
    config = f"{EXPIRES}, log.message.timestamp.type: LogAppendTime"
    far = (batch(0, 9), batch(10, 19, max_timestamp_ms=_seconds_ms(2)))
    assert judged(far, producers=IDEMPOTENT, config=config, lasted_s=5.0)[0].verdict is Verdict.PASS


def test_timestamps_of_the_leader_that_are_near_excuse_nothing(judged: Judged) -> None:
    config = f"{EXPIRES}, log.message.timestamp.type: LogAppendTime"
    near = (batch(0, 9), batch(10, 19, max_timestamp_ms=_seconds_ms(1)))
    assert judged(near, producers=IDEMPOTENT, config=config, lasted_s=5.0)[0].verdict is Verdict.FAIL


def test_a_copy_of_another_producer_id_was_not_forgotten(judged: Judged) -> None:
    other = (batch(0, 9), batch(10, 19, producer_id=8))
    assert judged(other, producers=IDEMPOTENT, config=EXPIRES, lasted_s=5.0)[0].verdict is Verdict.FAIL


def test_a_copy_in_a_new_producer_epoch_is_not_excused_twice(judged: Judged) -> None:
    """The copy at 13 is unexplained. The copy at 23 has a new epoch, in which the id was idle for longer than its
    expiry."""
    late = batch(23, 29, producer_epoch=1, max_timestamp_ms=_seconds_ms(5))
    batches = (batch(0, 9), batch(10, 19), batch(20, 22, producer_epoch=1), late)
    verdict, said = judged(batches, producers=IDEMPOTENT, config=EXPIRES, offsets=(3, 13, 23), copies=2)
    assert verdict.verdict is Verdict.FAIL, said.why
    assert "1 of 2 stand against that" in said.why


def test_a_copy_in_a_new_producer_epoch_may_be_forgotten_too(judged: Judged) -> None:
    late = batch(20, 29, producer_epoch=1, max_timestamp_ms=_seconds_ms(5))
    batches = (batch(0, 9), batch(10, 19, producer_epoch=1), late)
    verdict, said = judged(batches, producers=IDEMPOTENT, config=EXPIRES, offsets=(3, 13, 23), copies=2)
    assert verdict.verdict is Verdict.PASS, said.why


def test_the_order_is_not_judged_where_ids_are_forgotten(judged: Judged) -> None:
    verdict, said = judged(ONE_LEADER, anomaly="reordered", producers=IDEMPOTENT, config=EXPIRES)
    assert (verdict.verdict, said.forbidden) == (Verdict.PASS, None)
    assert said.why.endswith("what that does to the order is not judged")
