"""Tests of junit.xml and summary.md: valid XML for every text, and Markdown whose tables stay tables."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from ackproof.rundir.outcome import Verdict
from ackproof_reports import render_batch
from ackproof_reports.summaries import markdown, markdown_code, xml_text
from ackproof_reports.wording import duration, number_range, setting_names, share, short_setting, visible


def suite(folder: Path) -> ET.Element:
    render_batch(folder)
    root = ET.parse(folder / "junit.xml").getroot()
    found = root.find("testsuite")
    assert root.tag == "testsuites" and found is not None
    return found


def properties(element: ET.Element) -> dict[str, str]:
    return {p.attrib["name"]: p.attrib["value"] for p in element.findall("properties/property")}


def test_outcomes(maker: ModuleType, tmp_path: Path) -> None:
    found = suite(maker.make_batch(tmp_path, maker.missing()))
    assert (found.attrib["tests"], found.attrib["failures"], found.attrib["errors"], found.attrib["skipped"]) == (
        "6", "1", "4", "0",
    )  # fmt: skip
    assert found.attrib["timestamp"].startswith("2026-06-21T00:0")
    cases = list(found.iter("testcase"))
    kinds = [[child.attrib["type"] for child in case if child.tag in {"failure", "error"}] for case in cases]
    assert kinds == [["HarnessFailed"], ["HarnessFailed"], ["INCONCLUSIVE"], ["NotJudged"], ["FAIL"], []]
    failure = found.find("testcase/failure")
    assert failure is not None and failure.text == "lost: 12 acknowledged records. Forbidden: acks=all"
    last = found.findall("testcase")[-1]
    assert last.attrib == {
        "classname": "acks-matrix",
        "name": "acks=all,min.insync.replicas=2#1",
        "time": "16.400",
    }
    told = properties(last)
    assert told["verdict"] == "PASS" and told["seed"] == str(1_000_003 * 6)
    assert told["setting:workload.producers.acks"] == "all"
    assert properties(found)["verdict"] == "FAIL" and properties(found)["seed"] == "7"


def test_hostile_xml(maker: ModuleType, tmp_path: Path) -> None:
    found = suite(maker.make_batch(tmp_path, maker.hostile()))
    error = found.find("testcase/error")
    assert error is not None and error.text is not None
    assert "</script><script>" in error.text and "\x00" not in error.text


@given(st.text(st.characters(codec=None)))
def test_cleaned_text_is_xml(text: str) -> None:
    element = ET.Element("a", {"b": xml_text(text)})
    element.text = xml_text(text)
    assert ET.fromstring(ET.tostring(element, encoding="utf-8")).tag == "a"


def test_summary(maker: ModuleType, tmp_path: Path) -> None:
    render_batch(maker.make_batch(tmp_path))
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "**acks=0 and acks=1 lost acknowledged records when" in text
    assert "| acks=1, min.insync.replicas=2 | ✅ PASS | 17,300 | 1,391 | 0 | 120 | 2.4 s |" in text
    assert "- acks=1, min.insync.replicas=2: lost: 1,391 acknowledged records. Allowed: " in text
    assert "- acks=all" not in text
    assert "Repeat with: `ackproof run experiments/acks-matrix.yaml --seed 7`" in text


def test_hostile_summary_stays_a_table(maker: ModuleType, tmp_path: Path) -> None:
    render_batch(maker.make_batch(tmp_path, maker.hostile()))
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 8
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 8 for row in rows)
    assert not re.search(r"<(?!/?details|/?summary)", text)


@given(st.text(st.sampled_from("a |\\`*_[]()<>@&#\n\t\u202e")))
def test_plain_is_one_inert_line(text: str) -> None:
    told = markdown(text)
    assert "\n" not in told and "<" not in told and "@" not in told
    assert not re.search(r"(?<!\\)(?:\\\\)*[|`*_\[\]]", told)


@given(st.text(st.sampled_from("`ab |\n"), max_size=20))
def test_code_is_one_span(text: str) -> None:
    told = markdown_code(text)
    if told != "—":
        fence = re.match("`+", told)
        assert fence is not None and told.endswith(fence[0])
        assert fence[0] not in re.findall("`+", told[len(fence[0]) : -len(fence[0])])


def test_a_case_that_nobody_judged_is_an_error(maker: ModuleType, tmp_path: Path) -> None:
    cell = replace(maker.matrix()[0], verdict=None, without=("verdict", "audit"))
    found = suite(maker.make_batch(tmp_path, [cell]))
    assert found.attrib["errors"] == "1"


def test_verdict_json_serves_where_the_batch_is_silent(maker: ModuleType, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path, [replace(maker.matrix()[0], verdict=Verdict.INCONCLUSIVE)])
    text = (folder / "batch.json").read_text(encoding="utf-8")
    (folder / "batch.json").write_text(text.replace('"INCONCLUSIVE"', "null"), encoding="utf-8")
    error = suite(folder).find("testcase/error")
    assert error is not None and error.attrib["type"] == "INCONCLUSIVE"


def test_wording() -> None:
    assert share(1, 100_000) == "< 0.1 %"
    assert share(99_999, 100_000) == "> 99.9 %"
    assert (share(1, 2), share(0, 0)) == ("50 %", "—")
    assert [duration(ms) for ms in (0.25, 999, 6200, 125_000, None)] == [
        "0.25 ms",
        "999 ms",
        "6.2 s",
        "2 min 5 s",
        "—",
    ]
    assert [number_range(n) for n in ([], [5], [1200, 7])] == ["—", "5", "7–1,200"]
    assert short_setting("topics.a.config[min.insync.replicas]") == "min.insync.replicas"
    assert short_setting("workload.producers.acks") == "acks"
    assert visible("a\u202eb\x07\n") == "a\\u202eb\\x07\n"
    assert visible("naïve Ω 漢") == "naïve Ω 漢"


def test_settings_of_one_short_name_keep_their_paths() -> None:
    paths = ["topics.a.config[x.y]", "topics.b.config[x.y]", "workload.producers.acks"]
    assert list(setting_names(paths).values()) == [paths[0], paths[1], "acks"]
