"""Tests of recovery and metrics in the page: times after faults, lanes, spread over repeats, and unknown times."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.rundir.batch import BatchFile
from ackproof.rundir.layout import BatchDir, CaseDir
from ackproof.rundir.schema import METRICS as COLUMNS
from ackproof_reports import render_batch
from ackproof_reports.facts import CaseFacts, gather
from ackproof_reports.loading import load_batch
from ackproof_reports.recovery import Alerts, Recovery, alerts_of, evidence_of_run, recovery_of, spreads

SECOND = 1_000_000_000


def read(folder: Path) -> list[tuple[CaseFacts, Recovery | None]]:
    batch = load_batch(folder)
    return [(fact, recovery_of(fact, evidence_of_run(fact))) for fact in gather(batch)]


def planted(
    run: CaseDir, told: dict[int, list[float | None]], metric: str = "under_replicated_partitions"
) -> None:
    """Write scrapes of a metric: by node, a value per second from the run's start; None: the node did not answer."""
    rows = []
    for node, values in told.items():
        for number, value in enumerate(values):
            asked = {"t_ns": number * SECOND, "done_ns": number * SECOND + 1000, "node": node}
            rows.append({**asked, "metric": "up", "value": float(value is not None)})
            if value is not None:
                rows.append({**asked, "metric": metric, "value": value})
    run.metrics.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=COLUMNS), run.metrics)


def alerts(folder: Path) -> Alerts:
    (fact,) = gather(load_batch(folder))
    found = alerts_of(fact, evidence_of_run(fact), [])
    assert found is not None
    return found


@pytest.fixture
def one(maker: ModuleType, tmp_path: Path) -> CaseDir:
    """The run of a batch of one case, whose faults begin some seconds after its start."""
    folder = maker.make_batch(tmp_path / "batch", maker.matrix()[:1])
    return CaseDir(folder / BatchFile.load(BatchDir(folder).batch_json).cases[0].run)


def test_each_fault_has_its_times_and_each_partition_its_lanes(one: CaseDir) -> None:
    ((fact, recovery),) = read(one.path.parent)
    assert recovery is not None
    assert [fault.number for fault, _ in recovery.after] == [
        fault.number for fault in fact.course.faults if fault.confirmed is not None
    ]
    for _, phases in recovery.after:
        assert "first ack" in dict(phases)
    assert recovery.lanes is not None
    labels = [lane.label for lane in recovery.lanes.lanes]
    assert labels[:2] == [f"orders/0 {word}" for word in ("acked", "refused")]
    assert not any(label.endswith(("leader", "ISR")) for label in labels), "these are in the chart"
    assert all(
        bar.x >= 150 and bar.x + bar.width <= 721 for lane in recovery.lanes.lanes for bar in lane.bars
    )


def test_a_run_without_faults_has_none(one: CaseDir) -> None:
    lines = one.timeline.read_text().splitlines()
    one.timeline.write_text("".join(f"{line}\n" for line in lines if '"fault-' not in line))
    ((_, recovery),) = read(one.path.parent)
    assert recovery is None
    render_batch(one.path.parent)
    assert "<h4>Recovery</h4>" not in (one.path.parent / "report.html").read_text()


def test_repeats_are_spread_and_a_starved_one_took_at_most_so_long(maker: ModuleType, tmp_path: Path) -> None:
    recipe = maker.matrix()[0]
    folder = maker.make_batch(tmp_path, [replace(recipe, repeat=number) for number in (1, 2, 3)])
    told = read(folder)
    found = spreads(load_batch(folder), told)
    ack = next(spread for spread in found if spread.title.endswith(": isr shrunk"))
    (row,) = ack.rows
    assert row.known == "3 of 3"
    assert row.interval == "not bounded", "a median takes six repeats"
    assert ack.picture is not None
    render_batch(folder)
    page = (folder / "report.html").read_text()
    assert page.count('<section id="recovery"') == 1
    file = BatchDir(folder).batch_json
    batch = BatchFile.load(file)
    starved = tuple(case.model_copy(update={"starved": ("late",)}) for case in batch.cases)
    batch.model_copy(update={"cases": starved}).save(file)
    ack = next(s for s in spreads(load_batch(folder), read(folder)) if s.title.endswith(": isr shrunk"))
    assert ack.rows[0].least.startswith("0 ms to ")


def test_an_alert_stands_beside_what_was_so(one: CaseDir) -> None:
    asked = (
        min(fault.asked_ns or 0 for fault in gather(load_batch(one.path.parent))[0].course.faults) // SECOND
    )
    shows = [0.0] * (asked + 4) + [1.0] * 30
    planted(one, {1: list(shows), 2: [0.0] * len(shows)})
    told = alerts(one.path.parent)
    first = {alert.alert: alert for alert in told.after[0][1]}["under_replicated_partitions > 0"]
    assert re.match(r"[0-9.]+ m?s to [0-9.]+ s", first.shown)
    assert told.holes == ()
    lane = next(lane for lane in told.lanes.lanes if lane.label == "under_replicated_partitions")
    assert {bar.kind for bar in lane.bars} == {"shown"}
    render_batch(one.path.parent)
    assert "<h4>Metrics against the truth</h4>" in (one.path.parent / "report.html").read_text()


def test_a_silence_of_the_exporter_is_unknown_and_no_alert_that_never_came(one: CaseDir) -> None:
    planted(one, {1: [0.0, *[None] * 60], 2: [0.0] * 61})
    told = alerts(one.path.parent)
    assert any("node 1 lived and did not tell" in hole for hole in told.holes)
    lane = next(lane for lane in told.lanes.lanes if lane.label == "under_replicated_partitions")
    assert {bar.kind for bar in lane.bars} == {"unknown"}
    shown = {alert.alert: alert for alert in told.after[0][1]}["under_replicated_partitions > 0"]
    assert not shown.shown.startswith("never")
    quiet = [0.0] * 61
    planted(one, {1: list(quiet), 2: list(quiet)})
    told = alerts(one.path.parent)
    shown = {alert.alert: alert for alert in told.after[0][1]}["under_replicated_partitions > 0"]
    assert shown.shown.startswith("never in ")


def test_a_mode_is_not_asked_for_what_it_does_not_have(one: CaseDir) -> None:
    planted(one, {1: [0.0] * 61, 2: [0.0] * 61})
    assert "leader_elections > 0" not in [alert.alert for alert in alerts(one.path.parent).after[0][1]]


def test_what_cannot_be_read_is_left_out_and_said(one: CaseDir) -> None:
    part = one.produced / "client=p" / "part-000000.parquet"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"torn")
    ((_, recovery),) = read(one.path.parent)
    assert recovery is not None
    ack = dict(recovery.after[0][1])["first ack"]
    assert not ack.is_known
    assert "cannot be read" in ack.why


def test_a_damaged_file_of_metrics_is_named_and_the_report_goes_on(one: CaseDir) -> None:
    planted(one, {1: [0.0] * 61})
    one.metrics.write_bytes(one.metrics.read_bytes()[:-20])
    render_batch(one.path.parent)
    page = (one.path.parent / "report.html").read_text()
    assert "<h4>Metrics against the truth</h4>" not in page
    assert "observed/metrics.parquet: cannot be read: " in page
    assert "<h4>Recovery</h4>" in page
