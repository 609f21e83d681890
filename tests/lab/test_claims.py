"""Tests of claims: the verdict that follows from the observations. An unknown observation neither confirms nor refutes
a claim. Also which claims a command selects."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ackproof.experiment.experiment import ClaimSpec, ExpectSpec
from ackproof.experiment.spec import attached_topic
from ackproof.judge.repeats import _lacking, discount_starved, judged
from ackproof.plan.cases import case_from_json
from ackproof.quantities.quantity import Value
from ackproof.quantities.vocabulary import parse_ask
from ackproof.rundir.batch import BatchCase, BatchFile, OverRepeats, RepeatValue
from ackproof.rundir.bounds import Bound
from ackproof.rundir.documents import CaseFile
from ackproof.rundir.lab import ClaimJudged, ClaimShowing, ClaimVerdict, OpenAttempt
from ackproof.rundir.layout import BatchDir
from ackproof.rundir.outcome import Verdict
from ackproof_lab.claims.command import _chosen
from ackproof_lab.claims.judging import conclude_claim, judge_claims
from judged_run import MakeRun, attempt

SHOWING = (ExpectSpec(bounds={"lost": Bound.parse(0)}),)
BOTH = ClaimSpec(says="s", holds=SHOWING, fails=SHOWING, condition="only so")
HOLDS = ClaimSpec(says="s", holds=SHOWING)
FAILS = ClaimSpec(says="s", fails=SHOWING, condition="only so")


def seen(holds: str, fails: str = "") -> list[ClaimShowing]:
    """Return checks of the sides `holds` and `fails`, one per letter: `y` True, `n` False, `?` unknown (None)."""
    so = {"y": True, "n": False, "?": None}
    return [
        ClaimShowing(
            case=f"{side}{number}",
            run="",
            side=side,
            quantity="lost",
            bound="0",
            holds=so[letter],
            why="a hole",
        )
        for side, letters in (("holds", holds), ("fails", fails))
        for number, letter in enumerate(letters)
    ]


@pytest.mark.parametrize(
    ("claim", "holds", "fails", "verdict", "why"),
    [
        (BOTH, "yy", "y", "QUALIFIED", "only so"),
        (BOTH, "yy", "n", "INCONCLUSIVE", "not seen with fails0: lost 0: "),
        (BOTH, "yn", "y", "INCONCLUSIVE", "not seen with holds1: lost 0: "),
        (BOTH, "nn", "y", "REFUTED", "only so"),
        (BOTH, "nn", "n", "INCONCLUSIVE", "not seen with holds0: lost 0: "),
        (BOTH, "yy", "?", "INCONCLUSIVE", "fails0: lost 0: a hole"),
        (BOTH, "y?", "y", "INCONCLUSIVE", "holds1: lost 0: a hole"),
        (BOTH, "yy", "", "INCONCLUSIVE", "no run looked"),
        (BOTH, "", "yy", "INCONCLUSIVE", "no run looked"),
        (HOLDS, "yy", "", "CONFIRMED", ""),
        (HOLDS, "nn", "", "REFUTED", "not seen with holds0: lost 0: "),
        (HOLDS, "yn", "", "INCONCLUSIVE", "not seen with holds1: lost 0: "),
        (HOLDS, "", "", "INCONCLUSIVE", "no run looked"),
        (FAILS, "", "yy", "REFUTED", "only so"),
        (FAILS, "", "yn", "INCONCLUSIVE", "not seen with fails1: lost 0: "),
        (FAILS, "", "nn", "INCONCLUSIVE", "not seen with fails0: lost 0: "),
        (FAILS, "", "", "INCONCLUSIVE", "no run looked"),
    ],
)
def test_what_follows_from_what_was_seen(
    claim: ClaimSpec, holds: str, fails: str, verdict: str, why: str
) -> None:
    assert conclude_claim(claim, seen(holds, fails)) == (ClaimVerdict(verdict), why)


CLAIMS = """\
claims:
  A: {says: nothing is lost, holds: [{lost: 0}, {elections: ">= 0"}]}
  B: {says: all is well, holds: [{lost: 0}], fails: [{given: {acks: all}, elections: ">= 0"}], condition: so}
"""


def batch_of(folder: Path, *entries: BatchCase) -> BatchDir:
    directory = BatchDir(folder)
    BatchFile(verdict=None, exit_code=0, seed=0, cases=entries).save(directory.batch_json)
    return directory


def test_a_run_that_passed_shows_what_was_measured(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(expect=CLAIMS)
    claims = case_from_json(CaseFile.load(run.case_json).resolved).experiment.claims
    entry = BatchCase(case="case#1", settings={}, repeat=1, verdict=Verdict.PASS, run=run.path.name)
    one, two = judge_claims(claims, batch_of(tmp_path, entry), tmp_path, 1.23)
    assert (one.claim, one.verdict, one.seconds) == ("A", ClaimVerdict.CONFIRMED, 1.2)
    assert [(shown.quantity, shown.holds) for shown in one.shown] == [
        ("lost", True),
        ("elections", True),
    ]
    assert [(shown.side, shown.run) for shown in two.shown] == [("holds", "run"), ("fails", "run")]


@pytest.mark.parametrize(
    ("seen_before", "verdict"),
    [
        ({"side": "holds", "bound": "0", "holds": False}, ClaimVerdict.INCONCLUSIVE),
        ({"side": "holds", "bound": "0", "holds": None}, ClaimVerdict.CONFIRMED),
        ({"side": "holds", "bound": "0", "holds": True}, ClaimVerdict.CONFIRMED),
        # Nothing asks it any more; and a counterexample that did not come then tells nothing of one that comes now.
        ({"side": "holds", "bound": "7", "holds": False}, ClaimVerdict.CONFIRMED),
        ({"side": "fails", "bound": "0", "holds": False}, ClaimVerdict.CONFIRMED),
    ],
)
def test_what_was_seen_against_a_claim_is_not_unseen_by_asking_again(
    make_run: MakeRun, tmp_path: Path, seen_before: dict[str, Any], verdict: ClaimVerdict
) -> None:
    run = make_run(expect="claims:\n  A: {says: s, holds: [{lost: 0}]}")
    claims = case_from_json(CaseFile.load(run.case_json).resolved).experiment.claims
    entry = BatchCase(case="case#1", settings={}, repeat=1, verdict=Verdict.PASS, run=run.path.name)
    earliest = OpenAttempt(why="a hole", experiment="zero", seconds=2.0)
    last = ClaimJudged(
        claim="A",
        says="s",
        verdict=ClaimVerdict.INCONCLUSIVE,
        why="starved",
        experiment="first",
        seconds=3.0,
        shown=(
            ClaimShowing.model_validate(
                {"case": "case#1", "run": "first/run", "quantity": "lost", **seen_before}
            ),
        ),
        before=(earliest,),
    )
    (one,) = judge_claims(claims, batch_of(tmp_path, entry), tmp_path, 1.0, {"A": last})
    assert one.verdict is verdict
    assert one.before == (earliest, OpenAttempt(why="starved", experiment="first", seconds=3.0))
    carried = [shown.run for shown in one.shown if shown.run == "first/run"]
    assert carried == (["first/run"] if verdict is ClaimVerdict.INCONCLUSIVE else [])


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.INCONCLUSIVE, None])
def test_a_run_that_did_not_pass_shows_nothing(
    make_run: MakeRun, tmp_path: Path, verdict: Verdict | None
) -> None:
    run = make_run(expect=CLAIMS)
    claims = case_from_json(CaseFile.load(run.case_json).resolved).experiment.claims
    entry = BatchCase(
        case="case#1", settings={}, repeat=1, verdict=verdict, reasons=("a dud",), run=run.path.name
    )
    said = list(judge_claims(claims, batch_of(tmp_path, entry), tmp_path, 1.0))
    assert {one.verdict for one in said} == {ClaimVerdict.INCONCLUSIVE}
    assert said[0].why == f"case#1: its run is {verdict or 'not judged'}: a dud"


def test_a_case_that_never_began_answers_no_claim(tmp_path: Path) -> None:
    entry = BatchCase(case="case#1", settings={}, repeat=1, error="no such release", run="run")
    (one,) = judge_claims({"A": HOLDS}, batch_of(tmp_path, entry), tmp_path, 1.0)
    assert (one.verdict, one.why) == (
        ClaimVerdict.INCONCLUSIVE,
        "case#1: its run is not judged: no such release",
    )


@pytest.mark.parametrize(
    ("bound", "starved", "verdict"),
    [
        ("< 6s", (), "REFUTED"),
        ("< 6s", ("it was",), "INCONCLUSIVE"),
        ("< 8s", ("it was",), "CONFIRMED"),
        ("> 6s", (), "CONFIRMED"),
        ("> 6s", ("it was",), "INCONCLUSIVE"),
        ("> 8s", ("it was",), "REFUTED"),
    ],
)
def test_a_starved_machine_shows_no_time(
    make_run: MakeRun, tmp_path: Path, bound: str, starved: tuple[str, ...], verdict: str
) -> None:
    """A gap of 7 s that was measured on a starved machine may have been shorter, so it is only an upper bound."""
    claim = f'claims:\n  A: {{says: s, holds: [{{longest_gap(produce): "{bound}"}}]}}'
    run = make_run(expect=claim, attempts=[attempt(0, 1), attempt(1, 8)])
    claims = case_from_json(CaseFile.load(run.case_json).resolved).experiment.claims
    entry = BatchCase(
        case="case#1", settings={}, repeat=1, verdict=Verdict.PASS, run=run.path.name, starved=starved
    )
    (one,) = judge_claims(claims, batch_of(tmp_path, entry), tmp_path, 1.0)
    assert one.verdict == ClaimVerdict(verdict)
    if verdict == "INCONCLUSIVE":
        assert one.why.endswith("the machine was starved")


def test_who_is_starved_acknowledges_less_and_not_more() -> None:
    entry = BatchCase(case="case#1", settings={}, repeat=1, run="run", starved=("it was",))
    for name, low, high in (
        ("attempts(acked)", 5, math.inf),
        ("rate(produce)", 5, math.inf),
        ("attempts(failed)", 0, 5),
        ("lost", 5, 5),
    ):
        found = discount_starved(entry, parse_ask(name).quantity, Value.exactly(5))
        assert (found.low, found.high) == (low, high), name
        assert found.starved is (name != "lost")


@pytest.mark.parametrize(("starved", "number"), [(True, False), (False, True)])
def test_a_flag_says_that_a_machine_was_starved_and_not_the_reason(starved: bool, number: bool) -> None:
    value = RepeatValue(case="c#1", low=0.0, high=1.0, why="the machine was starved", starved=starved)
    expected = OverRepeats(
        quantity="latency(p95)", demand="", unit="s", cells=("c",), repeats=1, confidence=0.9
    )
    assert list(_lacking(expected, [[value]], measure=True)) == (
        [] if number else ["c#1 has no number: the machine was starved"]
    )


def test_on_somebody_elses_cluster_topics_have_other_names(make_run: MakeRun, tmp_path: Path) -> None:
    asked = "longest_gap(produce, orders/0)"
    own = attached_topic("orders", "0" * 16)
    run = make_run(
        expect=f'claims:\n  A: {{says: s, holds: [{{"{asked}": "< 8s"}}]}}',
        attempts=[attempt(0, 1, topic=own), attempt(1, 8, topic=own)],
    )
    file = CaseFile.load(run.case_json)
    claims = case_from_json(file.resolved).experiment.claims
    file.model_copy(update={"backend": "attach"}).save(run.case_json)
    entry = BatchCase(case=file.case, settings={}, repeat=1, verdict=Verdict.PASS, run=run.path.name)
    directory = batch_of(tmp_path, entry)
    (one,) = judge_claims(claims, directory, tmp_path, 1.0)
    assert (one.verdict, one.shown[0].seen) == (ClaimVerdict.CONFIRMED, "7.000 s")
    over = OverRepeats(quantity=asked, demand="max < 8s", unit="s", cells=(entry.cell_name,), repeats=1)
    batch = BatchFile.load(directory.batch_json).model_copy(update={"over_repeats": (over,)})
    (told,) = judged(directory, batch).over_repeats
    assert (told.verdict, told.seen) == (Verdict.PASS, "7.000 s")


@pytest.mark.parametrize(
    ("words", "tags", "chosen"),
    [
        ((), (), ["C09", "C18", "C33"]),
        (("C09", "third"), (), ["C09", "C33"]),
        ((), ("S1", "S3"), ["C09", "C33"]),
        (("C09", "C18"), ("S1",), ["C09"]),
    ],
)
def test_claims_are_those_of_any_word_and_any_source(
    words: tuple[str, ...], tags: tuple[str, ...], chosen: list[str], tmp_path: Path
) -> None:
    told = zip(("C09", "C18", "C33"), ("first", "second", "third"), ("S1", "S2", "S3"), strict=True)
    claims = [
        f"  {name}: {{says: the {says}, sources: [{tag}], holds: [{{lost: 0}}]}}" for name, says, tag in told
    ]
    file = tmp_path / "x.yaml"
    file.write_text(
        "\n".join(["name: t", "topics: {orders: {}}", "workload: {duration: 1s}", "claims:", *claims])
    )
    assert list(_chosen([file], words, tags, ())[file]) == chosen
