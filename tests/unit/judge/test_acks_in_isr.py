"""Tests of `check_acks_in_isr`: replicas in the controller's ISR that lack records acknowledged with acks=all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackproof.judge.checks.isr import check_acks_in_isr
from ackproof.judge.facts import Facts
from ackproof.rundir.lifelines import ProcessLife
from ackproof.rundir.metadata import PartitionChanged
from ackproof.rundir.observed import Sample
from ackproof.rundir.outcome import Outcome, Says
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.timeline import Event, EventKind
from run_directory import write_run

PLACE = TopicPartition("orders", 0)
MS = 1_000_000
WALL_NS = 10**15


def _sample(at_ms: int, leader_end: int, follower_end: int | None, epoch: int = 0) -> Sample:
    ends = {1: leader_end, 2: leader_end} | ({} if follower_end is None else {3: follower_end})
    return Sample(at_ms * MS, "orders", 0, 1, epoch, (1, 2, 3), (1, 2, 3), leader_end, leader_end, ends)


BEHIND = [_sample(5000 + 100 * step, 1000, 400) for step in range(4)]
"""Samples 100 ms apart, in which the log of follower 3 ends at 400 and that of leader 1 at 1,000."""


def _isr(at_ms: int, *isr: int, epoch: int = 0) -> PartitionChanged:
    return PartitionChanged.model_validate(
        {
            "offset": at_ms, "epoch": 1, "timestamp_ms": WALL_NS // MS + at_ms, "topic": "orders", "partition": 0,
            "topic_id": "", "leader": 1, "leader_epoch": epoch, "partition_epoch": at_ms, "replicas": (1, 2, 3),
            "isr": isr, "changed": (),
        }
    )  # fmt: skip


def _acked(offset: int, done_ms: int, outcome: Outcome = Outcome.ACKED) -> dict[str, Any]:
    return {
        "producer": 0, "seq": offset, "topic": "orders", "partition": 0, "outcome": int(outcome), "error": 0,
        "offset": offset, "sent_ns": (done_ms - 5) * MS, "done_ns": done_ms * MS, "txn": -1,
    }  # fmt: skip


class _Lifelines:
    def __init__(self, spans: tuple[tuple[float, float], ...]) -> None:
        self.life = ProcessLife(spans=spans)

    def node(self, number: int) -> ProcessLife:
        return self.life


@pytest.fixture
def says(facts: Facts, tmp_path: Path) -> Any:
    """Return a function that returns the opinions on a run with these samples, ISRs (`records`) and ledger `rows`.
    `spans`: lifetimes of every node. `clock_set_s`: by how much the wall clock was set ahead during the run."""

    def ask(
        samples: list[Sample] = BEHIND,
        records: tuple[PartitionChanged, ...] = (_isr(0, 1, 2, 3),),
        rows: tuple[dict[str, Any], ...] = (_acked(500, 4900),),
        spans: tuple[tuple[float, float], ...] = ((0, 9e12),),
        clock_set_s: float = 0,
    ) -> list[Any]:
        run = write_run(tmp_path / "acks", produced={"p0": rows})
        readings = ((0, 0.0), (9000, clock_set_s * 1e9))
        events = tuple(
            Event(t_ns=ms * MS, wall_ns=WALL_NS + ms * MS + round(ahead), kind=EventKind.NOTE)
            for ms, ahead in readings
        )
        mine = replace(facts, run=run, wall_ns=WALL_NS, events=events)
        vars(mine).update(
            samples_of={PLACE: samples}, decided_of={PLACE: records}, removed=frozenset(),
            lifelines=_Lifelines(spans),
        )  # fmt: skip
        return list(check_acks_in_isr(mine))

    return ask


def test_an_acknowledgement_that_an_in_sync_replica_lacks_is_a_break(says: Any) -> None:
    (opinion,) = says()
    assert opinion.kind is Says.BREAKS
    assert opinion.text == (
        "orders/0: offset 500 was acknowledged with acks=all by 4.900 s, and at 5.000 s the log of node 3, which the "
        "controller had in the ISR, ended at 400 (3 such samples)"
    )


@pytest.mark.parametrize("clock_set_s", [0.01, 3, -3])
def test_a_wall_clock_that_was_set_hides_nothing_that_its_bounds_settle(
    says: Any, clock_set_s: float
) -> None:
    (opinion,) = says(records=(_isr(-9000, 1, 2, 3), _isr(9000, 1, 2)), clock_set_s=clock_set_s)
    assert opinion.kind is Says.BREAKS


@pytest.mark.parametrize("clock_set_s", [3600, -3600, 1.5])
@pytest.mark.parametrize(
    "records",
    [
        pytest.param((_isr(0, 1, 2, 3), _isr(4500 + 1500, 1, 2)), id="left before, dated after"),
        pytest.param((_isr(0, 1, 2), _isr(3800, 1, 2, 3)), id="joined after, dated before"),
    ],
)
def test_a_wall_clock_that_was_set_may_have_dated_a_change_of_the_isr_wrongly(
    says: Any, records: tuple[PartitionChanged, ...], clock_set_s: float
) -> None:
    assert len(says(records=records)) == 1
    assert says(records=records, clock_set_s=clock_set_s) == []


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"rows": (_acked(399, 4900),)}, id="the replica has it"),
        pytest.param({"rows": (_acked(500, 4900, Outcome.INDETERMINATE),)}, id="nobody acknowledged it"),
        pytest.param({"rows": (_acked(500, 5400),)}, id="acknowledged after the replica was asked"),
        pytest.param({"records": (_isr(0, 1, 2, 3), _isr(4800, 1, 2))}, id="removed from the ISR before"),
        pytest.param({"records": (_isr(0, 1, 2, 3), _isr(5150, 1, 2))}, id="removed before two samples"),
        pytest.param({"records": (_isr(0, 1, 2), _isr(4500, 1, 2, 3))}, id="it has just joined"),
        pytest.param(
            {"records": (_isr(0, 1, 2, 3), _isr(4950, 1, 2, 3, epoch=1))}, id="another leader epoch"
        ),
        pytest.param({"spans": ((0, 4.95e9), (5e9, 9e12))}, id="it was restarted meanwhile"),
        pytest.param({"samples": BEHIND[:2]}, id="one sample alone"),
        pytest.param({"samples": [_sample(5000, 1000, None), *BEHIND[1:2]]}, id="a late answer"),
        pytest.param(
            {"samples": [_sample(5000 + 100 * n, 400, 400) for n in range(4)]}, id="the leader is no further"
        ),
    ],
)
def test_what_the_protocol_allows_is_no_break(says: Any, changes: dict[str, Any]) -> None:
    assert says(**changes) == []
