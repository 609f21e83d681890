"""Tests of expectations over repeats in the three reports: verdict, drawing, and escaped texts."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

from ackproof.rundir.batch import BatchFile, OverRepeats, RepeatValue
from ackproof.rundir.layout import BatchDir
from ackproof.rundir.outcome import Verdict
from ackproof_reports import render_batch
from ackproof_reports.expectations import HEIGHT, WIDTH, over_repeats
from ackproof_reports.loading import load_batch


def expected(verdict: Verdict | None, **fields: object) -> OverRepeats:
    return OverRepeats(
        quantity="time_to(first ack, fault 1)", demand="median < 6s", unit="s", cells=("acks=all",), repeats=4,
        verdict=verdict, seen="2.500 s", interval="1.000 s to 4.000 s", low=1, high=4,
        values=(tuple(RepeatValue(case=f"acks=all#{n}", low=n, high=n) for n in (1, 2, 3, 4)),),
    ).model_copy(update=fields)  # fmt: skip


@pytest.fixture
def folder(maker: ModuleType, tmp_path: Path) -> Path:
    """A batch with three expectations over repeats: one holds, one is broken, one is undecided; with hostile texts."""
    made: Path = maker.make_batch(tmp_path, maker.matrix())
    values = (RepeatValue(case="a#1", low=1.0), RepeatValue(case="a#2", why="no <b>look</b>"))
    spanning = (
        expected(Verdict.PASS),
        expected(Verdict.FAIL, demand="median < 1s"),
        expected(
            Verdict.INCONCLUSIVE, why="a#2 has no number: <script>", values=(values,), seen="", interval=""
        ),
    )
    file = BatchDir(made).batch_json
    BatchFile.load(file).model_copy(update={"over_repeats": spanning}).save(file)
    render_batch(made)
    return made


def test_the_page_draws_and_tells_each(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    section = page[page.index('<section id="repeats"') : page.index('<section id="cases"')]
    assert re.findall(r'class="badge ([a-z-]+) small"', section) == ["pass", "fail", "inconclusive"]
    assert section.count("<svg viewBox") == 3
    assert "1.000 s to 4.000 s (95 %)" in section
    assert "a#2 has no number: &lt;script&gt;" in section.replace("A#2", "a#2")
    assert "<b>look" not in page
    assert "over repeats, time_to(first ack, fault 1) median &lt; 1s, acks=all does not hold: 2.500 s" in page


def test_the_line_goes_up_by_one_repeat_at_each_number(folder: Path) -> None:
    first, _, last = over_repeats(load_batch(folder))
    assert first.picture is not None
    points = [
        tuple(map(float, one)) for one in re.findall(r"H([0-9.]+)V([0-9.]+)", first.picture.curves[0].low)
    ]
    assert [x for x, _ in points] == [4, 108, 212, WIDTH - 4]
    heights = [y for _, y in points]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] == 6
    assert heights[0] == pytest.approx((HEIGHT - 18) - (HEIGHT - 24) / 4)
    assert first.picture.interval == (4, WIDTH - 8)
    assert [(row.known, row.least, row.median, row.most) for row in first.rows] == [
        ("4 of 4", "1.000 s", "2.500 s", "4.000 s")
    ]
    assert last.picture is not None
    assert "V" not in last.picture.curves[0].high, "what is open never comes"
    assert [(row.known, row.most) for row in last.rows] == [("1 of 2", "at least 1.000 s")]


def test_each_is_a_testcase_and_a_line(folder: Path) -> None:
    root = ET.parse(folder / "junit.xml").getroot()
    found = root.findall("testsuite/testcase")[-3:]
    assert [[child.tag for child in one if child.tag in ("failure", "error")] for one in found] == [
        [],
        ["failure"],
        ["error"],
    ]
    assert int(root.attrib["tests"]) == len(root.findall("testsuite/testcase"))
    assert found[0].attrib["name"] == "time_to(first ack, fault 1) median < 6s, acks=all"
    summary = (folder / "summary.md").read_text()
    assert "### Over repeats" in summary
    assert "95 % interval 1.000 s to 4.000 s, 4 repeats" in summary
    assert "<script>" not in summary


def test_a_batch_without_them_has_no_such_section(maker: ModuleType, tmp_path: Path) -> None:
    made = maker.make_batch(tmp_path, maker.matrix())
    render_batch(made)
    assert 'id="repeats"' not in (made / "report.html").read_text()
