"""Tests of the report in a browser: no errors, no injection, speed, small screens, dark theme and paper."""

from __future__ import annotations

import base64
import itertools
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from ackproof_reports import render_batch
from report_page import CHART, Page, open_all, screen

pytestmark = pytest.mark.browser
SIGNS = {"killed": 1, "lost": 1, "reset": 1, "refused": 1}
"""Number of signs of each kind in the lanes of the synthetic group."""


@pytest.fixture(scope="module")
def folder(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = maker.make_batch(tmp_path_factory.mktemp("plain"))
    render_batch(made)
    return made


@pytest.fixture(scope="module")
def hostile(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = maker.make_batch(tmp_path_factory.mktemp("hostile"), maker.hostile())
    render_batch(made)
    return made


@pytest.fixture(scope="module")
def huge(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = [replace(maker.matrix()[2], lost=1204, findings={"duplicate": 50_000, "surfaced": 60_000})]
    made: Path = maker.make_batch(tmp_path_factory.mktemp("huge"), cells)
    render_batch(made)
    return made


@pytest.fixture(scope="module")
def grouped(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = [replace(recipe, group=True) for recipe in maker.matrix()[4:]]
    made: Path = maker.make_batch(tmp_path_factory.mktemp("grouped"), cells)
    render_batch(made)
    return made


def test_quiet_and_without_network(chromium: Chrome, folder: Path) -> None:
    page = Page(chromium, folder / "report.html")
    open_all(page)
    assert page.errors() == []
    assert page.requests() == []


def test_nothing_can_be_fetched_even_by_a_script(chromium: Chrome, folder: Path) -> None:
    page = Page(chromium, folder / "report.html")
    blocked = page.run(
        """return new Promise((done) => {
          const found = new Set();
          document.addEventListener("securitypolicyviolation", (event) => {
            found.add(event.effectiveDirective);
            if (found.size === 3) done([...found].sort());
          });
          fetch("http://127.0.0.1:9/").catch(() => {});
          document.body.append(Object.assign(document.createElement("img"), {src: "http://127.0.0.1:9/x.png"}));
          document.body.append(Object.assign(document.createElement("script"), {textContent: "window.hacked = 9"}));
        });"""
    )
    assert blocked == ["connect-src", "img-src", "script-src-elem"]
    assert page.run("return window.hacked") is None


def test_hostile_names_do_not_run(chromium: Chrome, hostile: Path, maker: ModuleType) -> None:
    page = Page(chromium, hostile / "report.html")
    open_all(page)
    chart = page.chart()
    ActionChains(chromium).move_to_element(chart).perform()
    page.until(lambda: page.one(".readout:not([hidden])"), "the readout")
    assert page.run("return window.hacked") is None
    assert page.errors() == []
    assert maker.HOSTILE[0] in page.one("#matrix").text
    assert (
        page.run("return document.querySelectorAll('main img, main iframe, main script:not([type])').length")
        == 0
    )


def test_charts_are_drawn(chromium: Chrome, folder: Path) -> None:
    page = Page(chromium, folder / "report.html")
    chart = page.chart()
    lines = page.run(
        "return [...arguments[0].querySelectorAll('path.line')].map((path) => path.getTotalLength())", chart
    )
    assert sum(length > 300 for length in lines) >= 10  # totals, each partition, latencies, tails
    assert len(chart.find_elements(By.CSS_SELECTOR, ".band")) >= 8
    words = page.run("return arguments[0].textContent", chart)
    for text in (
        "pause followers(orders/0) · nodes 2 and 3",
        "kill leader(orders/0) · node 1",
        "broker 2, epoch 1",
    ):
        assert text in words
    assert "acks=1" in (chart.get_attribute("aria-label") or "")


def test_zoom_by_drag_keys_and_buttons(chromium: Chrome, folder: Path) -> None:
    page = Page(chromium, folder / "report.html")
    chart = page.chart()

    def times() -> list[float]:
        axis = page.run(
            """return [...arguments[0].querySelectorAll("text")].map((text) => text.textContent)
              .filter((text) => /^[0-9.]+ s$/.test(text));""",
            chart,
        )
        # Labels of the axis of time have decimals; those of latencies (1 s, 10 s) have none.
        return [float(text.split()[0]) for text in axis if "." in text]

    before = times()
    ActionChains(chromium).move_to_element_with_offset(chart, -200, 0).click_and_hold().move_by_offset(
        150, 0
    ).release().perform()
    page.until(lambda: max(times()) - min(times()) < (max(before) - min(before)) / 2, "a closer view")
    ActionChains(chromium).double_click(chart).perform()
    page.until(lambda: times() == before, "the first view")
    page.run("arguments[0].focus()", chart)
    ActionChains(chromium).send_keys("+").perform()
    page.until(lambda: times() != before, "a closer view by key")
    ActionChains(chromium).send_keys(Keys.ARROW_RIGHT).perform()
    assert "leader" in page.run("return document.getElementById('said').textContent")
    ActionChains(chromium).send_keys("0").perform()
    page.until(lambda: times() == before, "the first view by key")
    page.one("details[open] .chart-tools button[aria-label^='Show the numbers']").click()
    assert len(page.all("details[open] .chart table tbody tr")) > 10


def test_one_partition(chromium: Chrome, folder: Path) -> None:
    page = Page(chromium, folder / "report.html")
    page.chart()
    page.run(
        """const select = document.querySelector("details[open] .chart-tools select");
        select.value = "1"; select.dispatchEvent(new Event("change"));"""
    )
    words = page.run("return document.querySelector(arguments[0]).textContent", CHART)
    assert "orders/1" in words and "orders/0orders" not in words


def test_search_sort_and_page_through_100_000_findings(chromium: Chrome, huge: Path) -> None:
    page = Page(chromium, huge / "report.html")
    page.show(".findings")
    began = time.monotonic()
    page.until(lambda: page.all(".findings .finding-tools"), "the table")
    assert time.monotonic() - began < 5
    shown = page.one(".findings .shown")
    assert shown.text == "1–25 of 100,000"

    took = page.run(
        """const search = document.querySelector(".findings input[type=search]");
        const table = document.querySelector(".findings .shown");
        search.value = 'DUPLICATE orders/1 "number 49,999"';
        const start = performance.now();
        search.dispatchEvent(new Event("input"));
        return new Promise((done) => new MutationObserver(() => done(performance.now() - start))
          .observe(table, {childList: true, characterData: true, subtree: true}));"""
    )
    assert shown.text == "1–1 of 1 found of 100,000"
    assert took < 2500  # the first search makes the lines; 140 ms of it wait for more keys
    page.run(
        """const search = document.querySelector(".findings input[type=search]");
        search.value = ""; search.dispatchEvent(new Event("input"));"""
    )
    page.until(lambda: shown.text == "1–25 of 100,000", "all findings again")
    page.one(".findings button[aria-label='Last page']").click()
    assert shown.text == "99,976–100,000 of 100,000"
    took = page.run(
        """const start = performance.now();
        document.querySelector(".findings button[aria-label='Sort by Offset']").click();
        return performance.now() - start;"""
    )
    assert took < 2500
    assert page.one(".findings th[aria-sort='ascending']").text.startswith("Offset")
    page.run(
        """const kind = document.querySelector(".findings select");
        kind.value = [...kind.options].find((option) => option.textContent === "lost").value;
        kind.dispatchEvent(new Event("change"));"""
    )
    assert shown.text == "1–25 of 1,204 found of 100,000"
    assert "This page carries 100,000 of 111,204 findings" in page.one("main").text
    assert page.errors() == []


@pytest.mark.parametrize("which", ["folder", "hostile", "huge", "grouped"])
def test_a_phone_scrolls_one_way_only(chromium: Chrome, request: pytest.FixtureRequest, which: str) -> None:
    screen(chromium, 360, 740)
    page = Page(chromium, request.getfixturevalue(which) / "report.html")
    open_all(page)
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    wide = page.run(
        """const room = document.documentElement.clientWidth;
        return [document.documentElement.scrollWidth - room, ...[...document.querySelectorAll("main *")]
          .filter((e) => !e.closest(".scroll, svg, pre, .hidden-text") && e.getBoundingClientRect().right > room + 1)
          .map((e) => e.outerHTML.slice(0, 120))];"""
    )
    assert wide == [0]


def test_dark_and_light(chromium: Chrome, folder: Path) -> None:
    def back() -> int:
        colour = page.run(
            "return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"
        )
        return sum(colour[:3])

    screen(chromium, 1280, 900, dark=True)
    page = Page(chromium, folder / "report.html")
    assert back() < 120
    button = page.one("#theme")
    button.click()
    assert button.text.endswith("light") and back() > 700
    screen(chromium, 1280, 900)
    button.click()
    assert button.text.endswith("dark") and back() < 120
    button.click()
    assert button.text.endswith("auto") and back() > 700


@pytest.mark.parametrize("which", ["folder", "grouped"])
@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out(chromium: Chrome, request: pytest.FixtureRequest, dark: bool, which: str) -> None:
    """WCAG AA requires a contrast of 4.5 to 1 between a text and its background."""
    screen(chromium, 1280, 900, dark=dark)
    page = Page(chromium, request.getfixturevalue(which) / "report.html")
    page.chart()
    faint = page.run(
        """const parse = (colour) => (colour.match(/[0-9.]+/g) || []).map(Number);
        const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
          .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
          .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
        const behind = (element) => {
          for (let e = element; e; e = e.parentElement) {
            const colour = parse(getComputedStyle(e).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
          }
          return [255, 255, 255];
        };
        return [...document.querySelectorAll("body *")]
          .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) && e.checkVisibility())
          .filter((e) => !["SCRIPT", "STYLE", "TITLE", "NOSCRIPT"].includes(e.tagName) && !e.disabled)
          .map((e) => {
            const style = getComputedStyle(e);
            const [one, other] = [light(parse(e.closest("svg") ? style.fill : style.color)), light(behind(e))];
            return [(Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05), e.outerHTML.slice(0, 90)];
          })
          .filter(([ratio]) => ratio < 4.5);"""
    )
    assert faint == []


def test_members_of_a_group_are_drawn_without_a_script(chromium: Chrome, grouped: Path) -> None:
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        chromium.get((grouped / "report.html").as_uri())
        lanes = chromium.find_element(By.CSS_SELECTOR, "details[open] .members svg")
        label = lanes.get_attribute("aria-label") or ""
        names = [one.text for one in lanes.find_elements(By.CSS_SELECTOR, ".member")]
        signs = {one: len(lanes.find_elements(By.CSS_SELECTOR, f".sign.{one}")) for one in SIGNS}
        table = chromium.find_element(By.CSS_SELECTOR, "details[open] .group .incidents")
        summary = table.find_element(By.TAG_NAME, "summary")
        summary.send_keys(Keys.ENTER)
        rows = [row.text for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")]
        region = chromium.find_element(By.CSS_SELECTOR, "details[open] .members .scroll")
        focusable = region.get_attribute("tabindex")
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert names == ["g0", "g1", "g2", "g3"] and focusable == "0"
    assert signs == SIGNS
    assert "g1: processed 408 records" in label and "killed by fault 4" in label
    assert any("lost orders/2" in row for row in rows) and any("UNKNOWN_MEMBER_ID" in row for row in rows)


def test_what_happens_to_a_member_is_at_the_same_time_in_both_pictures(
    chromium: Chrome, grouped: Path
) -> None:
    """The lanes and the chart must have the same time axis."""
    page = Page(chromium, grouped / "report.html")
    page.chart()
    first, last = page.run(
        """const home = JSON.parse(document.querySelector("details[open] script[id$='-picture']").textContent).home;
        const ticks = [...document.querySelectorAll("details[open] .members .tick")];
        const at = (tick) => [Number(tick.textContent.split(" ")[0]), Number(tick.getAttribute("x"))];
        const [[t0, x0], [t1, x1]] = [at(ticks[0]), at(ticks[ticks.length - 1])];
        const seconds = (x) => t0 + (x - x0) * (t1 - t0) / (x1 - x0);
        return [seconds(150) - home[0], seconds(720) - home[1]];"""
    )
    assert abs(first) < 0.05 and abs(last) < 0.05
    assert page.errors() == []


def test_links_open_their_case(chromium: Chrome, folder: Path) -> None:
    page = Page(chromium, folder / "report.html")
    assert page.run("return document.getElementById('case-6').open") is False
    page.run("document.querySelector('#matrix a[href=\"#case-6\"]').click()")
    page.until(lambda: page.run("return document.getElementById('case-6').open"), "the case")


def test_keyboard_reaches_everything(chromium: Chrome, folder: Path) -> None:
    page = Page(chromium, folder / "report.html")
    page.chart()
    page.show("details[open] .findings")
    page.until(lambda: page.all("details[open] .finding-tools"), "the findings")
    page.run("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached: set[str] = set()
    for _ in range(90):
        ActionChains(chromium).send_keys(Keys.TAB).perform()
        reached.add(
            page.run("const e = document.activeElement; return e.id || e.getAttribute('class') || e.tagName")
        )
    assert {"skip", "theme", "picture", "open-all", "SUMMARY"} <= reached
    levels = page.run("return [...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    nameless = page.run(
        """return [...document.querySelectorAll("button, select, input")]
          .filter((e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute("aria-label")))
          .map((e) => e.outerHTML);"""
    )
    assert nameless == []


def test_on_paper(chromium: Chrome, folder: Path) -> None:
    page = Page(chromium, folder / "report.html")
    pdf = base64.b64decode(chromium.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF") and len(pdf) > 100_000
    assert page.run("return document.querySelectorAll('.chart svg.picture').length") == 6  # drawn for paper
    assert page.run("return document.querySelectorAll('details.case[open]').length") == 1  # and shut again
    assert page.errors() == []


def test_without_scripts_the_facts_are_there(chromium: Chrome, folder: Path) -> None:
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        chromium.get((folder / "report.html").as_uri())
        text = chromium.find_element(By.TAG_NAME, "main").text
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    for part in (
        "lost acknowledged records",
        "Scripts are off",
        "offsets 1,000–1,602",
        "acked after 2 ms by broker 1",
    ):
        assert part in text
