"""Tests of logs on disk: records that brokers do not serve, damaged batches, and wrong timestamp types. They are not
held against Kafka if a fault, retention or the clock may be the cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackproof.judge import judge_case
from ackproof.observe.replica_logs import LogDir, collect_replica_logs
from ackproof.rundir.documents import CaseFile, FinalReadFile, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.removals import TimestampRule, write_by_partition
from broker_files import as_control, batch, with_append_time
from judged_run import EXPERIMENT, WHOLE, in_sync

KILL = "kill: {target: leader(orders/0)}"
ROT = "truncate_segment: {target: follower(orders/0)}"
COMMAND = "command: {inject: [x], check: [x], heal: [x]}"
FIRST, SECOND = batch(0, [b"x"] * 60), batch(60, [b"y"] * 40, epoch=1)
GOOD = FIRST + SECOND
SHORT = (60, SECOND)


def _damage(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


BAD_FIRST, BAD_LAST = _damage(FIRST) + SECOND, FIRST + _damage(SECOND)
Log = bytes | tuple[int, bytes]
Judged = Callable[..., VerdictFile]


@pytest.fixture
def judged(make_run: Callable[..., CaseDir], tmp_path: Path) -> Judged:
    """Return a function that judges a run of 100 records with these `logs` of its replicas, each as bytes or as (base
    offset, bytes).

    `start`: offset from which brokers serve records. `clock_set_s`: by how much the machine's clock was set ahead
    before the end. `isr`: whether the ISR was sampled. `appended`: allowed append times in ms, for LogAppendTime.
    """

    def judge(
        *logs: Log,
        start: int = 0,
        fault: str = KILL,
        config: str = "",
        clock_set_s: float = 0,
        isr: bool = True,
        appended: tuple[int, int] | None = None,
    ) -> VerdictFile:
        (one,) = WHOLE.partitions
        read = one.model_copy(update={"start": start, "end": 100, "position": 100, "records": 100 - start})
        run = make_run(
            experiment=EXPERIMENT.format(min_insync=2, producers="acks: all", expect="")
            .replace("{min.insync.replicas: 2}", f"{{min.insync.replicas: 2{config}}}")
            .replace(KILL, fault)
            .replace("restart_after", "for" if fault == COMMAND else "restart_after"),
            final=FinalReadFile(complete=True, partitions=(read,)),
            audit={"records": {"produced": 100, "acked": 100, "consumed_final": 100 - start}},
        )
        log_dirs = [LogDir(number, tmp_path / str(number)) for number in range(1, len(logs) + 1)]
        for log_dir, log in zip(log_dirs, logs, strict=True):
            base, data = log if isinstance(log, tuple) else (0, log)
            (log_dir.path / "orders-0").mkdir(parents=True)
            (log_dir.path / "orders-0" / f"{base:020d}.log").write_bytes(data)
        collect_replica_logs(log_dirs, ["orders"], run, "ab" * 8)
        if not isr:
            run.samples.write_text(f"{replace(in_sync('orders', 0), isr=()).line()}\n")
        if appended is not None:
            rule = TimestampRule("orders", 0, sent_from_ns=None, appended_ms=appended)
            write_by_partition(run.timestamps_json, [rule])
        _set_clock(run, round(clock_set_s * 1e9))
        return judge_case(run)

    return judge


def _set_clock(run: CaseDir, ahead_ns: int) -> None:
    """Write the wall-clock times of the run. The last event has a time that is `ahead_ns` later, as if the clock had
    been set."""
    lines = [json.loads(line) for line in run.timeline.read_text().splitlines()]
    began_ns = 1_700_000_000_000_000_000
    for line in lines:
        line["wall_ns"] = began_ns + line["t_ns"]
    lines[-1]["wall_ns"] += ahead_ns
    run.timeline.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    CaseFile.load(run.case_json).model_copy(update={"wall_ns": began_ns}).save(run.case_json)


def test_records_on_all_disks_that_nobody_serves_are_lost_to_clients(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD, start=60)
    text = (
        "orders/0: the logs of all in-sync replicas hold records from offset 0 on, brokers serve them from 60, and no "
        "setting deletes records"
    )
    assert said.verdict is Verdict.FAIL
    assert text in said.reasons


def test_where_all_is_served_nothing_is_said(judged: Judged) -> None:
    assert judged(GOOD, GOOD, GOOD).verdict is Verdict.PASS


def test_where_one_log_begins_later_the_disks_disagree(judged: Judged) -> None:
    assert judged(GOOD, SHORT, GOOD, start=60).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("logs", [(GOOD, GOOD, GOOD), (SHORT, SHORT, SHORT)])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"fault": COMMAND}, id="a command may delete records"),
        pytest.param({"fault": ROT}, id="a fault damaged the log"),
        pytest.param({"clock_set_s": 8 * 86_400}, id="by the clock records are a week old"),
        pytest.param({"isr": False}, id="nobody knows who was in sync"),
        pytest.param({"config": ", retention.bytes: 10"}, id="retention by size"),
        pytest.param({"config": ", retention.ms: 100"}, id="retention by age"),
    ],
)
def test_what_others_may_have_deleted_is_not_held_against_kafka(
    judged: Judged, logs: tuple[Log, ...], changes: dict[str, Any]
) -> None:
    assert judged(*logs, start=60, **changes).verdict is not Verdict.FAIL


def test_a_clock_that_was_set_by_less_than_retention_excuses_nothing(judged: Judged) -> None:
    assert judged(GOOD, GOOD, GOOD, start=60, clock_set_s=86_400).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("logs", "witness"),
    [
        ((BAD_FIRST, b"", GOOD), "the log of node 2 ends there"),
        ((BAD_FIRST, BAD_FIRST, GOOD), "that of node 2 has the same damage"),
        ((BAD_FIRST, GOOD, GOOD), "the copy in that of node 2 is whole"),
    ],
)
def test_a_batch_written_damaged_proves_itself(judged: Judged, logs: tuple[Log, ...], witness: str) -> None:
    said = judged(*logs)
    assert (said.verdict, said.reasons[0]) == (
        Verdict.FAIL,
        "orders/0: the checksum of the batch at offset 0 in the log of node 1 does not hold, "
        f"{witness}, and no fault damages disks",
    )


@pytest.mark.parametrize(
    ("logs", "fault"),
    [
        pytest.param((BAD_FIRST, GOOD, GOOD), ROT, id="a fault damaged one log"),
        pytest.param((BAD_LAST, BAD_LAST, BAD_LAST), KILL, id="the last one may be in writing"),
        pytest.param((BAD_FIRST, GOOD, BAD_FIRST), ROT, id="a fault damaged a log"),
        pytest.param((BAD_FIRST, GOOD, BAD_FIRST), COMMAND, id="a command may damage logs"),
    ],
)
def test_a_checksum_that_others_may_break_proves_nothing(
    judged: Judged, logs: tuple[Log, ...], fault: str
) -> None:
    assert judged(*logs, fault=fault).verdict is Verdict.INCONCLUSIVE


def test_batches_with_a_timestamp_type_that_the_topic_never_had_fail(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD, appended=(0, 10**15))
    assert (said.verdict, said.reasons) == (
        Verdict.FAIL,
        (
            "orders/0: message.timestamp.type was never CreateTime, and 6 batches on disk have that type, such as the "
            "one at offset 0 in the log of node 1",
        ),
    )


def test_markers_have_the_time_of_their_append_whatever_the_topic_says(judged: Judged) -> None:
    log = with_append_time(FIRST) + as_control(batch(60, [b"m"])) + with_append_time(batch(61, [b"y"] * 39))
    logs = (log,) * 3
    texts = [one.text for one in judged(*logs, appended=(0, 10**15)).opinions]
    assert not any("message.timestamp.type" in text for text in texts)
