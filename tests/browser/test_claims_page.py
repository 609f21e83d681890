"""Tests of the page of claims in a browser: accessibility, and small screens."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from selenium.webdriver import Chrome

from ackproof.rundir.batch import BatchFile
from ackproof.rundir.lab import ClaimJudged, ClaimsFile, ClaimShowing, ClaimVerdict
from ackproof_reports.comparison_pages import render_claims
from report_page import Page, screen, violations

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def claims(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with one claim of each verdict, each with the runs of one batch."""
    folder = tmp_path_factory.mktemp("claims")
    batch = maker.make_batch(folder / "batch", maker.matrix()[:3])
    shown = tuple(
        ClaimShowing(
            case=case.case,
            run=f"batch/{case.run}",
            side="holds",
            quantity="longest_gap(produce, orders/0)",
            bound="< 6s during fault 1",
            seen="1.5 s to 1.6 s",
            holds=True,
        )
        for case in BatchFile.load(Path(batch) / "batch.json").cases
    )
    ClaimsFile(
        claims=tuple(
            ClaimJudged(
                claim=f"C0{number}",
                says="When a leader dies another is elected.",
                sources=("S1", "S2"),
                verdict=verdict,
                why="Only where one is in sync." * (number % 2),
                experiment="batch",
                seconds=60,
                shown=shown,
            )
            for number, verdict in enumerate(ClaimVerdict)
        )
    ).save(folder / "claims.json")
    render_claims(folder)
    return folder / "claims.html"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(chromium: Chrome, claims: Path, theme: str) -> None:
    screen(chromium, 1280, 900, dark=theme == "dark")
    page = Page(chromium, claims)
    assert page.run("return document.querySelectorAll('svg.spark .line').length") == 3 * len(ClaimVerdict)
    assert violations(chromium) == []
    assert page.errors() == []
    assert page.requests() == []


def test_a_phone_shows_it_without_scrolling_sideways(chromium: Chrome, claims: Path) -> None:
    screen(chromium, 360, 740)
    page = Page(chromium, claims)
    assert page.run("return document.documentElement.scrollWidth") <= 360
