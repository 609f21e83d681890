"""Tests of the logs on disk compared with the final read: what they confirm, put in doubt, or prove."""

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
from judged_run import EXPERIMENT

MakeRun = Callable[..., CaseDir]
KILL, POWER = "kill: {target: leader(orders/0)}", "power_loss: {target: leader(orders/0)}"
COMMAND = "command: {inject: [x], check: [x], heal: [x]}"
GOOD = batch(0, [b"x"] * 60) + batch(60, [b"y"] * 40, epoch=1)


def _read(records: int = 100, end: int = 100, **other: object) -> FinalReadFile:
    values = {"start": 0, "epoch": 1, "epoch_after": 1, "complete": True, "position": end, **other}
    one = PartitionRead.model_validate(
        {"topic": "orders", "partition": 0, "end": end, "records": records, **values}
    )
    return FinalReadFile(complete=True, partitions=(one,))


@pytest.fixture
def judged(make_run: MakeRun, tmp_path: Path) -> Callable[..., VerdictFile]:
    """Return a function that judges a healthy run with these `logs`: bytes, (base offset, bytes), or None for no log.
    `isr`: as last sampled. `consumed`: rows of the final reader. `unread`: no final read. `later`: a newer sample lacks
    the ISR. `beside`: log of another partition. `torn`: node whose log has bytes that form no batch, then a segment."""

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
        fault: str = KILL,
    ) -> VerdictFile:
        read = final or _read()
        topic = f"{{min.insync.replicas: 2, cleanup.policy: {policy}}}"
        keys = ", keys: 5" if "compact" in policy else ""
        run = make_run(
            experiment=EXPERIMENT.format(min_insync=2, producers=f"acks: all{keys}", expect="")
            .replace("{min.insync.replicas: 2}", topic)
            .replace(KILL, fault)
            .replace("restart_after", "for" if fault == COMMAND else "restart_after"),
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


OTHER = batch(0, [b"x"] * 60) + batch(60, [b"Y"] * 40, epoch=1)
DAMAGED = GOOD[:-9] + bytes([GOOD[-9] ^ 1]) + GOOD[-8:]
CUT = batch(0, [b"x"] * 60)
HOLE = CUT + batch(70, [b"y"] * 30, epoch=1)
IN_TRANSACTIONS = CUT + batch(60, [b"y"] * 40, epoch=1, pid=3, txn=True)
WITH_MARKER = GOOD + as_control(batch(100, [b"m"]))
THREE, FOURTH = (CUT + batch(60, [byte] * 20) + batch(80, [byte] * 20) for byte in (b"y", b"Y"))
OURS = batch(0, [encoder("ab" * 8, 0, "orders", 0, 80)(seq) for seq in range(100)], key=None)
EXPIRES = {"policy": "delete, retention.ms: 1000"}


def _read_of(records: int, **read: int) -> dict[str, Any]:
    return {"final": _read(records, **read), "consumed": max(records, 0)}


@pytest.mark.parametrize(
    ("logs", "changes"),
    [
        pytest.param((GOOD + batch(100, [b"z"]), GOOD, GOOD), {}, id="one goes on above the high watermark"),
        pytest.param((GOOD, SHORT, GOOD), EXPIRES, id="one replica has deleted records already"),
        pytest.param((GOOD, CUT, GOOD), {"isr": (1, 3)}, id="out of the ISR it may be short"),
        pytest.param((IN_TRANSACTIONS,) * 3, _read_of(60), id="of transactions nothing was handed over"),
        pytest.param((WITH_MARKER,) * 3, _read_of(100, end=101), id="a marker is handed to nobody"),
        pytest.param((GOOD,) * 3, _read_of(-1), id="nobody counted what was handed over"),
        pytest.param((GOOD,) * 3, {"later": True}, id="the last ISR that was seen counts"),
        pytest.param((GOOD,) * 3, {"beside": batch(0, [b"q"] * 5)}, id="another partition has logs, too"),
        pytest.param((GOOD,) * 3, _read_of(70, start=30) | EXPIRES, id="the read begins within a batch"),
        pytest.param(
            (GOOD,) * 3, _read_of(41, start=59) | EXPIRES, id="the read begins at the last of a batch"
        ),
        pytest.param(
            (GOOD, batch(0, [b"z"] * 60) + batch(60, [b"y"] * 40, epoch=1), GOOD),
            _read_of(40, start=60) | EXPIRES,
            id="what differs lies below the read",
        ),
        pytest.param(
            (GOOD + batch(100, [b"z"], epoch=1),) * 2 + (GOOD,), {}, id="one lacks what follows the read"
        ),
    ],
)
def test_logs_confirm_the_final_read(judged: Judged, logs: tuple[Any, ...], changes: dict[str, Any]) -> None:
    said = judged(*logs, **changes)
    assert (said.verdict, said.reasons, len(said.witnesses)) == (Verdict.PASS, (), 1)


@pytest.mark.parametrize(
    ("logs", "changes", "reason"),
    [
        (
            (GOOD, DAMAGED, GOOD),
            {},
            "the checksum of 1 batches in the log of node 2 does not hold, from offset 60 on",
        ),
        # the reader's ledger has none of these records
        (
            (OURS,) * 3,
            {},
            "the final reader read other records than the log of node 1 holds, from offset 0 on (1 batches)",
        ),
        ((GOOD,) * 3, _read_of(99), "the final read has 99 records, and the log of node 1 holds 100"),
        ((GOOD,) * 3, _read_of(0), "the final read has 0 records, and the log of node 1 holds 100"),
        (
            (WITH_MARKER,) * 3,
            _read_of(101, end=101),
            "the final read has 101 records, and the log of node 1 holds 100",
        ),
        (
            (IN_TRANSACTIONS,) * 3,
            _read_of(59),
            "the final read has 59 records, and the log of node 1 holds 60 to 100",
        ),
        ((GOOD, None, GOOD), {}, "no log on disk was seen of node 2"),
        ((HOLE,) * 3, _read_of(90), "the log of node 1 lacks offset 60, and the final read ends at 100"),
        ((GOOD, GOOD + b"torn", GOOD), {}, "4 bytes at the end of the log of node 2 are no batch"),
        # what lies before the torn end is not held against the others, nor do these confirm anything without it
        ((GOOD, CUT, GOOD), {"torn": 2}, "the log of node 2: "),
        ((GOOD, batch(0, [b"z"] * 100, epoch=1), GOOD), {"torn": 2}, "the log of node 2: "),
        (
            (GOOD + batch(100, [b"z"], epoch=1),) * 3,
            {},
            "the logs of nodes 1, 2, 3 go on to 101, and the final read ended at 100",
        ),
        (
            (GOOD + batch(100, [b"z"] * 20, epoch=1),) * 3,
            {},
            "the logs of nodes 1, 2, 3 go on to 120, and the final read ended at 100",
        ),
    ],
)
def test_what_puts_the_final_read_in_doubt(
    judged: Judged, logs: tuple[Any, ...], changes: dict[str, Any], reason: str
) -> None:
    said = judged(*logs, **changes)
    assert (said.verdict, said.witnesses) == (Verdict.INCONCLUSIVE, ())
    assert said.reasons[0].startswith(f"orders/0: {reason}")
    assert len(said.reasons) == 1 or logs[0] == HOLE, said.reasons
    assert not any("differ" in text for text in said.reasons)


def test_two_readers_that_pass_over_what_the_logs_hold_were_not_served_it(judged: Judged) -> None:
    said = judged(OURS, OURS, OURS, final=_read(90, again=90), consumed=90)
    assert said.verdict is Verdict.FAIL
    assert said.reasons[0].endswith("; a second reader passed over records that the log holds, too")


def test_two_readers_that_got_all_but_a_marker_prove_nothing(judged: Judged) -> None:
    said = judged(*(OURS + as_control(batch(100, [b"m"])),) * 3, final=_read(100, end=101, again=100))
    assert said.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("again", "fault"), [(-1, KILL), (100, KILL), (90, POWER), (90, COMMAND)])
def test_one_reader_and_two_of_a_damaged_log_prove_nothing(judged: Judged, again: int, fault: str) -> None:
    said = judged(OURS, OURS, OURS, final=_read(90, again=again), consumed=90, fault=fault)
    assert said.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("logs", "reason"),
    [
        (
            (GOOD, OTHER, GOOD),
            "nodes 1 and 2 are in the ISR, and below the high watermark their logs differ from "
            "offset 60 on (2 batches)",
        ),
        (
            (GOOD, GOOD, CUT + batch(60, [b"y"] * 40, epoch=2)),
            "nodes 1 and 3 are in the ISR, and below the high",
        ),
        ((GOOD, CUT, GOOD), "node 2 is in the ISR and its log ends at 60, below the high watermark 100"),
        (
            (THREE, FOURTH, THREE),
            "nodes 1 and 2 are in the ISR, and below the high watermark their logs differ from "
            "offset 60 on (4 batches)",
        ),
    ],
)
def test_what_replicas_in_the_isr_lack_fails(judged: Judged, logs: tuple[Any, ...], reason: str) -> None:
    said = judged(*logs)
    assert (said.verdict, said.witnesses) == (Verdict.FAIL, ())
    assert said.reasons[0].startswith(f"orders/0: {reason}")


def test_a_reader_that_was_handed_more_is_doubted_too(judged: Judged) -> None:
    assert judged(GOOD, GOOD, GOOD, **_read_of(101)).verdict is Verdict.INCONCLUSIVE


def test_where_nothing_expires_all_logs_begin_where_the_read_does(judged: Judged) -> None:
    said = judged(GOOD, SHORT, GOOD)
    assert said.reasons == ("orders/0: the log of node 2 begins at 60, and the final read at 0",)


LATE: Any = {"final": _read(start=60, records=40), "consumed": 40}


def test_one_log_that_begins_at_0_leaves_a_late_start_open(judged: Judged) -> None:
    assert judged(SHORT, SHORT, GOOD, **LATE).verdict is Verdict.INCONCLUSIVE


def test_where_all_logs_begin_too_late_records_were_deleted(judged: Judged) -> None:
    said = judged(SHORT, SHORT, SHORT, **LATE)
    assert (said.verdict, said.reasons) == (
        Verdict.FAIL,
        (
            "orders/0: the logs of all in-sync replicas begin at 60, as the final read does, and no setting deletes "
            "records",
        ),
    )


NOTHING: Any = _read_of(0, start=60, end=70) | EXPIRES


def test_offsets_that_no_log_has_and_the_reader_did_not_get_fail(judged: Judged) -> None:
    (found,) = [one for one in judged(HOLE, HOLE, HOLE, **NOTHING).opinions if one.kind == "breaks"]
    assert found.proven
    assert found.text.startswith(
        "orders/0: none of the logs of nodes 1, 2, 3 has offset 60, and the final reader got no record from there to "
        "offset 69"
    )


@pytest.mark.parametrize(
    ("logs", "changes"),
    [
        pytest.param(
            (HOLE,) * 3, NOTHING | {"fault": "truncate_segment: {target: leader(orders/0)}"}, id="a fault"
        ),
        pytest.param((HOLE,) * 3, _read_of(3, start=60, end=70) | EXPIRES, id="the reader got records there"),
        pytest.param((HOLE, None, HOLE), NOTHING, id="a log was not seen"),
    ],
)
def test_offsets_that_no_log_has_stay_open(
    judged: Judged, logs: tuple[Any, ...], changes: dict[str, Any]
) -> None:
    assert "breaks" not in {one.kind for one in judged(*logs, **changes).opinions}


@pytest.mark.parametrize(
    ("second", "verdict", "reason"),
    [
        (
            CUT,
            Verdict.FAIL,
            "orders/0: the leader answered the end offset 100, and the logs of nodes 1, 2, 3, all that are in sync, "
            "end at 60",
        ),
        (GOOD, Verdict.INCONCLUSIVE, "the final read is incomplete: "),
    ],
)
def test_an_end_offset_that_no_log_reaches_fails_though_no_reader_gets_there(
    judged: Judged, second: bytes, verdict: Verdict, reason: str
) -> None:
    unfinished = _read(complete=False, position=60).model_copy(
        update={"complete": False, "reasons": ("orders/0: the reader came to 60 of 100",)}
    )
    said = judged(CUT, second, CUT, final=unfinished)
    assert said.verdict is verdict
    assert said.reasons[0].startswith(reason)


def test_where_no_isr_was_seen_no_log_is_a_witness(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD, isr=())
    assert said.verdict is Verdict.INCONCLUSIVE
    assert said.reasons[-1] == "orders/0: no log on disk was seen of any replica"
    assert "nobody knows who was in sync" in said.reasons[0]


def test_logs_without_a_final_read_are_no_witness(judged: Judged) -> None:
    said = judged(GOOD, GOOD, GOOD, unread=True)
    assert said.reasons == ("there was no final read",)
    assert any("the logs on disk were not seen" in text for text in said.not_judged)


@pytest.mark.parametrize("change", [{"final": _read(complete=False)}, {"policy": "compact"}])
def test_logs_are_not_compared_where_they_may_differ(judged: Judged, change: dict[str, Any]) -> None:
    assert judged(GOOD, OTHER, GOOD, **change).verdict is not Verdict.FAIL


ROT = "truncate_segment: {target: follower(orders/0)}"


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
    """The fault was aimed at node 2. Damage to the log of another node or partition counts against Kafka."""
    said = judged(*logs, fault=fault)
    assert said.verdict is verdict, said.reasons
    assert any(words in reason for reason in said.reasons), said.reasons


def test_a_run_without_logs_says_that_there_is_no_witness(make_run: MakeRun) -> None:
    said = judge_case(make_run())
    assert said.verdict is Verdict.PASS
    assert "the logs on disk were not seen, so the final read has no second witness" in said.not_judged
