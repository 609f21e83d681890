"""Tests of the brokers' timings in both reports: each setting that is not Kafka's default, and a note at every time."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from ackproof.console import Console
from ackproof.rundir.batch import BatchFile
from ackproof.rundir.documents import ChangedSetting, Timing
from ackproof.rundir.layout import BatchDir
from ackproof_reports import render_batch

CHAOS = Timing(
    name="chaos",
    changed=(
        ChangedSetting(name="broker.session.timeout.ms", value="3000", default="9000"),
        ChangedSetting(name="num.io.threads", value="2", default="8", brokers=(2, 3)),
    ),
)
OURS = Timing(
    name="Kafka's own + server.properties",
    ignored={"it gives out addresses": ("listeners", "advertised.listeners")},
)


def pages(maker: ModuleType, folder: Path, *timings: Timing | None) -> tuple[str, str]:
    """Return the texts of page and summary of a batch of six cases with these timings; the last timing is repeated."""
    every = [*timings, *[timings[-1]] * 6][:6]
    recipes = [replace(one, timing=timing) for one, timing in zip(maker.matrix(), every, strict=True)]
    render_batch(maker.make_batch(folder, recipes))
    page = (folder / "report.html").read_text("utf-8")
    text = html.unescape(re.sub(r"<(style|script)[^>]*>.*?</\1>|<[^>]+>", " ", page, flags=re.S))
    return " ".join(text.split()), (folder / "summary.md").read_text("utf-8").replace("\\", "")


def test_both_reports_begin_with_it_and_list_each_setting_with_both_values(
    maker: ModuleType, tmp_path: Path
) -> None:
    page, summary = pages(maker, tmp_path, CHAOS)
    top = page[: page.index("What each setting kept and lost", page.index("Exit code"))]
    assert "Timing: chaos. Every time below was measured under it; 2 settings not at Kafka's default" in top
    assert "broker.session.timeout.ms 3000 9000 every node" in top
    assert "num.io.threads 2 8 broker 2, 3" in top
    assert "timing: chaos; every time is measured under it." in summary
    assert "broker.session.timeout.ms=3000 (9000), num.io.threads=2 on broker 2, 3 (8)" in summary
    assert summary.index("timing: chaos") < summary.index("| case |")


def test_every_time_stands_beside_it(maker: ModuleType, tmp_path: Path) -> None:
    page, summary = pages(maker, tmp_path, CHAOS)
    assert (
        page.count(
            "Longest gap: the longest time between two acknowledgements of one partition, timing chaos."
        )
        == 1
    )
    assert len(re.findall(r"longest gap 2\.\d s orders/\d timing chaos", page)) == 6
    assert page.count("Recovery Timing: chaos.") == 6
    assert "| longest gap between acks, timing chaos |" in summary


def test_what_the_broker_file_lacks_is_told(maker: ModuleType, tmp_path: Path) -> None:
    page, summary = pages(maker, tmp_path, OURS)
    told = "listeners, advertised.listeners: it gives out addresses"
    assert f"Ignored of the broker file: {told}." in page
    assert f"- ignored: {told}" in summary


def test_cases_of_several_timings_are_named(maker: ModuleType, tmp_path: Path) -> None:
    page, summary = pages(maker, tmp_path, CHAOS, OURS)
    assert "Timing: chaos (acks=0, min.insync.replicas=1)." in page
    assert "Timing: Kafka's own + server.properties (acks=0, min.insync.replicas=2;" in page
    assert "timing chaos, Kafka's own + server.properties |" in summary
    assert page.count("Recovery Timing: chaos.") == 1


def test_a_run_of_an_older_version_says_nothing_of_it(maker: ModuleType, tmp_path: Path) -> None:
    page, summary = pages(maker, tmp_path, None)
    assert "iming" not in page + summary


def test_the_console_says_it_of_a_batch(
    maker: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages(maker, tmp_path, CHAOS, OURS)
    Console().batch(BatchFile.load(BatchDir(tmp_path).batch_json), "report.html")
    assert (
        "times were measured with the time-outs: chaos, Kafka's own + server.properties\n"
        in capsys.readouterr().out
    )
