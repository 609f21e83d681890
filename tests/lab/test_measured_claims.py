"""Claims that are measured, or decided by bounds, over the repeats of simulated runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.judge import judge_over_repeats
from ackproof.plan import load
from ackproof.run.batch_state import Batch
from ackproof.run.conclude import conclude_again
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.lab import ClaimJudged, ClaimVerdict
from ackproof.rundir.outcome import Verdict
from ackproof_lab.claims.judging import judge_claims
from repeated import ACK, Go, repeated

BESIDE = "mean of acks=all over acks=1"


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    return repeated(tmp_path, monkeypatch)


def claimed(**sides: str) -> str:
    """Return the YAML of an expectation and of the claims A, B, …. Each keyword of `sides` is a side (`holds`,
    `measured`, …) of the next claim, with its demand on the recovery time. A trailing `_` of a keyword is ignored."""
    told = [
        f"  {name}: {{says: s, {side.rstrip('_')}: [{{{ACK!r}: {demand}}}]}}"
        for name, (side, demand) in zip("ABCD", sides.items(), strict=False)
    ]
    return "\n".join(["{lost: 0}", "claims:", *told])


def answered(batch: Batch) -> list[ClaimJudged]:
    directory = batch.directory
    claims = load(directory.path.parents[1] / "recovery.yaml").spec.claims
    return list(judge_claims(claims, directory, directory.path.parent, 1.0))


def test_an_effect_is_measured_and_none_is_said_to_be_none(go: Go) -> None:
    """After its leader's death a producer waits for the next leader with any `acks`: the ratio is about 1."""
    batch = go(claimed(measured=BESIDE, measured_="mean"))
    document = BatchFile.load(batch.directory.batch_json)
    assert (document.verdict, document.over_repeats) == (Verdict.PASS, ()), "nothing is judged by it"
    beside, both = answered(batch)
    assert (beside.verdict, both.verdict) == (ClaimVerdict.MEASURED, ClaimVerdict.MEASURED)
    (shown,) = beside.shown
    assert shown.over is not None
    assert shown.over.low is not None
    assert shown.over.high is not None
    assert shown.over.low <= 1 <= shown.over.high
    said = f"{ACK}, mean of acks=all over acks=1: no effect at this scale, {shown.over.outcome_text}."
    assert beside.why == said
    assert "no effect" not in both.why
    assert [one.case for one in both.shown] == ["acks=1", "acks=all"]
    assert conclude_again(batch.directory, lambda _: None) == document, "from what is on disk"
    by_order = sorted(document.cases, key=lambda case: case.order)
    assert [case.repeat for case in by_order] == [1, 1, 2, 2, 3, 3, 4, 4], "compared runs take turns"


@pytest.mark.parametrize(("low", "high"), [(1.1, 1.3), (0.0, 0.0)])
def test_an_effect_that_is_there_is_not_called_none(go: Go, low: float, high: float) -> None:
    batch = go(claimed(measured=BESIDE))
    over = batch.claimed[0].model_copy(update={"low": low, "high": high})
    batch.claimed = (over,)
    batch.save()
    (one,) = answered(batch)
    assert one.verdict is ClaimVerdict.MEASURED
    assert "no effect" not in one.why


def test_what_repeats_do_not_bound_is_not_measured(go: Go) -> None:
    """A median of two repeats has no bounded interval."""
    (one,) = answered(go(claimed(measured="median"), repeat=2))
    assert one.verdict is ClaimVerdict.INCONCLUSIVE
    assert "the interval is open; about 6 repeats of each would likely decide it" in one.why


def test_a_run_without_a_verdict_is_no_measurement(go: Go) -> None:
    batch = go(claimed(measured=BESIDE))
    document = batch.document()
    cases = list(document.cases)
    cases[2] = cases[2].model_copy(update={"verdict": Verdict.INCONCLUSIVE, "reasons": ("a dud",)})
    judge_over_repeats(batch.directory, document.model_copy(update={"cases": tuple(cases)})).save(
        batch.directory.batch_json
    )
    (one,) = answered(batch)
    assert one.verdict is ClaimVerdict.INCONCLUSIVE
    assert f"{cases[2].case} has no number: INCONCLUSIVE: a dud" in one.why


def test_a_starved_repeat_is_no_measurement(go: Go) -> None:
    """A starved machine makes times longer by an unknown amount: no effect can be measured, nor its absence."""
    batch = go(claimed(measured=BESIDE))
    document = batch.document()
    cases = list(document.cases)
    cases[1] = cases[1].model_copy(update={"starved": ("late",)})
    judge_over_repeats(batch.directory, document.model_copy(update={"cases": tuple(cases)})).save(
        batch.directory.batch_json
    )
    (one,) = answered(batch)
    assert one.verdict is ClaimVerdict.INCONCLUSIVE
    assert f"{cases[1].case} has no number: the machine was starved" in one.why


def test_bounds_over_repeats_show_a_side(go: Go) -> None:
    batch = go(claimed(holds="mean < 9s", fails="mean > 9s", fails_=f"{BESIDE} in 0.2..5"))
    verdicts = [one.verdict for one in answered(batch)]
    assert verdicts == [ClaimVerdict.CONFIRMED, ClaimVerdict.INCONCLUSIVE, ClaimVerdict.REFUTED]
