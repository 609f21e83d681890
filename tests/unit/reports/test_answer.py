"""Tests of the headline: right for every outcome, and it claims no more than was judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from ackproof.faults.registry import fault_kinds
from ackproof.rundir.documents import VerdictFile
from ackproof.rundir.lifelines import FaultLife
from ackproof.rundir.narrator import describe_event
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import Event, EventKind
from ackproof_reports.answer import answers, tally
from ackproof_reports.course import circumstances
from ackproof_reports.loading import State, load_batch

WHEN = "when the followers were paused and the leader was killed"


def said(folder: Path) -> str:
    (answer,) = answers(load_batch(folder))
    return answer.text


@pytest.fixture
def cells(maker: ModuleType) -> list:
    return maker.matrix()


def test_one_axis_decides(maker: ModuleType, tmp_path: Path) -> None:
    assert said(maker.make_batch(tmp_path)) == (
        f"acks=0 and acks=1 lost acknowledged records {WHEN}, as they may; acks=all lost none."
    )


def test_nothing_lost(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path, [replace(cell, lost=0) for cell in cells])
    assert said(folder) == f"None of the 6 settings lost an acknowledged record {WHEN}."


def test_everything_lost(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path, [replace(cell, lost=5) for cell in cells])
    assert said(folder) == f"All 6 settings lost acknowledged records {WHEN}, as they may."


def test_two_axes_decide(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    lost = [replace(cell, lost=9 if at in (0, 2) else 0) for at, cell in enumerate(cells)]
    assert said(maker.make_batch(tmp_path, lost)) == (
        f"acks=0 and acks=1, both with min.insync.replicas=1 lost acknowledged records {WHEN}, as they may; "
        "4 of 6 settings lost none."
    )


def test_single_case_counts(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path, [cells[2]])
    assert said(folder) == f"The run lost 1,204 of 17,300 acknowledged records {WHEN}, as it may."
    clean = maker.make_batch(tmp_path / "clean", [cells[5]])
    assert said(clean) == f"The run lost none of its acknowledged records {WHEN}."


def test_fail_comes_first(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    cells[5] = replace(cells[5], lost=1, verdict=Verdict.FAIL, forbidden=("lost", "overwritten"))
    text = said(maker.make_batch(tmp_path, cells))
    assert text.startswith(
        f"acks=all with min.insync.replicas=2 lost 1 acknowledged record {WHEN}, which must not happen there; "
    )
    assert text.endswith("acks=all with min.insync.replicas=1 lost none.")


def test_fail_without_loss_names_the_class(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    cell = replace(
        cells[5], verdict=Verdict.FAIL, findings={"duplicate": 2, "phantom": 1}, forbidden=("duplicate",)
    )
    text = said(maker.make_batch(tmp_path, [cell]))
    assert (
        text == f"The run showed 2 duplicate copies and 1 phantom record {WHEN}, which must not happen there."
    )


def test_what_is_gone_in_another_way_is_said_where_nothing_was_lost(
    maker: ModuleType, cells: list, tmp_path: Path
) -> None:
    """Half a transaction is missing although no record counts as lost: the headline must say so."""
    torn = replace(cells[5], findings={"torn-transaction": 1, "surfaced": 3})
    assert said(maker.make_batch(tmp_path / "one", [torn])) == (
        f"The run lost none of its acknowledged records {WHEN}; the run showed 1 torn transaction, as it may."
    )
    cells[5] = torn
    text = said(maker.make_batch(tmp_path / "all", cells))
    assert text.endswith(
        "lost none; acks=all with min.insync.replicas=2 showed 1 torn transaction, as it may."
    )
    lost = replace(cells[0], findings={"vanished": 2})
    assert "vanished" not in said(maker.make_batch(tmp_path / "lost", [lost]))


def test_fail_by_expectation_gives_the_reason(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    cell = replace(cells[0], verdict=Verdict.FAIL, reasons=("expected lost <= 5, counted 1874",))
    text = said(maker.make_batch(tmp_path, [cell]))
    assert text == f"The run failed: expected lost <= 5, counted 1874 {WHEN}."


def test_what_was_not_judged_is_not_claimed(maker: ModuleType, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path, maker.missing())
    text = said(folder)
    assert "acks=1 with min.insync.replicas=1 stayed inconclusive" in text
    assert "acks=0 came to no verdict because the harness failed" in text
    assert "acks=1 with min.insync.replicas=2 was not judged" in text
    assert "acks=1 lost" not in text
    assert (
        tally(load_batch(folder)) == "6 cases: 1 PASS, 1 FAIL, 1 INCONCLUSIVE, 2 HARNESS FAILED, 1 NOT JUDGED"
    )


def test_inconclusive_loss_is_no_loss(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path, [replace(cell, verdict=Verdict.INCONCLUSIVE) for cell in cells])
    assert said(folder) == "All 6 settings stayed inconclusive."


def test_repeats_share_a_setting(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    runs = [replace(cells[4], repeat=n) for n in (1, 2)] + [replace(cells[2], repeat=n) for n in (1, 2)]
    runs[3] = replace(runs[3], lost=0)
    assert (
        said(maker.make_batch(tmp_path, runs))
        == f"acks=1 lost acknowledged records {WHEN}, as it may; acks=all lost none."
    )


def test_repeats_of_one_setting(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path, [replace(cells[2], repeat=n) for n in (1, 2, 3)])
    assert said(folder) == f"3 runs lost 3,612 of 51,900 acknowledged records {WHEN}, as they may."


def test_several_experiments(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path, [cells[2], replace(cells[5], experiment="other")], name="a+b")
    assert [answer.experiment for answer in answers(load_batch(folder))] == ["acks-matrix", "other"]


def test_no_case_at_all(maker: ModuleType, tmp_path: Path) -> None:
    assert said(maker.make_batch(tmp_path, [])) == "The batch has no case, so there is no answer."


def test_batch_state(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    assert load_batch(maker.make_batch(tmp_path / "a", cells)).state is State.PASS
    broken = [*cells[:5], replace(cells[5], verdict=None, error="x")]
    assert load_batch(maker.make_batch(tmp_path / "b", broken)).state is State.HARNESS_FAILED


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        (
            ("timeline.jsonl: not there", "more"),
            "Inconclusive: timeline.jsonl: not there (and 1 more reason).",
        ),
        ((), "The run stayed inconclusive."),
        (("x" * 500,), f"Inconclusive: {'x' * 159}…."),
    ],
)
def test_why_one_run_stayed_inconclusive_is_the_headline(
    maker: ModuleType, cells: list, tmp_path: Path, reasons: tuple[str, ...], text: str
) -> None:
    cell = replace(cells[0], verdict=Verdict.INCONCLUSIVE, reasons=reasons)
    assert said(maker.make_batch(tmp_path, [cell])) == text


def test_settings_of_one_reason_are_told_together_and_many_reasons_only_counted(
    maker: ModuleType, cells: list, tmp_path: Path
) -> None:
    reasons = (("no final read",), ("no final read",), ("a node died", "x"), ("a node died", "x"))
    made = [
        replace(cell, verdict=Verdict.INCONCLUSIVE, reasons=why)
        for cell, why in zip(cells, reasons, strict=False)
    ]
    assert said(maker.make_batch(tmp_path / "two", made)) == (
        "acks=0 stayed inconclusive: no final read; "
        "acks=1 stayed inconclusive: a node died (and 1 more reason)."
    )
    made = [replace(cell, reasons=(f"reason {at}",)) for at, cell in enumerate(made)]
    assert said(maker.make_batch(tmp_path / "many", made)) == (
        "All 4 settings stayed inconclusive, for 4 different reasons."
    )


def test_what_was_once_counted_is_not_shown_where_the_judge_looked_at_nothing(
    maker: ModuleType, cells: list, tmp_path: Path
) -> None:
    folder = maker.make_batch(tmp_path, [replace(cells[0], verdict=Verdict.INCONCLUSIVE)])
    (case,) = load_batch(folder).cases
    assert case.audit is not None
    assert case.counts["lost"] > 0
    VerdictFile(verdict=Verdict.INCONCLUSIVE, reasons=("seal.json: torn",)).save(case.run.verdict_json)
    (case,) = load_batch(folder).cases
    assert case.audit is None
    assert "nothing was judged, so neither counts nor findings are shown" in case.absent


def struck(kind: str, done: str = "", role: str = "", nodes: tuple[int, ...] = ()) -> FaultLife:
    return FaultLife(1, kind, nodes, done=done, role=role, confirmed=1)


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("rack(a)", "rack a was killed"),
        ("rack(a) from all", "rack a was killed"),
        ("rack(leader(orders/0))", "the rack of the leader was killed"),
        ("[broker(1), broker(4)]", "nodes 1 and 4 were killed"),
        ("member(0)", "2 members were killed"),
        ("coordinator(billing)", "the group coordinator was killed"),
    ],
)
def test_roles_are_named(role: str, said: str) -> None:
    assert circumstances([struck("kill", "killed", role, (1, 4))]) == said


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (0, ""),
        (2, "the kind0 was done0 twice and the kind1 was done1 twice"),
        (7, "14 faults struck it (kill 12, pause 2)"),
    ],
)
def test_what_happened_is_no_list_of_everything(kinds: int, said: str) -> None:
    """Each fault occurs twice. Above a number of different faults they are counted by kind: a soak of an hour has
    300."""
    faults = [
        struck("kill" if at % kinds else "pause", f"done{at % kinds}", f"the kind{at % kinds}")
        for at in range(2 * kinds)
    ]
    unseen = [FaultLife(1, "stop", done="stopped", role="leader"), struck("storm")]
    assert circumstances([*faults, *unseen]) == said


def test_brokers_that_were_killed_are_counted() -> None:
    def killed(*nodes: int) -> str:
        return circumstances([struck("kill", "killed", f"broker({node})", (node,)) for node in nodes])

    assert killed(1) == "a broker was killed"
    assert killed(1, 4) == "2 brokers were killed"
    assert killed(1, 1) == "a broker was killed twice"
    assert killed(1, 4, 1) == "2 brokers were killed 3 times"


def test_a_healing_is_told_by_what_was_done() -> None:
    event = Event(
        t_ns=9, wall_ns=0, kind=EventKind.FAULT_HEALED, fault=1, detail={"did": "cont", "begun_ns": 5}
    )
    assert describe_event(event) == "cont"


def test_several_runs_lose_none_of_their_records(maker: ModuleType, cells: list, tmp_path: Path) -> None:
    kept = [replace(cells[-1], repeat=number) for number in (1, 2, 3)]
    (told,) = answers(load_batch(maker.make_batch(tmp_path, kept)))
    assert told.text.startswith("3 runs lost none of their acknowledged records")


@pytest.mark.parametrize(
    ("role", "nodes", "said"),
    [
        ("leader(ackproof-0-orders/0)", (2,), "the leader was hit by a command"),
        ("", (), "the cluster was hit by a command"),
    ],
)
def test_a_command_is_named_by_what_it_hit(role: str, nodes: tuple[int, ...], said: str) -> None:
    fault = struck("command", fault_kinds()["command"].DONE, role, nodes)
    assert circumstances([fault]) == said
