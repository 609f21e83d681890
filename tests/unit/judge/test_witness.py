"""The logs on disk beside the final read: what they confirm, what they put in doubt, what they prove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackproof.judge import judge_case
from ackproof.observe.replica_logs import LogDir, collect_replica_logs
from ackproof.rundir.documents import FinalReadFile, PartitionRead, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.observed import Sample
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.payload import encoder
from broker_files import as_control, batch

from .conftest import EXPERIMENT

MakeRun = Callable[..., CaseDir]
GOOD = batch(0, [b"x"] * 60) + batch(60, [b"y"] * 40, epoch=1)


def _read(records: int = 100, end: int = 100, **other: object) -> FinalReadFile:
    values = {"start": 0, "epoch": 1, "epoch_after": 1, "complete": True, "position": end, **other}
    one = PartitionRead.model_validate(
        {"topic": "orders", "partition": 0, "end": end, "records": records, **values}
    )
    return FinalReadFile(complete=True, partitions=(one,))


@pytest.fixture
def judged(make_run: MakeRun, tmp_path: Path) -> Callable[..., VerdictFile]:
    """Judges a healthy run whose replicas have these logs. `isr`: as it was seen last.

    `torn`: the node whose log has bytes that are no batch, and a further segment behind them.
    """

    def judge(
        *logs: bytes | tuple[int, bytes] | None,
        final: FinalReadFile | None = None,
        isr: tuple[int, ...] = (1, 2, 3),
        consumed: int = 100,
        unread: bool = False,
        policy: str = "delete",
        later: bool = False,
        beside: bytes = b"",
        torn: int = 0,
        fault: str = "kill: {target: leader(orders/0)}",
    ) -> VerdictFile:
        read = final or _read()
        topic = f"{{min.insync.replicas: 2, cleanup.policy: {policy}}}"
        keys = ", keys: 5" if "compact" in policy else ""
        run = make_run(
            experiment=EXPERIMENT.format(min_insync=2, producers=f"acks: all{keys}", expect="")
            .replace("{min.insync.replicas: 2}", topic)
            .replace("kill: {target: leader(orders/0)}", fault),
            final=read,
            audit={"records": {"produced": 100, "acked": 100, "consumed_final": consumed}},
        )
        log_dirs = []
        for number, data in enumerate(logs, start=1):
            log_dirs.append(LogDir(number, tmp_path / str(number)))
            log_dirs[-1].path.mkdir()
            if data is not None:
                folder = log_dirs[-1].path / "orders-0"
                folder.mkdir()
                base, data = data if isinstance(data, tuple) else (0, data)
                (folder / f"{base:020d}.log").write_bytes(data)
            if number == torn:
                last = max(folder.glob("*.log"))
                last.write_bytes(last.read_bytes() + b"torn")
                (folder / f"{100:020d}.log").write_bytes(batch(100, [b"z"]))
            if beside:
                (log_dirs[-1].path / "orders-1").mkdir()
                (log_dirs[-1].path / "orders-1" / f"{0:020d}.log").write_bytes(beside)
        collect_replica_logs(log_dirs, ["orders"], run, "ab" * 8)
        sample = Sample(
            t_ns=10**15,
            topic="orders",
            partition=0,
            leader=1,
            leader_epoch=1,
            replicas=(1, 2, 3),
            isr=isr,
            high_watermark=max(100, read.partitions[0].end),
        )
        lines = [sample, replace(sample, t_ns=10**15 + 1, isr=())] if later else [sample]
        text = "".join(f"{line.line()}\n" for line in lines)
        run.samples.write_text(text, encoding="utf-8")
        if unread:
            run.final_read.unlink()
        return judge_case(run)

    return judge


SHORT = (60, batch(60, [b"y"] * 40, epoch=1))
Judged = Callable[..., VerdictFile]


def test_replicas_that_agree_are_said(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD)
    assert (said.verdict, said.reasons) == (Verdict.PASS, ())
    assert said.witnesses == (
        "orders/0: the logs of nodes 1, 2, 3 agree up to 100 and hold what the final read has; the records of 2 "
        "batches could not be read",
    )


def test_damage_that_no_header_shows_is_a_doubt(judged: Judged) -> None:
    damaged = bytearray(GOOD)
    damaged[-9] ^= 1
    said = judged(GOOD, bytes(damaged), GOOD)
    assert (said.verdict, said.witnesses) == (Verdict.INCONCLUSIVE, ())
    assert said.reasons == (
        "orders/0: the checksum of 1 batches in the log of node 2 does not hold, from offset 60 on",
    )


def test_a_reader_that_wrote_down_other_records_than_lie_there_is_not_believed(judged: Judged) -> None:
    value = encoder("ab" * 8, 0, "orders", 0, 80)
    log = batch(0, [value(seq) for seq in range(100)], key=None)
    said = judged(log, log, log)  # and its ledger has none
    assert (said.verdict, said.witnesses) == (Verdict.INCONCLUSIVE, ())
    assert said.reasons == (
        "orders/0: the final reader read other records than the log of node 1 holds, from offset 0 on "
        "(1 batches)",
    )


def test_what_lies_above_the_high_watermark_may_differ(judged: Judged) -> None:
    assert judged(GOOD + batch(100, [b"z"]), GOOD, GOOD).verdict is Verdict.PASS


def test_a_reader_that_was_handed_less_than_the_logs_hold_proves_no_loss(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD, final=_read(records=99), consumed=99)
    assert said.verdict is Verdict.INCONCLUSIVE
    assert said.reasons == ("orders/0: the final read has 99 records, and the log of node 1 holds 100",)
    assert said.witnesses == ()


def test_a_reader_that_was_handed_more_is_doubted_too(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD, final=_read(records=101), consumed=101)
    assert said.verdict is Verdict.INCONCLUSIVE


def test_logs_that_differ_below_the_high_watermark_fail(judged: Judged) -> None:
    said = judged(GOOD, batch(0, [b"x"] * 60) + batch(60, [b"Y"] * 40, epoch=1), GOOD)
    assert said.verdict is Verdict.FAIL
    assert said.reasons == (
        "orders/0: nodes 1 and 2 are in the ISR, and below the high watermark their logs differ from offset 60 on "
        "(2 batches)",
    )


def test_logs_that_differ_confirm_nothing(judged: Judged) -> None:
    log = batch(0, [b"x"] * 60) + batch(60, [b"Y"] * 40, epoch=1)
    assert judged(GOOD, log, GOOD).witnesses == ()


def test_what_one_replica_has_deleted_already_is_not_compared(judged: Judged) -> None:
    said = judged(GOOD, SHORT, GOOD, policy="delete, retention.ms: 1000")
    assert (said.verdict, said.reasons) == (Verdict.PASS, ())
    assert len(said.witnesses) == 1


def test_where_nothing_expires_all_logs_begin_where_the_read_does(judged: Judged) -> None:
    said = judged(GOOD, SHORT, GOOD)
    assert said.reasons == ("orders/0: the log of node 2 begins at 60, and the final read at 0",)


def test_logs_without_a_final_read_are_no_witness(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD, unread=True)
    assert said.reasons == ("there was no final read",)
    assert any("the logs on disk were not seen" in text for text in said.not_judged)


def test_where_no_isr_was_seen_no_log_is_a_witness(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD, isr=())
    assert said.verdict is Verdict.INCONCLUSIVE
    assert said.reasons[-1] == "orders/0: no log on disk was seen of any replica"
    assert "nobody knows who was in sync" in said.reasons[0]


def test_an_epoch_that_differs_is_a_difference(judged: Judged) -> None:
    said = judged(GOOD, GOOD, batch(0, [b"x"] * 60) + batch(60, [b"y"] * 40, epoch=2))
    assert said.verdict is Verdict.FAIL


def test_a_replica_in_the_isr_that_is_too_short_fails(judged: Judged) -> None:
    said = judged(GOOD, batch(0, [b"x"] * 60), GOOD)
    assert said.verdict is Verdict.FAIL
    assert "node 2 is in the ISR and its log ends at 60, below the high watermark 100" in said.reasons[0]


def test_a_replica_out_of_the_isr_may_be_short(judged: Judged) -> None:
    assert judged(GOOD, batch(0, [b"x"] * 60), GOOD, isr=(1, 3)).verdict is Verdict.PASS


def test_a_replica_that_was_not_seen_is_a_doubt(judged: Judged) -> None:
    said = judged(GOOD, None, GOOD)
    assert said.verdict is Verdict.INCONCLUSIVE
    assert "no log on disk was seen of node 2" in said.reasons[0]


def test_records_of_transactions_may_be_handed_or_not(judged: Judged) -> None:
    log = batch(0, [b"x"] * 60) + batch(60, [b"y"] * 40, epoch=1, pid=3, txn=True)
    assert judged(log, log, log, final=_read(records=60), consumed=60).verdict is Verdict.PASS


def test_but_not_fewer_than_those_without(judged: Judged) -> None:
    log = batch(0, [b"x"] * 60) + batch(60, [b"y"] * 40, epoch=1, pid=3, txn=True)
    assert judged(log, log, log, final=_read(records=59), consumed=59).verdict is Verdict.INCONCLUSIVE


def test_a_log_that_cannot_be_read_to_its_end_is_a_doubt_and_proves_nothing(judged: Judged) -> None:
    """What it holds is not held against the others, nor do these confirm anything without it."""
    said = judged(GOOD, batch(0, [b"x"] * 60), GOOD, torn=2)
    assert (said.verdict, said.witnesses) == (Verdict.INCONCLUSIVE, ())
    (reason,) = said.reasons
    assert reason.startswith("orders/0: the log of node 2: ")


def _marker(first: int) -> bytes:
    """A control batch, by its header."""
    return as_control(batch(first, [b"m"]))


@pytest.mark.parametrize(("records", "verdict"), [(100, Verdict.PASS), (101, Verdict.INCONCLUSIVE)])
def test_a_marker_is_handed_to_nobody(judged: Judged, records: int, verdict: Verdict) -> None:
    log = GOOD + _marker(100)
    final = _read(records=records, end=101)
    assert judged(log, log, log, final=final, consumed=records).verdict is verdict


OTHER = batch(0, [b"x"] * 60) + batch(60, [b"Y"] * 40, epoch=1)


@pytest.mark.parametrize(("records", "good"), [(-1, True), (0, False), (100, True)])
def test_what_the_reader_was_handed_is_held_against_the_logs_where_it_is_known(
    judged: Judged, records: int, good: bool
) -> None:
    said = judged(GOOD, GOOD, GOOD, final=_read(records=records), consumed=max(records, 0))
    assert (said.verdict is Verdict.PASS) is good, said.reasons
    assert len(said.witnesses) == good


@pytest.mark.parametrize("change", [{"final": _read(complete=False)}, {"policy": "compact"}])
def test_logs_are_not_compared_where_they_may_differ(judged: Judged, change: dict[str, Any]) -> None:
    assert judged(GOOD, OTHER, GOOD, **change).verdict is not Verdict.FAIL


def test_the_last_isr_that_was_seen_counts(judged: Judged) -> None:
    assert len(judged(GOOD, GOOD, GOOD, later=True).witnesses) == 1


def test_each_partition_has_logs_of_its_own(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD, beside=batch(0, [b"q"] * 5))
    assert (said.verdict, said.reasons) == (Verdict.PASS, ())


@pytest.mark.parametrize(
    ("log", "final"),
    [
        (GOOD, _read(start=30, records=70)),
        (GOOD, _read(start=59, records=41)),
    ],
    ids=["over the start", "from the start"],
)
def test_of_a_batch_over_an_end_of_the_read_some_records_are_handed(
    judged: Judged, log: bytes, final: FinalReadFile
) -> None:
    said = judged(
        log, log, log, final=final, consumed=final.partitions[0].records, policy="delete, retention.ms: 1000"
    )
    assert (said.verdict, said.reasons) == (Verdict.PASS, ())


ROT = "truncate_segment: {target: follower(orders/0)}"
OTHER = batch(0, [b"x"] * 60) + batch(60, [b"Y"] * 40, epoch=1)


@pytest.mark.parametrize(
    ("fault", "logs", "verdict", "words"),
    [
        (ROT, (GOOD, OTHER, GOOD), Verdict.INCONCLUSIVE, "; fault 1 took from that of node 2"),
        (
            ROT,
            (GOOD, GOOD, OTHER),
            Verdict.FAIL,
            "nodes 1 and 3 are in the ISR, and below the high watermark",
        ),
        (
            ROT,
            (GOOD, batch(0, [b"x"] * 60), GOOD),
            Verdict.INCONCLUSIVE,
            "the high watermark 100; fault 1",
        ),
        (
            ROT,
            (GOOD, GOOD, batch(0, [b"x"] * 60)),
            Verdict.FAIL,
            "node 3 is in the ISR and its log ends at 60",
        ),
        (
            "kill: {target: leader(orders/0)}",
            (GOOD, OTHER, GOOD),
            Verdict.FAIL,
            "nodes 1 and 2 are in the ISR",
        ),
    ],
)
def test_what_a_fault_took_from_a_log_is_not_held_against_kafka(
    judged: Judged, fault: str, logs: tuple[bytes, ...], verdict: Verdict, words: str
) -> None:
    """It was aimed at node 2. What is wrong with another node's log, or another partition's, is Kafka's."""
    said = judged(*logs, fault=fault)
    assert said.verdict is verdict, said.reasons
    assert any(words in reason for reason in said.reasons), said.reasons


@pytest.mark.parametrize("more", [1, 20])
def test_what_every_log_holds_behind_the_end_of_the_read_is_not_gone(judged: Judged, more: int) -> None:
    log = GOOD + batch(100, [b"z"] * more, epoch=1)
    said = judged(log, log, log)
    assert said.reasons == (
        f"orders/0: the logs of nodes 1, 2, 3 go on to {100 + more}, and the final read ended at 100",
    )


def test_of_what_a_reader_began_above_the_logs_are_not_asked(judged: Judged) -> None:
    """It was handed what lies from 60 on; what differs below it was not looked at."""
    other = batch(0, [b"z"] * 60) + batch(60, [b"y"] * 40, epoch=1)
    said = judged(
        GOOD, other, GOOD, final=_read(40, start=60), consumed=40, policy="delete, retention.ms: 1000"
    )
    assert said.verdict is Verdict.PASS, said.reasons


def test_a_log_with_a_rest_is_held_against_nothing(judged: Judged) -> None:
    said = judged(GOOD, batch(0, [b"z"] * 100, epoch=1), GOOD, torn=2)
    assert said.verdict is Verdict.INCONCLUSIVE
    assert not any("differ" in reason for reason in said.reasons)


def test_what_one_log_lacks_behind_the_end_of_the_read_is_not_committed(judged: Judged) -> None:
    log = GOOD + batch(100, [b"z"], epoch=1)
    assert judged(log, log, GOOD).verdict is Verdict.PASS


def test_a_hole_in_a_log_is_a_doubt(judged: Judged) -> None:
    log = batch(0, [b"x"] * 60) + batch(70, [b"y"] * 30, epoch=1)
    said = judged(log, log, log, final=_read(records=90), consumed=90)
    assert said.reasons[0] == "orders/0: the log of node 1 lacks offset 60, and the final read ends at 100"


def test_bytes_behind_the_last_batch_are_a_doubt(judged: Judged) -> None:
    said = judged(GOOD, GOOD + b"torn", GOOD)
    assert said.reasons == ("orders/0: 4 bytes at the end of the log of node 2 are no batch",)


def test_the_first_difference_is_named(judged: Judged) -> None:
    one, other = (
        batch(0, [b"x"] * 60) + batch(60, [byte] * 20) + batch(80, [byte] * 20) for byte in (b"y", b"Y")
    )
    assert "differ from offset 60 on (4 batches)" in judged(one, other, one).reasons[0]


def test_a_run_without_logs_says_that_there_is_no_witness(make_run: MakeRun) -> None:
    said = judge_case(make_run())
    assert said.verdict is Verdict.PASS
    assert "the logs on disk were not seen, so the final read has no second witness" in said.not_judged
