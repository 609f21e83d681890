"""One fact, two witnesses: what the nodes told of their own metrics, beside the timeline and the samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.judge.coherence import nodes
from ackproof.judge.facts import Facts
from ackproof.rundir.schema import METRICS
from ackproof.rundir.timeline import Event, EventDetail, FaultAsked, NodeEnded, NodeStarted, PhaseBegan

from .conftest import SECOND, in_sync

URP = "under_replicated_partitions"
ASKS = "the experiment does not ask"
Row = tuple[float, int, dict[str, float]]


def scraped(facts: Facts, told: Iterable[Row], *events: tuple[EventDetail, float, int | None]) -> list[str]:
    """What is said of these scrapes (when, node, values) and events (what, when, node) alone."""
    rows = [
        {
            "t_ns": round(at * SECOND),
            "done_ns": round(at * SECOND) + 1,
            "node": node,
            "metric": name,
            "value": value,
        }
        for at, node, values in told
        for name, value in {"up": 1.0, **values}.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=METRICS), facts.run.metrics)
    asked = facts.case.experiment.model_copy(
        update={"observe": facts.case.experiment.observe.model_copy(update={"metrics": True})}
    )
    mine = tuple(
        Event(t_ns=round(at * SECOND), wall_ns=0, kind=what.KIND, detail=what.detail(), node=node)
        for what, at, node in events
    )
    case = replace(facts.case, experiment=asked)
    return [one.text for one in nodes.check_scrapes(replace(facts, events=mine, case=case))]


def each_second(count: int, node: int = 1, **values: float) -> list[Row]:
    return [(at, node, values) for at in range(count)]


def test_scrapes_that_agree(facts: Facts) -> None:
    lives: Sequence[Any] = [
        (NodeStarted(pid=1), 0, 1), (NodeEnded(pid=1), 5.5, 1), (NodeStarted(pid=2), 9, 1),
    ]  # fmt: skip
    told = [one for one in each_second(20, **{URP: 0}) if not 5.5 <= one[0] <= 9]
    assert scraped(facts, told, *lives) == []


def test_nobody_asked_for_them(facts: Facts) -> None:
    assert scraped(facts, each_second(3)) == []
    pq.write_table(pq.read_table(facts.run.metrics), facts.run.metrics)
    (said,) = [one.text for one in nodes.check_scrapes(replace(facts, events=()))]
    assert ASKS in said


def test_a_dead_node_does_not_answer(facts: Facts) -> None:
    lives: Sequence[Any] = [(NodeStarted(pid=1), 0, 1), (NodeEnded(pid=1), 5.5, 1)]
    assert scraped(facts, each_second(8), *lives) == ["node 1 answered a scrape at 6.000 s, when it was dead"]


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_metric_is_a_number_and_not_below_0(facts: Facts, value: float) -> None:
    (said,) = scraped(facts, each_second(3, **{URP: value}))
    assert said.startswith(f"node 1: {URP} is ")


def _lacking(facts: Facts, seconds: int) -> None:
    looks = [
        replace(in_sync("orders", 0), t_ns=at * SECOND // 10, isr=(1, 2)) for at in range(10, seconds * 10)
    ]
    facts.run.samples.write_text("".join(one.line() + "\n" for one in looks))


LOAD: Sequence[Any] = [(PhaseBegan(phase="load"), 0, None)]


def test_an_isr_that_lacks_a_replica_for_long_is_counted(facts: Facts) -> None:
    _lacking(facts, 15)
    (said,) = scraped(facts, each_second(16, **{URP: 0}), *LOAD)
    assert said.startswith("orders/0: its ISR lacks replicas from 1.000 s to 11.1")


def test_what_is_counted_or_short_or_under_a_fault_is_no_contradiction(facts: Facts) -> None:
    _lacking(facts, 15)
    assert scraped(facts, each_second(16, **{URP: 1}), *LOAD) == []
    assert scraped(facts, [*each_second(3, **{URP: 0}), (15, 1, {URP: 0})], *LOAD) == [], "a hole"
    _lacking(facts, 9)
    assert scraped(facts, each_second(16, **{URP: 0}), *LOAD) == []
    _lacking(facts, 15)
    fault = Event(
        t_ns=2 * SECOND, wall_ns=0, kind=FaultAsked.KIND, fault=1, detail={"kind": "pause", "nodes": [3]}
    )
    run = replace(facts, events=(*facts.events, fault))
    assert not [one for one in nodes.check_scrapes(run) if "lacks replicas" in one.text]
