"""What the console prints: untrusted text is shown, never obeyed; plain lines where there is no terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ackproof.console import Console, describe, visible
from ackproof.run.conclude import CaseResult
from ackproof.rundir.documents import (
    AuditFile,
    BatchCase,
    BatchFile,
    ClassJudgement,
    FinalReadFile,
    PartitionRead,
    RecordCounts,
    VerdictFile,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import Event, EventKind

HOSTILE = "\x1b[2J[red]node[/red]\x07\r"


def test_control_characters_are_shown() -> None:
    assert visible(HOSTILE) == "\\x1b[2J[red]node[/red]\\x07\\x0d"


def test_events_are_described_without_obeying_them() -> None:
    text = describe(
        Event(t_ns=10**9, wall_ns=0, kind=EventKind.FAULT_FAILED, fault=1, detail={"reason": HOSTILE})
    )
    assert text.startswith("   1.00 s  fault-failed fault 1: reason \\x1b[2J[red]")


def _batch() -> BatchFile:
    case = BatchCase(
        case="acks=1#1",
        settings={"acks": 1},
        repeat=1,
        verdict=Verdict.FAIL,
        reasons=(f"lost {HOSTILE}",),
        counts={"acked": 5, "lost": 1, "duplicate": 0, "indeterminate": 0},
        run="acks=1_1",
    )
    return BatchFile(verdict=Verdict.FAIL, exit_code=1, seed=7, cases=(case,))


def test_the_outcome_of_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    Console().batch(_batch(), "runs/x/report.html")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[red]" in out
    assert "FAIL (exit 1)" in out
    assert "report: runs/x/report.html" in out


@pytest.mark.parametrize(
    ("verdict", "forbidden", "words"),
    [
        (Verdict.PASS, False, "1,200 lost, as these settings may: 4 steps lead to it"),
        (Verdict.FAIL, True, ""),
        (Verdict.INCONCLUSIVE, None, ""),
    ],
)
def test_a_pass_with_losses_says_why_it_is_one(
    verdict: Verdict, forbidden: bool | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = ClassJudgement(anomaly="lost", count=1200, forbidden=forbidden, why="4 steps lead to it")
    judged = VerdictFile(verdict=verdict, reasons=(), classes=(lost,))
    assert judged.permitted == words
    batch = _batch()
    case = batch.cases[0].model_copy(
        update={"verdict": verdict, "permitted": judged.permitted, "reasons": ()}
    )
    Console().batch(batch.model_copy(update={"cases": (case,)}), "x")
    assert (f"acks=1#1: PASS, and {words}" in capsys.readouterr().out.replace("\n", " ")) is bool(words)


@pytest.mark.parametrize(
    ("end", "position", "lost"),
    [
        pytest.param(None, 0, ["-", "-"], id="no final read"),
        pytest.param(0, 0, ["-", "-"], id="no leader"),
        pytest.param(80, 40, ["-", "-"], id="half of it"),
        pytest.param(80, 80, ["77", "0"], id="all, not at rest"),
    ],
)
def test_of_what_nobody_read_back_nothing_is_called_lost(
    end: int | None, position: int, lost: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run, batch = CaseDir(tmp_path), _batch()
    counts = {"lost": 77, "duplicate": 0}
    audit = AuditFile(counts=counts, records=RecordCounts(acked=77, indeterminate=3), complete=True)
    if end is not None:
        one = PartitionRead(
            topic="t",
            partition=0,
            start=0,
            end=end,
            epoch=0,
            epoch_after=0,
            position=position,
            complete=False,
        )
        FinalReadFile(complete=False, partitions=(one,)).save(run.final_read)
    case = batch.cases[0].model_copy(update={"verdict": None, "counts": CaseResult(run, audit).counts})
    Console().batch(batch.model_copy(update={"cases": (case,), "verdict": None}), "x")
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("acks=1#1 "))
    assert row.split()[:5] == ["acks=1#1", "77", *lost, "3"]


def test_where_nothing_was_lost_nothing_is_permitted() -> None:
    none = ClassJudgement(anomaly="lost", count=0, forbidden=False, why="possible, not seen")
    other = ClassJudgement(anomaly="duplicate", count=3, forbidden=False, why="retries")
    assert VerdictFile(verdict=Verdict.PASS, reasons=(), classes=(none, other)).permitted == ""


def test_machine_output_is_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(machine=True)
    with console.show(1) as view:
        view.case_begins("a#1")
        view.event(Event(t_ns=0, wall_ns=0, kind=EventKind.PHASE, detail={"phase": "load"}))
        view.live(1, 2, "1,2,3")
        view.case_ends("a#1", None)
    console.batch(_batch(), "x")
    console.document({"a": 1})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"a": 1}
    assert "[1/1] a#1: ran in" in captured.err
    assert "phase: phase load" in captured.err


def test_a_terminal_gets_a_bar_and_no_color_is_honoured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with Console().show(2) as view:
        view.case_begins("a#1")
        view.live(1234, 5, "1,2,3")
        view.case_ends("a#1", "because")
    assert "cases" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    Console().batch(_batch(), "x")
    assert "\x1b[3" not in capsys.readouterr().out
