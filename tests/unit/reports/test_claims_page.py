"""Tests of the page of claims: verdicts in words, links to runs, escaped texts."""

from __future__ import annotations

from pathlib import Path

from ackproof.rundir.lab import ClaimJudged, ClaimsFile, ClaimShowing, ClaimVerdict
from ackproof_reports.comparison_pages import render_claims

EVIL = "<script>alert(1)</script>"


def page(folder: Path, *claims: ClaimJudged) -> str:
    ClaimsFile(claims=claims).save(folder / "claims.json")
    render_claims(folder)
    return (folder / "claims.html").read_text("utf-8")


def judged(verdict: ClaimVerdict, *shown: ClaimShowing, why: str = "") -> ClaimJudged:
    return ClaimJudged(
        claim="C01",
        says=f"It is so. {EVIL}",
        sources=("S1",),
        verdict=verdict,
        why=why,
        experiment="20260101T000000Z-one",
        seconds=61.4,
        shown=shown,
    )


def test_it_says_what_was_looked_for_and_seen(tmp_path: Path) -> None:
    one = ClaimShowing(
        case="acks=1#1", run="", side="holds", quantity="lost", bound="> 0", seen="7", holds=True
    )
    two = ClaimShowing(case="acks=all#1", run="", side="fails", holds=None, why="its run is FAIL: lost")
    text = page(tmp_path, judged(ClaimVerdict.INCONCLUSIVE, one, two, why="only so"))
    for said in (
        "1 inconclusive",
        "lost &gt; 0",
        ">7<",
        "not known: <bdi>its run is FAIL",
        "61 s",
        "only so",
    ):
        assert said in text
    assert 'href="./20260101T000000Z-one/report.html"' in text
    assert EVIL not in text
    assert "script-src &#39;none&#39;" in text


def test_a_run_of_which_nothing_is_left_has_no_picture(tmp_path: Path) -> None:
    one = ClaimShowing(
        case="acks=1#1", run="gone", side="holds", quantity="lost", bound="0", seen="0", holds=True
    )
    assert "<svg" not in page(tmp_path, judged(ClaimVerdict.CONFIRMED, one))
