"""Tests of when a partition is at rest, and when its final read is complete: each boundary case."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackproof.clients.final_read import REST_S, End, _flaw, _goal, _start, _Watch, ends_of
from ackproof.cluster.queries import PartitionEnds, PartitionState
from ackproof.rundir.partition import TopicPartition

REST = End(leader=1, epoch=4, isr=(1, 2, 3), start=5, high_watermark=90, last_stable=90, log_end=90)
SETTLED = _Watch(REST, 1.0, settled=True, unrest="")


@pytest.mark.parametrize(
    ("goal", "position", "after", "problem", "flaw"),
    [
        (90, 90, REST, "", ""),
        (90, 91, REST, "", ""),
        (90, 89, REST, "", "the reader came to 89 of 90"),
        (90, 89, REST, "it stood still", "the reader came to 89 of 90: it stood still"),
        (90, 90, REST, "it was reset", "it was reset"),
        (90, 90, None, "", "no answer from a leader in"),
        (90, 90, replace(REST, epoch=5), "", "the leader epoch was 4 before the read and 5 after it"),
        (90, 90, replace(REST, log_end=91), "", "the log was 5–90 before the read and 5–91 after it"),
        (90, 90, replace(REST, start=6), "", "the log was 5–90 before the read and 6–90 after it"),
        (90, 90, replace(REST, leader=2, isr=(2,)), "", ""),
    ],
)
def test_what_a_read_lacks(goal: int, position: int, after: End | None, problem: str, flaw: str) -> None:
    found = _flaw(SETTLED, goal, position, after, problem)
    assert found == "" if flaw == "" else found.startswith(flaw)


def test_what_never_came_to_rest_says_so_first() -> None:
    assert _flaw(_Watch(REST, unrest="ISR is [1]"), 90, 90, REST, "") == "ISR is [1]"
    assert _flaw(_Watch(), 0, 0, REST, "") == "not looked at yet"


@pytest.mark.parametrize(
    ("end", "start", "goal"),
    [
        (None, 0, 0),
        (REST, 5, 90),
        (replace(REST, high_watermark=95), 5, 90),
        (replace(REST, last_stable=70), 5, 70),
        (replace(REST, start=95), 95, 95),
        (replace(REST, start=-1, last_stable=-1), 0, 0),
    ],
    ids=["nothing", "at rest", "higher mark", "an open transaction", "all deleted", "unknown"],
)
def test_from_where_to_where_it_reads(end: End | None, start: int, goal: int) -> None:
    watch = _Watch(end)
    assert (_start(watch), _goal(watch)) == (start, goal)


BUSY = replace(REST, high_watermark=89)


@pytest.mark.parametrize(
    ("looks", "settled"),
    [
        ([(REST, 1.0)], False),
        ([(REST, 1.0), (REST, 1.0 + REST_S)], True),
        ([(REST, 1.0), (BUSY, 1.1), (REST, 1.1), (REST, 1.0 + REST_S)], False),
        ([(REST, 1.0), (REST, 0.99 + REST_S)], False),
        (
            [(REST, 1.0), (REST, 1.1), (replace(REST, log_end=91, high_watermark=91, last_stable=91), 3.0)],
            False,
        ),
        ([(REST, 1.0), (REST, 1.1), (replace(REST, epoch=5), 3.0)], False),
        ([(REST, 1.0), (REST, 1.1), (replace(REST, start=6), 3.0)], False),
        ([(REST, 1.0), (REST, 1.1), (BUSY, 1.5), (REST, 3.0)], False),
        ([(REST, 1.0), (REST, 1.1), (None, 1.5), (REST, 3.0)], False),
        ([(REST, 1.0), (REST, 1.1), (REST, 3.0), (BUSY, 3.1)], False),
        ([(REST, 1.0), (REST, 1.1), (REST, 3.0), (None, 3.1)], False),
    ],
    ids=[
        *("once", "twice", "anew after unrest", "too soon", "grown", "another epoch", "deleted"),
        *("unrest between", "no answer between", "unrest at last", "no answer at last"),
    ],
)
def test_rest_is_the_same_rest_seen_for_a_while(looks: list[tuple[End | None, float]], settled: bool) -> None:
    watch = _Watch()
    for end, now_s in looks:
        watch.see(end, 3, now_s)
    assert watch.settled is settled
    assert (watch.unrest == "") is settled


@pytest.mark.parametrize("epoch", [3, 4, 5])
def test_leader_and_metadata_must_agree_on_the_epoch(epoch: int) -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    asked: list[Any] = []
    ends = PartitionEnds(leader=1, leader_epoch=4, start=5, high_watermark=8, last_stable=7, log_end=9)
    cluster = SimpleNamespace(
        partition_ends=lambda topics: asked.append(topics) or {here: ends, there: ends},
        topic_state=lambda topics: (
            asked.append(topics) or {here: PartitionState("t", 0, 1, epoch, (1, 2), (1,))}
        ),
    )
    seen = ends_of(cast(Any, cluster))([here, there])
    assert asked == [("t",), ("t",)]
    expected = End(
        leader=1, epoch=4, isr=(1,), start=5, high_watermark=8, last_stable=7, log_end=9, replicas=(1, 2)
    )
    assert seen == ({here: expected} if epoch == 4 else {})
