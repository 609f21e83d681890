"""Tests of `ackproof explain`: the story of one record from the files of a run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.base.errors import BadInput
from ackproof.cli import main as cli
from ackproof.rundir.batch import BatchCase, BatchFile
from ackproof.rundir.clock import RunClock
from ackproof.rundir.documents import ClassJudgement, VerdictFile
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import ConsumedRows, ProducedRows, write_consumed, write_produced
from ackproof.rundir.model import ConformanceFile, Deletion, Truncation, UnexplainedRecord, UnplacedLoss
from ackproof.rundir.outcome import Outcome, ReadPhase, Verdict
from ackproof.rundir.replicas import BATCHES
from ackproof.rundir.schema import FINDINGS
from ackproof.rundir.timeline import (
    FaultAsked,
    FaultConfirmed,
    IsrChanged,
    LeaderChanged,
    NodeStarted,
    Timeline,
)
from ackproof_reports.one_record import MOST_EVENTS, RecordId, Spot, find_records, first_found, story_of

PLACES = (("orders", 0), ("orders", 1))
S = 1_000_000_000


def produced(run: CaseDir, producer: int, *rows: tuple[int, int, Outcome, int, float, float]) -> None:
    """Write rows of a producer's ledger, each (index of the partition, seq, outcome, offset, time sent, time done in s;
    -1: none)."""
    place, seq, outcome, offset, sent, done = zip(*rows, strict=True)
    write_produced(
        run.produced / f"client=p{producer}",
        0,
        ProducedRows(
            producer=producer,
            places=PLACES,
            place=np.array(place),
            seq=np.array(seq),
            outcome=np.array(outcome, np.int8),
            error=np.array([0 if each is Outcome.ACKED else 7 for each in outcome], np.int16),
            offset=np.array(offset),
            sent_ns=np.array([int(each * S) for each in sent]),
            done_ns=np.array([-1 if each < 0 else int(each * S) for each in done]),
        ),
    )


def consumed(
    run: CaseDir, client: str, phase: ReadPhase, *rows: tuple[int, int, int, int, int, float]
) -> None:
    """Write rows of a reader's ledger, each (index of the partition, offset, leader epoch, producer, seq, time read in
    s)."""
    place, offset, epoch, producer, seq, read = zip(*rows, strict=True)
    count = len(rows)
    write_consumed(
        run.consumed / f"client={client}",
        0,
        ConsumedRows(
            reader=9 if phase is ReadPhase.FINAL else 0,
            phase=phase,
            places=PLACES,
            origins=("orders",),
            place=np.array(place, np.int32),
            assignment=np.zeros(count, np.int32),
            read_seq=np.arange(count),
            offset=np.array(offset),
            leader_epoch=np.array(epoch, np.int32),
            producer=np.array(producer, np.int32),
            seq=np.array(seq),
            origin=np.zeros(count, np.int32),
            origin_partition=np.array(place, np.int32),
            intact=np.ones(count, np.bool_),
            read_ns=np.array([int(each * S) for each in read]),
            timestamp_ms=np.zeros(count, np.int64),
        ),
    )


def findings(run: CaseDir, *rows: tuple[str, str, int, int, int, int, str]) -> None:
    run.findings.mkdir(parents=True, exist_ok=True)
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), FINDINGS, strict=True)
    ]
    pq.write_table(pa.Table.from_arrays(columns, schema=FINDINGS), run.findings / "part-0.parquet")


@pytest.fixture
def run(tmp_path: Path) -> CaseDir:
    """A run in which seq 5 of producer 0 was acknowledged at orders/0@7 in epoch 3, read, truncated, and overwritten by
    seq 2 of producer 1."""
    run = CaseDir(tmp_path)
    produced(
        run,
        0,
        (0, 4, Outcome.ACKED, 6, 4.0, 4.1),
        (0, 5, Outcome.ACKED, 7, 5.0, 5.1),
        (1, 6, Outcome.INDETERMINATE, -1, 5.0, -1),
        (1, 7, Outcome.FAILED, -1, 5.0, 5.5),
    )
    produced(run, 1, (0, 2, Outcome.ACKED, 7, 9.0, 9.1))
    consumed(run, "r0", ReadPhase.LIVE, (0, 6, 3, 0, 4, 4.2), (0, 7, 3, 0, 5, 5.2))
    consumed(run, "f0", ReadPhase.FINAL, (0, 6, 3, 0, 4, 20.0), (0, 7, 4, 1, 2, 20.0))
    findings(
        run,
        ("overwritten", "orders", 0, 0, 7, 5, "by 1:2"),
        ("lost", "orders", 0, 0, 7, 5, ""),
    )
    run.audit_json.write_text("{}")
    run.observed.mkdir()
    run.final_read.write_text("{}")
    ConformanceFile(
        truncations=(
            Truncation(
                topic="orders", partition=0, from_offset=7, to_offset=9, old_epoch=3, new_epoch=4,
                new_leader=2, why="broker 1 fenced: broker 2 led from offset 7",
            ),
            Truncation(
                topic="orders", partition=0, from_offset=5, to_offset=9, old_epoch=2, new_epoch=3,
                new_leader=2, why="an earlier one",
            ),
        )
    ).save(run.conformance_json)  # fmt: skip
    batch = (2, "orders", 0, 7, 8, 4, 2, False, False, -1, -1, -1, 0, 0, True, -1, 90, 0)
    table = pa.Table.from_arrays(
        [pa.array([value], field.type) for value, field in zip(batch, BATCHES, strict=True)], schema=BATCHES
    )
    pq.write_table(table, run.replica_batches)
    with Timeline(run.timeline, RunClock.start()) as timeline:
        timeline.add(LeaderChanged(leader=1, epoch=3), topic="orders", partition=0, t_ns=1 * S)
        timeline.add(FaultAsked(kind="kill", role="leader(orders/0)", nodes=(1,)), fault=1, t_ns=6 * S)
        timeline.add(FaultConfirmed(witness="node 1 gone"), fault=1, t_ns=int(6.2 * S))
        timeline.add(LeaderChanged(leader=2, epoch=4), topic="orders", partition=0, t_ns=8 * S)
        timeline.add(LeaderChanged(leader=3, epoch=9), topic="orders", partition=1, t_ns=8 * S)
        timeline.add(NodeStarted(pid=4711), node=1, t_ns=10 * S)
        timeline.add(LeaderChanged(leader=1, epoch=5), topic="orders", partition=0, t_ns=40 * S)
    return run


def told(run: CaseDir, text: str) -> list[str]:
    return [line.strip() for line in story_of(run, RecordId.parse(text)).lines()]


def test_the_story_of_a_lost_record(run: CaseDir) -> None:
    assert told(run, "0:5") == [
        "record 5 of producer 0, orders/0",
        "5.000 s  sent by producer 0",
        "5.100 s  acknowledged at offset 7",
        "5.200 s  handed to live reader 0 at orders/0 offset 7, leader epoch 3",
        "6.000 s  fault 1: kill leader(orders/0) on node 1",
        "6.200 s  fault 1 bit: node 1 gone",
        "8.000 s  orders/0: node 2 leads in epoch 4",
        "10.000 s  node 1 started",
        "the final read does not hold it",
        "at orders/0@7 the final read holds record 2 of producer 1, leader epoch 4",
        "on disk at orders/0@7: node 2 offsets 7 to 8 of epoch 4",
        "the audit counts it as overwritten, lost",
        "what took it: offsets 7 to 8 of epoch 3 were truncated: broker 1 fenced: broker 2 led from offset 7",
    ]


def test_a_record_that_is_there(run: CaseDir) -> None:
    lines = told(run, "0:4")
    assert "20.000 s  the final read holds it at orders/0 offset 6, leader epoch 3" in lines
    assert "the audit finds nothing wrong with it" in lines
    assert "on disk at orders/0@6: no replica has a batch there" in lines
    assert not [line for line in lines if "what took it" in line or "does not hold" in line]


@pytest.mark.parametrize(
    ("markers", "says"),
    [
        ([(9, 1)], "the next marker of its producer commits it, at offset 9"),
        ([(9, 0), (12, 1)], "the next marker of its producer aborts it, at offset 9"),
        ([(9, -1)], "the next marker of its producer ends it, nobody knows how, at offset 9"),
        ([], "no marker of its producer is behind orders/0@7: its transaction is open there"),
    ],
)
def test_the_marker_that_ended_its_transaction_is_named(
    run: CaseDir, markers: list[tuple[int, int]], says: str
) -> None:
    """Markers of another producer, and markers before the record, do not end its transaction."""
    batches = [(2, "orders", 0, 7, 8, 4, 2, False, True, 31, 0, 0, 0, 0, True, -1, 90, 0)]
    ends = [(6, 31, 1), *((offset, 31, kind) for offset, kind in markers), (8, 32, 0), (30, 32, 1)]
    batches += [
        (2, "orders", 0, at, at, 4, 1, True, True, who, 0, -1, 0, 0, True, kind, 78, 0)
        for at, who, kind in ends
    ]
    columns = zip(zip(*batches, strict=True), BATCHES, strict=True)
    arrays = [pa.array(values, field.type) for values, field in columns]
    pq.write_table(pa.Table.from_arrays(arrays, schema=BATCHES), run.replica_batches)
    assert says in told(run, "0:5")


def test_attempts_that_were_not_acknowledged(run: CaseDir) -> None:
    assert "no report ever came of it: indeterminate" in told(run, "0:6")
    assert "5.500 s  failed: error 7" in told(run, "0:7")
    assert not [line for line in told(run, "0:7") if "offset 7" in line]


def test_no_final_read_is_not_a_loss(run: CaseDir) -> None:
    run.final_read.unlink()
    (run.consumed / "client=f0" / "part-000000.parquet").unlink()
    lines = told(run, "0:5")
    assert "there was no final read" in lines
    assert not [line for line in lines if "the final read" in line and line != "there was no final read"]


@pytest.mark.parametrize(
    ("replay", "line"),
    [
        (
            {"intervals": [("a broker was killed", 5, 9)]},
            "what took it: a broker was killed",
        ),
        ({"intervals": [("", 0, 5)]}, "what took it: no observed step explains it"),
        ({"intervals": [("too late", 6, 9), ("too early", 1, 4)]}, ""),
        ({"unexplained": 5}, "not explained: nothing takes it"),
        ({"unexplained": 4}, ""),
        ({"removed_s": 5.2}, "what took it: its topic was deleted (incarnation 1): recreated"),
        ({"removed_s": 5.05}, ""),
    ],
)
def test_what_took_it(run: CaseDir, replay: dict[str, object], line: str) -> None:
    intervals: Sequence[tuple[str, int, int]] = replay.get("intervals", ())  # type: ignore[assignment]
    file = ConformanceFile(
        intervals=tuple(
            UnplacedLoss(
                topic="orders", partition=0, producer=0, first_seq=first, last_seq=last, records=1, why=why
            )
            for why, first, last in intervals
        ),
        unexplained=(
            UnexplainedRecord(
                anomaly="lost", topic="orders", partition=0, producer=0, seq=replay["unexplained"], offset=7,
                why="nothing takes it",
            ),
        ) if "unexplained" in replay else (),
        deletions=(
            Deletion(
                topic="orders", partition=0, topic_id="x", incarnation=1, by="fault 1", created_ns=0,
                removed_ns=int(replay["removed_s"] * S), until_ns=0, again_ns=-1, offset=1, log_end=8,
                why="recreated",
            ),
        ) if "removed_s" in replay else (),
    )  # fmt: skip
    file.save(run.conformance_json)
    assert [each for each in told(run, "0:5") if "took it" in each or "not explained" in each] == (
        [line] if line else []
    )


def test_which_record_is_told_when_nobody_says(run: CaseDir) -> None:
    assert first_found(run, None) == RecordId(0, 5)
    assert first_found(run, "overwritten") == RecordId(0, 5)
    with pytest.raises(BadInput, match=r"no finding of class torn; there are lost, overwritten"):
        first_found(run, "torn")
    findings(run, ("conflict", "orders", 1, -1, 3, -1, ""), ("surfaced", "orders", 0, 0, 6, 4, ""))
    assert first_found(run, None) == Spot("orders", 1, 3)


def test_the_gravest_finding_is_told_first(run: CaseDir) -> None:
    findings(run, ("duplicate", "orders", 0, 0, 6, 4, ""), ("surfaced", "orders", 0, 0, 2, 2, ""))
    assert first_found(run, None) == RecordId(0, 4)
    findings(run, ("duplicate", "orders", 0, 0, 6, 4, ""), ("resurrected", "orders", 0, 0, 7, 5, ""))
    assert first_found(run, None) == RecordId(0, 5)


def test_who_was_at_an_offset(run: CaseDir) -> None:
    assert find_records(run, Spot.parse("orders/0@7")) == [RecordId(0, 5), RecordId(1, 2)]
    assert find_records(run, Spot.parse("orders/0@6")) == [RecordId(0, 4)]
    with pytest.raises(BadInput, match="no ledger names a record at orders/1@7"):
        find_records(run, Spot("orders", 1, 7))


def test_many_events_are_bounded_and_said(run: CaseDir) -> None:
    with Timeline(run.timeline, RunClock.start()) as timeline:
        for number in range(60):
            timeline.add(IsrChanged(isr=(1,)), topic="orders", partition=0, t_ns=5 * S + number)
    lines = told(run, "0:5")
    assert sum(" s  " in line for line in lines) == MOST_EVENTS + 3
    assert [line for line in lines if line.endswith("later events of its partition are in the timeline")]


def test_the_command_loads_neither_pandas_nor_spark(run: CaseDir) -> None:
    """pyarrow would import pandas, which is installed here: that would take half of the command's time."""
    run.case_json.write_text("{}")
    script = (
        "import sys; from ackproof.cli.main import entry\n"
        "try: entry()\n"
        "finally: print('loaded', *sorted({'pandas', 'pyspark', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "explain", run.path],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert importlib.util.find_spec("pandas") is not None
    assert "what took it: " in done.stdout
    assert done.stdout.endswith("loaded pyarrow\n")


def test_the_command(run: CaseDir, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(*words: str) -> tuple[int, str, str]:
        code = cli.main_code(["explain", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    here = str(run.path)
    run.case_json.write_text("{}")
    for words in ((), ("--record", "0:5"), ("--class", "lost")):
        code, out, _ = answer(here, *words)
        assert code == 0
        assert "what took it: offsets 7 to 8 of epoch 3 were truncated" in out, words
    code, out, _ = answer(here, "--at", "orders/0@7")
    assert "record 5 of producer 0" in out
    assert "record 2 of producer 1, orders/0" in out
    for words, complaint in (
        (("--record", "0:99"), "no ledger knows record 99 of producer 0"),
        (("--record", "x"), "give PRODUCER:SEQ"),
        (("--at", "orders"), "give TOPIC/PARTITION@OFFSET"),
        (("--at", "orders/0@7", "--class", "lost"), "give one of --record, --at and --class"),
    ):
        code, _, err = answer(here, *words)
        assert (code, complaint in err) == (254, True), (words, err)
    code, _, err = answer(str(run.path / "nothing"))
    assert (code, "neither a case nor a batch" in err) == (254, True)


def test_of_a_batch_the_case_that_lost_something(
    run: CaseDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def entry(name: str, lost: int) -> str:
        return f'{{"case": "{name}", "settings": {{}}, "repeat": 1, "run": "{name}", "counts": {{"lost": {lost}}}}}'

    batch = tmp_path / "batch"
    batch.mkdir()
    (batch / "bad").symlink_to(run.path)
    head = '{"verdict": "PASS", "exit_code": 0, "seed": 1, "cases": ['
    (batch / "batch.json").write_text(f"{head}{entry('good', 0)}, {entry('bad', 3)}]}}")
    assert cli.main_code(["explain", str(batch)]) == 0
    assert "record 5 of producer 0" in capsys.readouterr().out
    assert cli.main_code(["explain", str(batch), "--case", "ugly"]) == 254
    assert "no case is called 'ugly'; there is good, bad" in capsys.readouterr().err
    assert cli.main_code(["explain", str(batch), "--case", "b"]) == 0
    assert "record 5 of producer 0" in capsys.readouterr().out
    assert cli.main_code(["explain", str(batch), "--class", "duplicate"]) == 254
    assert "no duplicate was found in any case. Choose one with --case: good, bad" in capsys.readouterr().err
    (batch / "batch.json").write_text(f"{head}{entry('good', 0)}, {entry('bad', 0)}]}}")
    assert cli.main_code(["explain", str(batch)]) == 254
    assert "Choose one with --case: good, bad" in capsys.readouterr().err


def test_of_a_batch_that_failed_the_case_that_did_and_the_class_for_which_it_did(
    run: CaseDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another case has more lost records, but they are allowed."""
    batch = tmp_path / "batch"
    batch.mkdir()
    (batch / "bad").symlink_to(run.path)
    common: dict[str, Any] = {"settings": {}, "repeat": 1}
    cases = (
        BatchCase(case="good#1", run="good", verdict=Verdict.PASS, counts={"lost": 9}, **common),
        BatchCase(
            case="bad#1", run="bad", verdict=Verdict.FAIL, counts={"lost": 1, "duplicate": 1}, **common
        ),
    )
    BatchFile(verdict=Verdict.FAIL, exit_code=1, seed=1, cases=cases).save(batch / "batch.json")
    judged = [
        ClassJudgement(anomaly="lost", count=1, forbidden=False, why="acks=1"),
        ClassJudgement(
            anomaly="duplicate", count=1, forbidden=True, why="an idempotent producer writes no copies"
        ),
    ]
    VerdictFile(verdict=Verdict.FAIL, reasons=("duplicate: 1",), classes=tuple(judged)).save(run.verdict_json)
    found = pq.read_table(run.findings).to_pylist()
    copy = {**found[0], "class": "duplicate", "producer": 0, "seq": 7}
    pq.write_table(pa.Table.from_pylist([*found, copy], schema=FINDINGS), run.findings / "part-9.parquet")
    assert cli.main_code(["explain", str(batch)]) == 0
    said = capsys.readouterr().out
    assert "FAIL: duplicate: 1" in said
    assert "record 7 of producer 0" in said
    assert cli.main_code(["explain", str(batch), "--class", "lost"]) == 0
    assert "record 5 of producer 0" in capsys.readouterr().out
