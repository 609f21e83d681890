"""Expectations over repeats on batches of simulated runs. The audit and the verdicts of single runs are fakes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ackproof.judge import judge_over_repeats
from ackproof.run.conclude import combine_verdicts, conclude_again
from ackproof.run.options import BatchOptions, command_of
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.timeline import EventKind
from repeated import ACK, Go, repeated


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    return repeated(tmp_path, monkeypatch)


def test_the_mean_of_repeats_decides_and_thrice_the_timeout_fails(go: Go) -> None:
    """With three times the session time-out, the same expectation turns from PASS to FAIL, with its interval."""
    expect = (
        f"{{given: {{acks: all}}, {ACK!r}: mean < 6s}}",
        f"{ACK}: mean of acks=all over acks=1 in 0.5..2",
    )
    good, bad = go(*expect), go(*expect, timeout=9000)
    for batch, verdict in ((good, Verdict.PASS), (bad, Verdict.FAIL)):
        document = BatchFile.load(batch.directory.batch_json)
        mean, ratio = document.over_repeats
        assert (document.verdict, document.exit_code) == (verdict, int(verdict.exit_code))
        assert (mean.verdict, mean.cells, mean.repeats) == (verdict, ("acks=all",), 4)
        assert (ratio.verdict, ratio.cells) == (Verdict.PASS, ("acks=all", "acks=1"))
        assert len(mean.values[0]) == 4
        assert f"95 % interval {mean.interval}, 4 repeats" in mean.outcome_text
        assert ratio.low is not None
        assert ratio.high is not None
        assert ratio.low <= 1 <= ratio.high
    again = conclude_again(good.directory, lambda _: None)
    assert again == BatchFile.load(good.directory.batch_json)
    assert again.over_repeats == good.over_repeats, "from what is on disk"


def test_compared_runs_take_turns_and_the_batch_says_so(go: Go) -> None:
    batch = go(f"{ACK}: mean of acks=all over acks=1 < 9", repeat=3)
    cases = batch.document().cases
    assert [case.case for case in cases] == [f"acks={acks}#{n}" for acks in (1, "all") for n in (1, 2, 3)]
    in_order = sorted(cases, key=lambda case: case.order)
    assert [case.order for case in in_order] == [1, 2, 3, 4, 5, 6]
    assert [case.repeat for case in in_order] == [1, 1, 2, 2, 3, 3]


def test_it_goes_on_until_it_is_decided_and_no_further(go: Go) -> None:
    """After 6 repeats the mean is not decided at 99.9 %, so 6 more run, but none of the other case."""
    expect = (f"{{given: {{acks: all}}, {ACK!r}: mean < 6s}}", f"{{given: {{acks: 1}}, {ACK!r}: max < 6s}}")
    batch = go(*expect, repeat=6, at_most=24)
    document = batch.document()
    mean, most = document.over_repeats
    ran = {cell: sum(case.cell_name == cell for case in document.cases) for cell in ("acks=all", "acks=1")}
    assert document.verdict is Verdict.PASS
    assert (mean.repeats, mean.confidence, most.repeats) == (12, 0.999, 6)
    assert ran == {"acks=all": 12, "acks=1": 6}, "what ran is what was needed"
    assert document.at_most == 24
    assert document.command.endswith("--until-decided --at-most 24")
    assert conclude_again(batch.directory, lambda _: None).over_repeats == document.over_repeats


def test_it_ends_undecided_at_the_most(go: Go) -> None:
    document = go(f"{{given: {{acks: all}}, {ACK!r}: p95 < 6s}}", repeat=2, at_most=3).document()
    (one,) = document.over_repeats
    assert (document.verdict, document.exit_code) == (Verdict.INCONCLUSIVE, 2)
    assert (one.repeats, one.confidence, one.enough) == (3, pytest.approx(0.951), 59)
    assert one.why == "the interval is on both sides; about 59 repeats of each would likely decide it"
    assert one.high is None
    assert one.interval.startswith("at least ")


def test_a_repeat_without_a_verdict_is_named_and_not_left_out(go: Go) -> None:
    batch = go(f"{{given: {{acks: all}}, {ACK!r}: mean < 6s}}", repeat=3)
    document = batch.document()
    for changed, said in (
        (
            {"verdict": Verdict.INCONCLUSIVE, "reasons": ("it lacks",)},
            "has no number: INCONCLUSIVE: it lacks",
        ),
        ({"verdict": None, "error": "node 2 died"}, "has no number: it came to no verdict: node 2 died"),
    ):
        cases = [
            one.model_copy(update=changed) if one.case == "acks=all#2" else one for one in document.cases
        ]
        (one,) = judge_over_repeats(
            batch.directory, document.model_copy(update={"cases": tuple(cases)})
        ).over_repeats
        assert (one.verdict, one.why) == (Verdict.INCONCLUSIVE, f"acks=all#2 {said}")
        assert not one.open, "further repeats do not mend it"
    fewer = document.model_copy(update={"cases": document.cases[:-1]})
    (one,) = judge_over_repeats(batch.directory, fewer).over_repeats
    assert (one.verdict, one.why) == (Verdict.INCONCLUSIVE, "of 3 repeats of acks=all 2 are there")


def test_an_unknown_number_is_named(go: Go) -> None:
    batch = go(f"{{given: {{acks: all}}, {ACK!r}: mean < 6s}}", repeat=2)
    run = CaseDir(batch.directory.path / batch.document().cases[-1].run)
    lines = run.timeline.read_text().splitlines()
    run.timeline.write_text(
        "".join(f"{line}\n" for line in lines if EventKind.FAULT_CONFIRMED.value not in line)
    )
    (one,) = judge_over_repeats(batch.directory, batch.document()).over_repeats
    assert one.why == "acks=all#2 has no number: fault 1 was not confirmed"


def test_what_a_starved_machine_took_is_not_held_against_kafka(go: Go) -> None:
    """On a starved machine a time above its bound is INCONCLUSIVE; a time below its bound is still PASS."""
    for bound, before, after in (
        ("mean < 1s", Verdict.FAIL, Verdict.INCONCLUSIVE),
        ("mean < 9s", *[Verdict.PASS] * 2),
    ):
        batch = go(f"{{given: {{acks: all}}, {ACK!r}: {bound}}}", repeat=4)
        document = batch.document()
        starved = tuple(one.model_copy(update={"starved": ("late",)}) for one in document.cases)
        (one,) = judge_over_repeats(
            batch.directory, document.model_copy(update={"cases": starved})
        ).over_repeats
        assert (document.over_repeats[0].verdict, one.verdict) == (before, after)


def test_one_place_decides(go: Go) -> None:
    document = go(f"{{given: {{acks: all}}, {ACK!r}: mean < 6s}}", repeat=2).document()
    for verdict, code in ((Verdict.PASS, 0), (Verdict.FAIL, 1), (Verdict.INCONCLUSIVE, 2), (None, 255)):
        one = document.over_repeats[0].model_copy(update={"verdict": verdict})
        assert combine_verdicts(document.model_copy(update={"over_repeats": (one,)})).exit_code == code


def test_a_batch_without_them_is_as_it_was(go: Go) -> None:
    batch = go("{lost: 0}", repeat=2)
    assert judge_over_repeats(BatchDir(batch.directory.path), batch.document()) == batch.document()
    assert [case.order for case in batch.document().cases] == [1, 2, 3, 4]


def test_the_command_that_repeats_one_case_says_nothing_of_going_on(tmp_path: Path) -> None:
    options = BatchOptions((tmp_path / "x.yaml",), at_most=9)
    assert command_of(options, 0).endswith("--until-decided --at-most 9")
    assert "--until-decided" not in command_of(options, 0, only="acks=1#1")


def test_the_run_of_another_repeat_is_none_of_its_own(go: Go) -> None:
    """A run that lies in the folders of two repeats must not count twice: the mean would be bounded wrongly."""
    batch = go(f"{{given: {{acks: all}}, {ACK!r}: mean < 6s}}", repeat=4)
    document = BatchFile.load(batch.directory.batch_json)
    assert document.over_repeats[0].verdict is Verdict.PASS
    one, other = (
        batch.directory.path / case.run
        for case in document.cases
        if case.case in ("acks=all#1", "acks=all#2")
    )
    shutil.rmtree(other)
    shutil.copytree(one, other)
    (mean,) = judge_over_repeats(batch.directory, document).over_repeats
    assert (mean.verdict, mean.why) == (
        Verdict.INCONCLUSIVE,
        f"acks=all#2 has no number: {other.name} holds the run of acks=all#1",
    )
