"""Tests of claims on real brokers; with faults that do nothing, each claim must stay open."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.rundir.lab import ClaimJudged, ClaimsFile, ClaimVerdict
from faultbench.claim_duds import CLAIM_DUDS
from faultbench.spoilt import says

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
ANSWER = re.compile(r"\| (C\d\d) \|.+\| (\w+) \| \[.*\)")


def asked(claim: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, ClaimJudged]:
    monkeypatch.chdir(ROOT)
    code = main_code(["claims", "-k", claim, "--again", "0", "--out", str(folder)])
    (one,) = ClaimsFile.load(folder / "claims.json").claims
    assert one.claim == claim
    assert (folder / "claims.html").stat().st_size > 10_000
    return code, one


def test_a_claim_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim C17 is qualified: a follower that cannot fetch stays in the ISR, and what it has is the leader's."""
    code, one = asked("C17", tmp_path, monkeypatch)
    assert (code, one.verdict) == (0, ClaimVerdict.QUALIFIED), one.why
    sides = [(shown.side, shown.holds) for shown in one.shown]
    assert sides == [("holds", True), ("holds", True), ("fails", True), ("fails", True)]


@pytest.mark.nightly
@pytest.mark.timeout(5400)
def test_all_claims_are_answered_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = dict(ANSWER.findall((ROOT / "docs" / "claims.md").read_text("utf-8")))
    assert len(page) == 50
    monkeypatch.chdir(ROOT)
    code = main_code(["claims", "--out", str(tmp_path)])
    found = ClaimsFile.load(tmp_path / "claims.json").claims
    assert {one.claim: one.verdict.lower() for one in found} == page, [
        f"{one.claim}: {one.why}" for one in found if one.verdict.lower() != page.get(one.claim)
    ]
    assert code == 0


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("claim", CLAIM_DUDS)
def test_no_claim_survives_a_dud(claim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for call in CLAIM_DUDS[claim]:
            patch.setattr(call, says("it is done")(pkgutil.resolve_name(call)))
        code, one = asked(claim, tmp_path, patch)
    assert (code, one.verdict) == (2, ClaimVerdict.INCONCLUSIVE)
    # That of a run, by its reason; or of a repeat, which has no number for it.
    assert "INCONCLUSIVE: " in one.why
