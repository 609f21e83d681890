"""Tests of consumer groups in reports and `ackproof explain`: lanes of members, stories of records and commits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.base.errors import BadInput
from ackproof.cli import main as cli
from ackproof.rundir.groups import DELIVERIES, OFFSETS_LOG
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.schema import GROUP_FINDINGS
from ackproof_reports import render_batch
from ackproof_reports.facts import CaseFacts, gather
from ackproof_reports.group_story import tell_commit
from ackproof_reports.loading import load_batch
from ackproof_reports.one_record import RecordId, Spot, find_records, first_found, story_of
from synthetic_batch.groups import SKIPPED, UNPROCESSED


@pytest.fixture
def folder(maker: ModuleType, tmp_path: Path) -> Path:
    made: Path = maker.make_batch(tmp_path, [replace(maker.matrix()[5], group=True)])
    return made


def run_of(folder: Path) -> CaseDir:
    return BatchDir(folder).case(load_batch(folder).file.cases[0].case)


def facts_of(folder: Path) -> CaseFacts:
    (fact,) = gather(load_batch(folder))
    return fact


def test_a_lane_shows_what_a_member_owned_and_what_happened_to_it(folder: Path) -> None:
    (group,) = facts_of(folder).groups
    g0, g1, g2, g3 = group.lanes
    assert [bar.text for bar in g0.owned] == ["orders/0", "orders/0, 2", "orders/0"]
    assert [bar.text for bar in g2.owned] == ["orders/2", "orders/2"]
    assert [sorted(sign.kind for sign in lane.signs) for lane in group.lanes] == [
        ["reset"],
        ["killed"],
        ["lost", "refused"],
        [],
    ]
    ((pause,), (killed,)) = g2.paused, g1.signs
    # Its processing ends at the kill, and its successor's begins after it.
    assert killed.x == pytest.approx(g1.owned[-1].x + g1.owned[-1].width, abs=3)
    assert g3.owned[0].x > killed.x
    ticks = [float(x) for x in re.findall(r"M(\d+) ", g2.commits)]
    assert not [x for x in ticks if pause.x + 2 < x < pause.x + pause.width]
    assert group.behind == "orders/2 by 30"
    assert [one.kind for one in group.incidents] == ["paused", "killed", "reset", "over", "refused", "lost"]


def test_the_page_and_the_small_reports_have_the_group(folder: Path) -> None:
    render_batch(folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Group <bdi>billing</bdi>" in page and "at most once" in page
    assert "two-owners: the ledger of member g9 is missing" in page
    assert "group billing, g1" in page  # of a finding
    lines = (folder / "summary.md").read_text(encoding="utf-8").splitlines()
    (told,) = [line for line in lines if "billing: input" in line]
    assert told.endswith(f"refused 1, undelivered {len(UNPROCESSED)}, skipped-by-reset {SKIPPED}")
    assert f"undelivered: {len(UNPROCESSED)}" in (folder / "junit.xml").read_text(encoding="utf-8")


def test_without_groups_there_is_no_section(maker: ModuleType, tmp_path: Path) -> None:
    folder = maker.make_batch(tmp_path, [maker.matrix()[5]])
    render_batch(folder)
    assert facts_of(folder).groups == ()
    assert 'class="group"' not in (folder / "report.html").read_text(encoding="utf-8")
    assert "Consumer groups" not in (folder / "summary.md").read_text(encoding="utf-8")


def test_a_torn_ledger_is_named_and_the_counts_stay(folder: Path) -> None:
    (run_of(folder).deliveries / "client=g1" / "part-000000.parquet").write_bytes(b"torn")
    fact = facts_of(folder)
    assert any(text.startswith("ledgers of group members: cannot be read") for text in fact.absent)
    assert fact.groups[0].lanes == () and fact.groups[0].counts is not None
    render_batch(folder)


def test_a_million_deliveries_take_no_more_room_than_some(folder: Path) -> None:
    before = len("".join(lane.work + lane.commits for lane in facts_of(folder).groups[0].lanes))
    count = 1_000_000
    came = np.linspace(2.6e9, 13e9, count).astype(np.int64)
    columns = {
        "group": pa.array(["billing"] * count), "member": np.zeros(count, np.int32), "delivered_ns": came,
        "processed_ns": came + 1_000_000,
    }  # fmt: skip
    table = pa.table(
        [columns.get(field.name, pa.nulls(count, field.type).fill_null("" if field.type == pa.string() else 0))
         for field in DELIVERIES], names=DELIVERIES.names,
    )  # fmt: skip
    pq.write_table(table, run_of(folder).deliveries / "client=g0" / "part-000000.parquet")
    lanes = facts_of(folder).groups[0].lanes
    assert lanes[0].said.startswith(f"processed {count:,} records")
    assert len("".join(lane.work + lane.commits for lane in lanes)) <= before


def test_the_story_of_a_record_that_was_never_processed(folder: Path) -> None:
    run = run_of(folder)
    found = run.findings / "part-9.parquet"
    first = next(row for row in pq.read_table(found).to_pylist() if row["class"] == "undelivered")
    who = RecordId(first["producer"], first["seq"])
    assert first_found(run, "undelivered") == who
    assert who in find_records(run, Spot("orders", 1, first["offset"]))
    story = story_of(run, who)
    (told,) = [fact for fact in story.facts if fact.startswith("group billing")]
    assert told == (
        "group billing never processed it; g1 was handed it at 5.990 s (batch 20), then: killed by fault 4, "
        "kill_client member(billing) at 6.050 s; commit 20 of g1 to offset 420 (generation 1, accepted at 5.996 s) "
        "went past it; at the end its committed offset is 1,060, past it"
    )
    assert "the audit counts it as undelivered (group billing, g1)" in story.facts
    texts = [text for _, text in story.moments]
    assert "handed to g1: orders/1 offset 408, batch 20, generation 1" in texts
    assert not [text for text in texts if text.startswith("processed")]


def test_the_story_of_a_record_that_a_reset_passed_over(folder: Path) -> None:
    run = run_of(folder)
    found = first_found(run, "skipped-by-reset")
    assert isinstance(found, RecordId)
    (told,) = [fact for fact in story_of(run, found).facts if fact.startswith("group billing")]
    assert told.startswith(
        "group billing never processed it; no member was handed it; g0 passed over it at 8.610 s: reset from 200 to 215"
    )


def test_the_story_of_a_record_that_all_went_well_with(folder: Path) -> None:
    story = story_of(run_of(folder), RecordId(0, 5))
    (told,) = [fact for fact in story.facts if fact.startswith("group billing")]
    assert told.startswith("group billing processed it once: g0 at 2.635 s; commit 0 of g0 to offset 20")
    assert (
        "the output of group billing has 2 copies: partition 0 offset 77 and partition 0 offset 77"
        in story.facts
    )


def test_the_page_carries_the_story_of_an_undelivered_record(folder: Path) -> None:
    stories = facts_of(folder).stories
    assert stories is not None
    lines, of = stories["lines"], stories["of"]
    assert isinstance(of, dict) and len(of) == len(UNPROCESSED) + SKIPPED
    assert any(str(line).startswith("group billing never processed it") for line in lines or ())  # type: ignore[union-attr]


def test_a_commit_is_told_with_its_neighbours_and_what_the_log_has(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(folder)
    lost = {
        "class": "lost-commit",
        "topic": "orders",
        "partition": 0,
        "offset": 80,
        "producer": -1,
        "seq": -1,
    }
    row = {**lost, "detail": "", "group": "billing", "member": 0}
    pq.write_table(pa.Table.from_pylist([row], schema=GROUP_FINDINGS), run.findings / "part-9.parquet")
    lines = list(tell_commit(run, "lost-commit"))
    assert lines[0] == (
        "lost-commit (acknowledged, and in no replica's log): group billing, g0, orders/0 to offset 80"
    )
    assert "    3.116 s  commit 3 of g0 to offset 80 (generation 1, accepted at 3.116 s)" in lines
    assert all(any(f" to offset {offset} (" in line for line in lines) for offset in (60, 100))
    assert "  the logs of __consumer_offsets were not read" in lines
    kept = {
        "record": "commit",
        "group": "billing",
        "topic": "orders",
        "partition": 0,
        "node": 1,
        "log_offset": 7,
        "log_partition": 0,
    }
    rest = {
        "timestamp_ms": 0,
        "epoch": -1,
        "member_id": "",
        "producer_id": -1,
        "decision": 0,
        "decided_at": -1,
    }
    for number, said in (
        (2, "  no replica's log has commit 3 of g0"),
        (3, "  log of node 1: commit 3 of g0 at log offset 7, generation 1, in force"),
    ):
        commit = {**kept, **rest, "offset": 80, "member": 0, "number": number, "generation": 1}
        pq.write_table(pa.Table.from_pylist([commit], schema=OFFSETS_LOG), run.offsets_log)
        assert said in list(tell_commit(run, "lost-commit"))
    assert cli.main_code(["explain", str(run.path), "--class", "lost-commit"]) == 0
    assert said in capsys.readouterr().out
    with pytest.raises(BadInput, match="no finding of class zombie-commit"):
        list(tell_commit(run, "zombie-commit"))
