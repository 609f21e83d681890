"""Tests of how five kinds of report read: on a phone, on paper and by a screen reader, with the first paint within a
second; and of their findings."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from selenium.webdriver import Chrome

from ackproof.rundir.outcome import Verdict
from ackproof_reports import render_batch
from report_page import Page, open_all, screen, violations

pytestmark = pytest.mark.browser
KINDS = ("loss", "clean", "inconclusive", "forty", "huge")


@pytest.fixture(scope="module")
def reports(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports by kind: a loss over seven partitions with ledgers; no findings; no final read; 40 cases; 110,000
    findings."""
    cells = maker.matrix()
    loss, clean = replace(cells[2], settings={}), replace(cells[4], settings={}, findings={})
    made = {
        "loss": [replace(loss, lost=40, partitions=7, findings={"duplicate": 25}, ledgers=True)],
        "clean": [clean],
        "inconclusive": [
            replace(
                loss, verdict=Verdict.INCONCLUSIVE, reasons=("there was no final read",), without=("final",)
            )
        ],
        "forty": [replace(cell, repeat=n) for n in range(1, 8) for cell in cells][:40],
        "huge": [replace(loss, findings={"duplicate": 50_000, "surfaced": 60_000})],
    }
    folder = tmp_path_factory.mktemp("kinds")
    for name, recipes in made.items():
        render_batch(maker.make_batch(folder / name, recipes))
    return {name: folder / name / "report.html" for name in made}


AS_COLOURFUL = ("forty", "huge")
"""Kinds that show no further colour: their dark pages are tested at night only."""


@pytest.mark.parametrize(
    ("theme", "kind"),
    [
        *(("light", kind) for kind in KINDS),
        *(
            pytest.param("dark", kind, marks=pytest.mark.nightly if kind in AS_COLOURFUL else ())
            for kind in KINDS
        ),
    ],
)
def test_axe_finds_nothing(chromium: Chrome, reports: dict[str, Path], kind: str, theme: str) -> None:
    screen(chromium, 1280, 900, dark=theme == "dark")
    page = Page(chromium, reports[kind])
    # Of 40 cases one is open, and is as the others are: axe would take minutes for what nobody sees.
    page.run(
        """document.querySelectorAll("details.case:not([open]) > .body").forEach((body) => body.remove());
        document.querySelectorAll("details:not(.case)").forEach((one) => { one.open = true; });"""
    )
    page.show(".chart svg.picture, .chart")
    assert violations(chromium) == []
    assert page.errors() == []
    assert page.requests() == []


def test_axe_would_find_something(chromium: Chrome, reports: dict[str, Path]) -> None:
    page = Page(chromium, reports["clean"])
    page.until(lambda: page.run("return document.querySelector('.chart-tools select') !== null"), "a chart")
    page.run(
        "document.querySelector('.chart-tools select').parentElement.replaceWith(document.createElement('select'))"
    )
    assert any(said.startswith("select-name: ") for said in violations(chromium))


@pytest.mark.parametrize("kind", KINDS)
def test_first_paint_within_a_second(chromium: Chrome, reports: dict[str, Path], kind: str) -> None:
    page = Page(chromium, reports[kind])
    paint = page.until(
        lambda: page.run("return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"),
        "a paint",
    )
    assert paint <= 1000


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_phone_nothing_is_cut_and_rows_are_low(
    chromium: Chrome, reports: dict[str, Path], kind: str
) -> None:
    screen(chromium, 390, 844)
    page = Page(chromium, reports[kind])
    page.run("document.querySelectorAll('.case, .alone details').forEach((one) => { one.open = true; })")
    open_all(page)
    cut = page.run(
        """const room = document.documentElement.clientWidth;
        return [...document.querySelectorAll("main *")].filter((e) => e.checkVisibility() && !e.closest(".matrix"))
          .filter((e) => !e.closest("svg, pre, .hidden-text, .sprite, thead") && e.getBoundingClientRect().right > room)
          .map((e) => e.outerHTML.slice(0, 120));"""
    )
    assert cut == []
    words = page.run(
        """return [...document.querySelectorAll("label, button, .badge")].filter((e) => e.checkVisibility())
          .filter((e) => [...e.childNodes].some((n) => {
            if (n.nodeType !== 3 || !n.textContent.trim() || /\\s/.test(n.textContent.trim())) return false;
            const range = document.createRange();
            range.selectNodeContents(n);
            return range.getClientRects().length > 1;
          })).map((e) => e.outerHTML.slice(0, 120));"""
    )
    assert words == []
    high = page.run(
        """return [...document.querySelectorAll(".rows tbody tr")]
          .filter((row) => row.checkVisibility() && row.getBoundingClientRect().height > 80)
          .map((row) => row.outerHTML.slice(0, 300));"""
    )
    assert high == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_takes_four_pages_of_paper_at_most(
    chromium: Chrome, reports: dict[str, Path], kind: str
) -> None:
    page = Page(chromium, reports[kind])
    # All are as long as the others are.
    cases = page.run(
        """[...document.querySelectorAll("details.case")].slice(8).forEach((one) => one.remove());
        return document.querySelectorAll("details.case").length;"""
    )
    assert cases == (8 if kind == "forty" else 0)
    paper = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}
    pdf = base64.b64decode(chromium.execute_cdp_cmd("Page.printToPDF", paper)["data"])
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 1 < pages <= 4 * max(1, cases)
    assert page.errors() == []


@pytest.fixture
def paper(chromium: Chrome) -> Iterator[None]:
    screen(chromium, 720, 1000)
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    yield
    screen(chromium, 1280, 900)


@pytest.mark.usefixtures("paper")
def test_cards_and_pictures_are_not_cut_across_pages(chromium: Chrome, reports: dict[str, Path]) -> None:
    page = Page(chromium, reports["forty"])
    kept = page.run(
        """return [...new Set([...document.querySelectorAll(".cell, .tiles, .callout, .chart svg, tbody tr")]
          .map((e) => getComputedStyle(e).breakInside))];"""
    )
    assert kept == ["avoid"]


def test_findings_are_rows_with_ranges_that_open(chromium: Chrome, reports: dict[str, Path]) -> None:
    page = Page(chromium, reports["loss"])
    page.show(".findings")
    page.until(lambda: page.all(".findings .finding-tools"), "the table")
    assert page.one(".findings .shown").text == "1–2 of 2 rows, 65 findings"
    lost, copies = (row.text for row in page.all(".findings tbody tr"))
    assert "1,000–1,039 40" in lost
    assert "5,000–5,024 25" in copies and "the other copies are at offsets 2,000–2,024" in copies
    # One member opens into its story.
    page.run("document.querySelector('.findings tbody .opener').click()")
    page.until(lambda: len(page.all(".findings .member")) == 40, "the members")
    page.run("document.querySelectorAll('.findings .member .opener')[3].click()")
    story = page.until(lambda: page.one(".findings .story").text, "the story")
    assert "4.210 s\nacknowledged at offset 1003" in story
    assert "at orders/0@1003 the final read holds record 3 of producer 1, leader epoch 1" in story
    assert "fault 2 bit: process 4711 is gone" in story
    assert "ackproof explain only_1 --record 0:3" in story
    page.run("document.querySelector('.findings tbody .opener').click()")
    page.until(lambda: len(page.all(".findings tbody tr")) == 2, "all shut again")
    page.run(
        """const kind = document.querySelector(".findings select"); kind.value = "1";
        kind.dispatchEvent(new Event("change"));"""
    )
    assert page.one(".findings .shown").text == "1–1 of 1 rows, 25 findings found of 65"
    assert page.errors() == []


def test_each_partition_has_its_row_and_isr_sizes_are_whole(
    chromium: Chrome, reports: dict[str, Path]
) -> None:
    page = Page(chromium, reports["loss"])
    page.show(".chart")
    page.until(lambda: page.all(".chart svg.picture"), "the picture")
    words = page.run("return [...document.querySelectorAll('.picture text')].map((text) => text.textContent)")
    for place in range(7):
        assert words.count(f"orders/{place}") == 4  # acks, tail, leader, ISR
    assert "3: brokers 1 2 3" in words and "2: brokers 2 3" in words
    page.run(
        """const select = document.querySelector(".chart-tools select");
        select.value = "4"; select.dispatchEvent(new Event("change"));"""
    )
    words = page.run("return [...document.querySelectorAll('.picture text')].map((text) => text.textContent)")
    assert {word for word in words if word.startswith("orders/")} == {"orders/4"}
