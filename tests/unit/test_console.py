"""Output of the console: control characters are made visible, and without a terminal lines are plain."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from pydantic import JsonValue

from ackproof import console
from ackproof.base.wait import wait_until
from ackproof.cli.main import main_code
from ackproof.console import Console, visible
from ackproof.faults.registry import fault_kinds
from ackproof.provision.progress import Progress, in_words
from ackproof.run.conclude import CaseResult
from ackproof.rundir.batch import BatchCase, BatchFile
from ackproof.rundir.documents import (
    AuditFile,
    ClassJudgement,
    FinalReadFile,
    PartitionRead,
    RecordCounts,
    VerdictFile,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.narrator import Narrator
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import Event, EventKind

HOSTILE = "\x1b[2J[red]node[/red]\x07\r"


def test_long_work_is_told_of_though_nothing_is_done_yet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_QUIET_S", 0.02)
    said = ""
    with Console().show_progress("exploring small worlds") as tell:

        def told(words: str) -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return words in said

        wait_until(lambda: told("… exploring small worlds"), what="a word before the first", timeout_s=10)
        tell("1 of 3 small worlds explored")
        wait_until(lambda: told("… 1 of 3 small worlds"), what="how far it is", timeout_s=10)
    assert not [one for one in threading.enumerate() if one.name == "show-progress"]


def test_control_characters_are_shown() -> None:
    assert visible(HOSTILE) == "\\x1b[2J[red]node[/red]\\x07\\x0d"


def test_events_are_described_without_obeying_them() -> None:
    text = _told((EventKind.FAULT_FAILED, {"reason": HOSTILE}))
    assert text[0].startswith("   1.00 s  fault 1: \\x1b[2J[red]")


def _told(*said: tuple[EventKind, dict[str, JsonValue]]) -> list[str]:
    """Return the lines that a terminal shows for these events, which are all of fault 1 and broker 2."""
    narrator = Narrator()
    events = (
        Event(t_ns=10**9, wall_ns=0, kind=kind, fault=1, node=2, topic="orders", partition=0, detail=detail)
        for kind, detail in said
    )
    return [visible(line) for event in events if (line := narrator.tell(event)) is not None]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("kill", "leader(orders/0)", [2]), "killed node 2, the leader of orders/0"),
        (("pause", "isr(orders/0)", [1, 2]), "paused nodes 1, 2, the in-sync replicas of orders/0"),
        (("kill", "broker(2)", [2]), "killed node 2"),
        (("stop", "controller", [101]), "stopped node 101, controller"),
        (("kill", "[broker(1), broker(4)]", [1, 4]), "killed nodes 1, 4"),
        (("kill", "rack(a)", [1, 4, 101]), "killed nodes 1, 4, 101, rack a"),
        (("kill", "rack(leader(t/0))", [1, 101]), "killed nodes 1, 101, the rack of the leader of t/0"),
        (("power_loss", "leader(t/0)", [2]), "node 2, the leader of t/0: cut off from power"),
        (("cut", "clients -> leader(t/0)", [2]), "cut clients -> leader(t/0), node 2"),
        (("storm", "of 4", []), "storm of 4"),
        (("command", "leader(t/0)", [2]), "node 2, the leader of t/0: hit by a command"),
        (("command", "", []), "command"),
    ],
    ids=str,
)
def test_a_fault_is_told_in_a_sentence_with_whom_it_hit(asked: tuple[str, str, list[int]], said: str) -> None:
    kind, role, nodes = asked
    bit, healed = _told(
        (
            EventKind.FAULT_ASKED,
            {"kind": kind, "done": fault_kinds()[kind].DONE, "role": role, "nodes": [*nodes]},
        ),
        (EventKind.FAULT_CONFIRMED, {"did": "x", "witness": "kernel: gone; and more of it"}),
        (EventKind.ISR, {"isr": [1]}),
        (EventKind.FAULT_RECOVERED, {"witness": "w" * 100}),
    )
    assert bit == f"   1.00 s  fault 1: {said} (confirmed: kernel: gone)"
    assert healed.startswith(f"   1.00 s  fault 1 ({kind}) has healed (confirmed: wwww")
    assert len(healed) < 130


def test_other_events_are_sentences_too() -> None:
    assert [
        line.partition(" s  ")[2]
        for line in _told(
            (EventKind.PHASE, {"phase": "load"}),
            (EventKind.LEADER, {"leader": -1}),
            (EventKind.LEADER, {"leader": 3, "epoch": 4}),
            (EventKind.NODE_DIED, {"status": "exit status 1"}),
            (EventKind.ERROR, {"error": "no\nmore"}),
        )
    ] == [
        "the load begins",
        "orders/0: no leader",
        "orders/0: node 3 leads in epoch 4",
        "node 2 ended by itself: exit status 1",
        "the run failed: no",
    ]


def test_every_line_of_an_error_has_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    Console().error("one\ntwo")
    assert capsys.readouterr().err == "ackproof: one\nackproof: two\n"
    assert main_code(["run", "--no-such"]) == 254
    assert {line.partition(":")[0] for line in capsys.readouterr().err.splitlines()} == {"ackproof"}


def test_how_long_the_other_cases_will_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("ackproof.console.time.monotonic", lambda: now[0])
    with Console().show(3) as view:
        view.step("a download that takes long")
        for _ in range(3):
            view.case_begins("a")
            now[0] += 90
            view.case_ends("a", None)
    out = capsys.readouterr().out
    assert "[1/3] a: ran in 90.0 s; 2 more: about 3 min\n" in out
    assert "[2/3] a: ran in 90.0 s; 1 more: about 90 s\n" in out
    assert "[3/3] a: ran in 90.0 s\n" in out


def test_a_cluster_that_someone_else_runs_is_neither_started_nor_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    phases = [
        Event(t_ns=0, wall_ns=0, kind=EventKind.PHASE, detail={"phase": name})
        for name in ("start", "load", "end")
    ]
    for foreign in (False, True):
        with Console().show(1, foreign=foreign) as view:
            view.case_begins("a#1")
            for phase in phases:
                view.event(phase)
    said = [line.partition(" s  ")[2] for line in capsys.readouterr().out.splitlines() if " s  " in line]
    assert said == [
        "starting the cluster",
        "the load begins",
        "ending the cluster",
        "creating topics on the cluster",
        "the load begins",
        "leaving the cluster",
    ]


def test_progress_is_told_in_quarters() -> None:
    said: list[str] = []
    tell = in_words(said.append)
    for done in range(101):
        tell(Progress("fetching", done, 100))
    tell(Progress("comparing"))
    tell(Progress("comparing"))
    assert said == ["fetching", *(f"fetching, {share} %" for share in (25, 50, 75, 100)), "comparing"]


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
        (Verdict.PASS, False, "lost: 1,200 acknowledged records. Allowed: 4 steps lead to it"),
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
    assert (f"acks=1#1: PASS. {words}" in capsys.readouterr().out.replace("\n", " ")) is bool(words)


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


def test_no_name_of_a_case_is_folded_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    name = "workload.producers.acks=all," * 5
    batch = _batch()
    Console().batch(
        batch.model_copy(update={"cases": (batch.cases[0].model_copy(update={"case": name}),)}), "x"
    )
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(name))
    assert row.split()[-1] == "FAIL"


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
    assert "the load begins" in captured.err


def test_a_terminal_gets_a_bar_and_no_color_is_honoured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with Console().show(2) as view:
        view.case_begins("a#1")
        view.live(1234, 5, "1,2,3")
        view.case_ends("a#1", "because")
    assert "0/2 runs" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    Console().batch(_batch(), "x")
    assert "\x1b[3" not in capsys.readouterr().out
