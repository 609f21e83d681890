"""Tests of the drawing of a truncation: the log of each replica, the truncated offsets, and the acknowledged ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile, Truncation
from ackproof.rundir.observed import Sample
from ackproof.rundir.replicas import EpochStart, Replica, ReplicasFile
from ackproof_reports import render_batch
from ackproof_reports.facts import gather
from ackproof_reports.loading import load_batch
from ackproof_reports.mechanics import Mechanism, ReplicaLane, mechanics_of

S = 1_000_000_000
CUT = Truncation(
    topic="orders", partition=0, from_offset=1000, to_offset=1040, old_epoch=3, new_epoch=5, new_leader=2,
    why="broker 1 fenced", acked=40,
)  # fmt: skip


def sample(t: float, leader: int, epoch: int, **ends: int) -> Sample:
    log_ends = {int(name[1:]): end for name, end in ends.items()}
    return Sample(
        t_ns=int(t * S), topic="orders", partition=0, leader=leader, leader_epoch=epoch, replicas=(1, 2, 3),
        isr=(1, 2, 3), log_ends=log_ends,
    )  # fmt: skip


SAMPLES = [
    sample(1, 1, 3, b1=700, b2=700, b3=690),
    sample(2, 1, 3, b1=1050, b2=1000, b3=1010),
    sample(3, -1, 4, b2=1000, b3=1010),
    sample(4, 2, 5, b2=1200, b3=1010),  # not cut yet
    sample(5, 2, 5, b2=1300, b3=1290),
    sample(6, 2, 5, b1=1400, b2=1400, b3=1400),
]


@pytest.fixture
def run(maker: ModuleType, tmp_path: Path) -> CaseDir:
    """A run in which broker 1 led epoch 3 up to offset 1050. Of its records from 1000 on, broker 3 had ten and broker 2
    none. Broker 2 led epoch 5."""
    cell = replace(maker.matrix()[2], settings={}, lost=40, findings={}, ledgers=True)
    (run,) = (case.run for case in load_batch(maker.make_batch(tmp_path, [cell])).cases)
    ConformanceFile(truncations=(CUT,)).save(run.conformance_json)
    starts = (EpochStart(epoch=0, start=0), EpochStart(epoch=3, start=985), EpochStart(epoch=5, start=1000))
    logs = tuple(
        Replica(node=node, topic="orders", partition=0, folder="f", log_start=0, log_end=4800, epochs=starts)
        for node in (1, 2, 3)
    )
    ReplicasFile(replicas=logs).save(run.replicas)
    run.samples.write_text("".join(one.line() + "\n" for one in SAMPLES), encoding="utf-8")
    return run


def drawn(run: CaseDir) -> Mechanism:
    (fact,) = gather(load_batch(run.path.parent))
    (one,) = mechanics_of(fact.case, fact.lost_groups)
    return one


def offsets(one: Mechanism, lane: ReplicaLane, part: str) -> list[tuple[int, int, int]]:
    size = (one.high - one.low) / 100
    return [
        (round(one.low + bar.x * size), round(one.low + (bar.x + bar.width) * size), bar.epoch)
        for bar in getattr(lane, part)
    ]


def test_each_replica_shows_what_it_had_and_what_went(run: CaseDir) -> None:
    one = drawn(run)
    assert (one.low, one.high, one.epochs) == (986, 1064, (3, 5))
    led, taker, third = one.lanes
    assert [lane.role for lane in one.lanes] == ["led epoch 3", "led epoch 5", ""]
    assert offsets(one, led, "before") == [(986, 1050, 3)]
    assert offsets(one, led, "cut") == [(1000, 1050, -1)]
    assert offsets(one, led, "lost") == [(1000, 1040, -1)]
    assert led.told == "its log reached offset 1,050; 50 offsets from 1,000 on cut, between 2.0 and 6.0 s"
    assert offsets(one, taker, "cut") == offsets(one, taker, "lost") == []
    assert taker.told == "its log reached offset 1,000: nothing of it was cut"
    assert offsets(one, third, "lost") == [(1000, 1010, -1)]
    assert third.told == "its log reached offset 1,010; 10 offsets from 1,000 on cut, between 3.0 and 5.0 s"
    assert all(offsets(one, lane, "after") == [(986, 1000, 3), (1000, 1064, 5)] for lane in one.lanes)


def test_a_leader_had_what_it_acknowledged_where_no_look_came_in_time(run: CaseDir) -> None:
    lines = [SAMPLES[0].line(), SAMPLES[-1].line()]
    run.samples.write_text("\n".join(lines) + "\n", encoding="utf-8")
    led, *_ = drawn(run).lanes
    assert led.told.startswith("its log reached offset 1,040; 40 offsets from 1,000 on cut, between 1.0")


def test_without_samples_only_the_logs_at_the_end_are_drawn(run: CaseDir) -> None:
    run.samples.unlink()
    one = drawn(run)
    assert [lane.told for lane in one.lanes] == ["not seen before"] * 3
    assert all(lane.after and not (lane.before or lane.cut) for lane in one.lanes)


def test_without_logs_only_what_was_sampled_is_drawn(run: CaseDir) -> None:
    run.replicas.unlink()
    one = drawn(run)
    assert all(lane.before and not lane.after for lane in one.lanes)


def test_what_took_nothing_acknowledged_is_not_drawn(run: CaseDir) -> None:
    ConformanceFile(truncations=(CUT.model_copy(update={"acked": 0}),)).save(run.conformance_json)
    (fact,) = gather(load_batch(run.path.parent))
    assert mechanics_of(fact.case, fact.lost_groups) == ()


def test_the_page_has_the_picture(run: CaseDir) -> None:
    render_batch(run.path.parent)
    text = (run.path.parent / "report.html").read_text(encoding="utf-8")
    assert "How they went, replica by replica" in text
    assert "50 offsets from 1,000 on cut, between 2.0 and 6.0 s" in text
