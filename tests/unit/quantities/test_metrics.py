"""Tests of quantities of metrics on planted scrapes: a silent node makes a hole, a dead one does not."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackproof.base.errors import BadInput
from ackproof.quantities.answer import answered, measured, rows
from ackproof.quantities.evidence import Evidence
from ackproof.quantities.quantity import Answer, Value
from ackproof.quantities.vocabulary import UnknownQuantity, parse_ask
from ackproof.rundir.bounds import WHOLE, Bound, Span, Window
from ackproof.rundir.metrics import METRICS, UP, read_scrapes
from ackproof.rundir.schema import METRICS as COLUMNS
from ackproof.rundir.timeline import Event, EventKind

from .conftest import SECOND, Make, event, life, scrapes

URP = "under_replicated_partitions"
SHOWN = f"time_to(metric {URP} > 0, fault 1)"
QUIET = [0.0] * 15


def value(evidence: Evidence, text: str, window: Window = WHOLE) -> Value:
    return measured(evidence, parse_ask(text), window)


def answer(evidence: Evidence, text: str, bound: str | int) -> Answer:
    ask = parse_ask(text)
    return answered(evidence, ask, Bound.parse(bound, ask.quantity.unit))


def gone(node: int, at_s: float, back_s: float | None = None) -> list[Event]:
    """Return the events of a node that ends at `at_s`, and starts again at `back_s` (None: never)."""
    back = [] if back_s is None else [event(EventKind.NODE_STARTED, back_s, node=node)]
    return [event(EventKind.NODE_ENDED, at_s, node=node), *back]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (SHOWN, SHOWN),
        (f"time_to(metric {URP}>0,fault 1,  node 2)", f"time_to(metric {URP} > 0, fault 1, node 2)"),
        (f"time_to(metric {URP}, > 0, fault 1)", SHOWN),
        (
            "time_to(metric produce_total_time_p99 >= 200ms, fault 2)",
            "time_to(metric produce_total_time_p99 >= 200ms, fault 2)",
        ),
        (
            "time_to(metric active_controller_count == 1, fault 1)",
            "time_to(metric active_controller_count == 1, fault 1)",
        ),
        (f"metric({URP}, node 101)", f"metric({URP}, node 101)"),
    ],
)
def test_an_ask_reads_back_as_it_is_written(text: str, read: str) -> None:
    assert str(parse_ask(text)) == read
    assert str(parse_ask(read)) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"time_to(metric {URP}, fault 1)", "lacks '> X'"),
        (f"time_to(metric {URP} > soon, fault 1)", "means nothing there"),
        ("time_to(metric produce_total_time_p99 > 3, fault 1)", "expected a bound with its unit"),
        (f"metric({URP} > 0)", "is not asked of '> 0'"),
        (f"metric_max({URP}, orders/0)", "is not asked of 'orders/0'"),
        ("isr(orders/0, node 1)", "is not asked of 'node 1'"),
    ],
)
def test_what_cannot_be_asked_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_ask(text)


def test_a_metric_that_nobody_knows_is_told_with_those_that_are() -> None:
    with pytest.raises(UnknownQuantity) as raised:
        parse_ask("metric(under_replicated_partition)")
    assert raised.value.said == "metric(under_replicated_partition)"
    assert f"metric({URP})" in raised.value.valid
    with pytest.raises(UnknownQuantity) as raised:
        parse_ask("latencies(p99)")
    assert raised.value.said == "latencies"
    assert {"latency", "lost", "isr"} <= set(raised.value.valid)


def test_the_delay_lies_between_two_scrapes(make: Make) -> None:
    run = make(
        metrics=scrapes(URP, {1: [0, 0, 0, 0, 2, 2, 0, 0, 0, 0], 2: QUIET[:10]}), events=life(1.95, 2, 6)
    )
    shown = value(run, SHOWN)
    assert (shown.low, shown.high) == (pytest.approx(1), pytest.approx(4.01 - 1.95))
    assert answer(run, SHOWN, "< 3s").holds is True
    assert answer(run, SHOWN, "< 1500ms").holds is None
    assert answer(run, SHOWN, "< 900ms").broken
    assert not value(run, f"time_to(metric {URP} > 2, fault 1)").high < math.inf


def test_never_shown_is_open_and_broken_once_the_bound_has_passed(make: Make) -> None:
    run = make(metrics=scrapes(URP, {1: QUIET, 2: QUIET}), events=life(2, 2, 6), ends_s=14)
    never = value(run, SHOWN)
    assert (never.low, never.high) == (12, math.inf)
    assert answer(run, SHOWN, "< 10s").broken
    assert answer(run, SHOWN, "< 13s").holds is None


def test_a_silent_exporter_is_no_alert_that_never_came(make: Make) -> None:
    silent = [0.0, 0.0, 0.0, *[None] * 11, 0.0]
    run = make(metrics=scrapes(URP, {1: silent, 2: QUIET}), events=life(2.5, 2.5, 6), ends_s=14)
    unknown = value(run, SHOWN)
    assert (unknown.low, unknown.high) == (0, math.inf)
    assert "node 1 lived and did not tell its metrics from 2.000 s to 14.000 s" in unknown.why
    assert answer(run, SHOWN, "< 10s").holds is None
    never = answer(run, f"metric({URP})", "never > 0")
    assert never.holds is None
    assert "node 1" in never.why
    assert value(run, f"metric_max({URP})").high == math.inf
    assert value(run, f"metric_max({URP}, node 2)") == Value.exactly(0)
    assert not value(run, f"metric_last({URP})").is_known


def test_what_shows_behind_a_hole_may_have_shown_in_it(make: Make) -> None:
    silent = [0.0, 0.0, 0.0, *[None] * 7, 0.0, 0.0, 3.0, 3.0, 3.0]
    run = make(metrics=scrapes(URP, {1: silent}), events=life(2.5, 2.5, 6), ends_s=14)
    late = value(run, SHOWN)
    assert (late.low, late.high) == (0, pytest.approx(9.51))
    assert "from 2.000 s to 10.000 s" in late.why


def test_a_scrape_or_two_that_are_dropped_are_no_hole(make: Make) -> None:
    blinks = [0.0, None, None, 0.0, 0.0, None, 1.0, 1.0, *[0.0] * 7]
    run = make(metrics=scrapes(URP, {1: blinks, 2: QUIET}), events=life(2.5, 2.5, 6), ends_s=14)
    shown = value(run, SHOWN)
    assert (shown.low, shown.high) == (pytest.approx(1.5), pytest.approx(3.51))
    assert answer(run, f"metric({URP})", "never > 1").holds is True


def test_a_dead_node_is_known_to_be_dead(make: Make) -> None:
    told = {1: [0.0] * 3, 2: QUIET}
    dead = make(metrics=scrapes(URP, told), events=[*gone(1, 2.9), *life(2.5, 3)], ends_s=14)
    assert value(dead, SHOWN).low == pytest.approx(11)
    assert answer(dead, f"metric({URP})", "never > 0").holds is True
    lives = make(metrics=scrapes(URP, told), events=life(2.5, 3), ends_s=14)
    assert answer(lives, f"metric({URP})", "never > 0").holds is None


@pytest.mark.parametrize("then", [[], gone(1, 12.5)], ids=["to the end", "until it ends again"])
def test_one_that_began_again_and_stays_silent_is_a_hole(make: Make, then: list[Event]) -> None:
    told = {1: [0.0] * 3, 2: QUIET}
    run = make(metrics=scrapes(URP, told), events=[*gone(1, 2.9, 5), *then, *life(2.5, 3)], ends_s=14)
    assert "node 1 lived" in value(run, SHOWN).why


def test_a_hole_that_ends_as_a_window_begins_hides_nothing_of_it(make: Make) -> None:
    told = [*scrapes(URP, {1: [0, 0]}), *scrapes(URP, {1: [0, 0, 0]}, 8)]
    run = make(metrics=told, events=life(7, 8), ends_s=10)
    assert answer(run, f"metric({URP})", "never > 0 after fault 1").holds is True
    whole = answer(run, f"metric({URP})", "never > 0")
    assert whole.holds is None
    assert whole.why == f"metric({URP}): nobody asked for metrics from 1.000 s to 8.000 s"
    assert value(run, f"metric_last({URP})") == Value.exactly(0)
    assert value(run, f"metric_max({URP})", Window(Span.AFTER, 1)) == Value.exactly(0)
    before = make(metrics=[*scrapes(URP, {1: [0, 0, 0]}), *told[-6:]], events=life(0.5, 0.5, 2), ends_s=10)
    assert answer(before, f"metric({URP})", "never > 0 during fault 1").holds is True
    assert value(before, f"metric_max({URP})", Window(Span.DURING, 1)) == Value.exactly(0)


def test_a_hole_that_begins_where_it_was_shown_hides_nothing(make: Make) -> None:
    run = make(metrics=scrapes(URP, {1: [0, 0, 2]}), events=life(0.5, 0.5), ends_s=9)
    shown = value(run, SHOWN)
    assert (shown.low, shown.high, shown.why) == (pytest.approx(0.5), pytest.approx(1.51), "")


def test_nobody_asked_at_all(make: Make) -> None:
    run = make(metrics=scrapes(URP, {1: QUIET[:3]}), events=life(1, 1), ends_s=14)
    assert "nobody asked for metrics from 2.000 s to 14.000 s" in value(run, SHOWN).why
    without = make(events=life(1, 1))
    without.run.metrics.unlink()
    bare = Evidence.of_run(without.run)
    assert "observe: {metrics: true}" in value(bare, SHOWN).why
    assert not [one for one in rows(bare) if "metric" in one.quantity]


def test_rows_of_metrics_tell_when_an_alert_above_0_would_have_shown(make: Make) -> None:
    told = [*scrapes(URP, {1: [0, 0, 0, 2, 2]}), *scrapes("produce_total_time_p99", {2: [4] * 5})]
    found = {one.quantity: one for one in rows(make(metrics=told, events=life(1.5, 1.5), ends_s=4))}
    assert (found[SHOWN].low, found[SHOWN].high) == (pytest.approx(0.5), pytest.approx(1.51))
    assert found["metric_max(produce_total_time_p99)"].high == 0.004
    assert not [one for one in found if one.startswith("time_to(metric produce")]  # every latency is above 0


def test_a_node_that_never_answered_is_not_taken_for_one_without_the_metric(make: Make) -> None:
    run = make(metrics=scrapes(URP, {1: QUIET, 2: [None] * 15, 101: [-1] * 15}), events=life(2, 2), ends_s=14)
    assert "node 2 lived" in value(run, SHOWN).why
    alone = make(metrics=scrapes(URP, {2: [None] * 15}), events=life(2, 2), ends_s=14)
    assert value(alone, SHOWN).why == "node 2 lived and did not tell its metrics from 0.000 s to 14.000 s"
    plain = make(metrics=scrapes(URP, {1: QUIET, 101: [-1] * 15}), events=life(2, 2), ends_s=14)
    assert value(plain, SHOWN).low == 12
    assert "no node has max_lag" in value(plain, "metric_max(max_lag)").why


def test_what_was_so_before_the_fault_has_no_delay(make: Make) -> None:
    run = make(metrics=scrapes(URP, {1: [1.0] * 10}), events=life(2.5, 2.5))
    assert "was > 0 before the fault, at 2.000 s" in value(run, SHOWN).why
    late = make(metrics=scrapes(URP, {1: QUIET}, begin_s=3), events=life(2.5, 2.5))
    assert value(late, SHOWN).why == f"{URP} was not told before the fault"
    tied = make(metrics=scrapes(URP, {1: [0, 0, 2, 2]}), events=life(2.01, 2.5))  # told as it was asked for
    assert value(tied, SHOWN).why == f"{URP} was > 0 before the fault, at 2.000 s"
    missed = make(metrics=scrapes(URP, {1: QUIET}), events=life(2.5, None))
    assert value(missed, SHOWN).why == "fault 1 was not confirmed"


def test_several_nodes_together(make: Make) -> None:
    counts = {101: [1, 1, 0, 0, 0, 0], 102: [0, 0, 0, 0, 1, 1]}
    run = make(metrics=scrapes("active_controller_count", counts), events=life(1.5, 1.5), ends_s=5)
    assert answer(run, "metric(active_controller_count)", "always == 1").seen.endswith("was 0 at 2.000 s")
    none = value(run, "time_to(metric active_controller_count < 1, fault 1)")
    assert (none.low, none.high) == (0, pytest.approx(0.51))
    assert value(run, "metric_max(active_controller_count, node 102)") == Value.exactly(1)
    behind = make(metrics=scrapes("max_lag", {1: [3] * 6, 2: [7] * 6}), ends_s=5)
    assert value(behind, "metric_last(max_lag)") == Value.exactly(7)


def test_times_of_requests_are_in_seconds(make: Make) -> None:
    run = make(metrics=scrapes("produce_total_time_p99", {1: [4, 250, 10], 2: [3, 3, 3]}), ends_s=3)
    assert value(run, "metric_max(produce_total_time_p99)") == Value.exactly(0.25)
    assert answer(run, "metric_max(produce_total_time_p99)", "< 200ms").broken


def test_counters_count_anew_in_a_node_that_starts_anew(make: Make) -> None:
    told = {1: [5, 5, 7, None, None, 2, 3], 2: [100] * 7}
    run = make(
        metrics=[
            one
            for one in scrapes("isr_shrinks", told)
            if not (one["node"] == 1 and one["t_ns"] in (3 * SECOND, 4 * SECOND))
        ],
        events=[*gone(1, 2.5, 4.2), *life(1.5, 1.5)],
        ends_s=6.5,
    )
    assert value(run, "metric_increase(isr_shrinks)").low == 5
    rose = value(run, "time_to(metric isr_shrinks > 2, fault 1)")
    assert (rose.low, rose.high) == (pytest.approx(2.5), pytest.approx(3.51))
    rose = value(run, "time_to(metric isr_shrinks > 1, fault 1)")
    assert (rose.low, rose.high) == (0, pytest.approx(0.51))
    at_once = [*scrapes("isr_shrinks", {1: [5, 5, 7]}), *scrapes("isr_shrinks", {1: [8, 9]}, 5)]
    again = make(metrics=at_once, events=gone(1, 2.5, 5), ends_s=6.5)
    assert value(again, "metric_increase(isr_shrinks)").low == 2 + 8 + 1


@pytest.mark.parametrize(
    ("confirmed_s", "healed_s", "low", "high"),
    [
        (2.5, 4.5, 3, 7),
        (2.01, 4.01, 0, 7),  # what was told as the window ended was told later, and as it began before it
        (2.5, 5, 3, 7),  # what was asked as it ended was asked later
    ],
)
def test_an_increase_lies_between_what_is_seen_inside_and_around(
    make: Make, confirmed_s: float, healed_s: float, low: int, high: int
) -> None:
    told = scrapes("isr_shrinks", {1: [0, 1, 2, 4, 7, 9, 12]})
    run = make(metrics=told, events=life(2, confirmed_s, healed_s), ends_s=6)
    inside = value(run, "metric_increase(isr_shrinks)", Window(Span.DURING, 1))
    assert (inside.low, inside.high) == (low, high)


def test_what_never_rose_and_what_rose_in_one_that_began_late(make: Make) -> None:
    flat = scrapes("isr_shrinks", {1: [3] * 9}, -1)
    assert value(make(metrics=flat, ends_s=6.5), "metric_increase(isr_shrinks)") == Value.exactly(0)
    late = [*flat, *scrapes("isr_shrinks", {2: [2] * 6}, 2)]
    run = make(metrics=late, events=[event(EventKind.NODE_STARTED, 1.5, node=2)], ends_s=6.5)
    assert value(run, "metric_increase(isr_shrinks)").high == 2


def test_what_a_node_counted_before_its_death_is_gone(make: Make) -> None:
    """The last scrape of node 2 was at 2 s and it ended at 2.5 s, so its last counts are lost."""
    told = [
        one
        for one in scrapes("isr_shrinks", {1: [3] * 9, 2: [3] * 9}, -1)
        if not (one["node"] == 2 and 2.5 * SECOND < one["t_ns"] < 4.2 * SECOND)
    ]
    run = make(metrics=told, events=[*gone(2, 2.5, 4.2), *life(3, 3, 6)], ends_s=6.5)
    found = value(run, "metric_increase(isr_shrinks)")
    assert (found.low, found.high) == (3, math.inf)
    assert found.why == "what node 2 counted before its end is gone from 2.000 s to 2.500 s"
    assert answer(run, "metric_increase(isr_shrinks)", "0").holds is not True
    assert value(run, "metric_increase(isr_shrinks, node 1)") == Value.exactly(0)
    assert value(run, "metric_increase(isr_shrinks)", Window(Span.DURING, 1)).high < math.inf, (
        "it was gone by then"
    )


@pytest.mark.parametrize(
    ("begin_s", "told", "why"),
    [
        (0, {1: [0] * 9}, "no scrape told isr_shrinks before 0.000 s"),
        (-1, {1: [0] * 6}, "no scrape told isr_shrinks after 6.500 s"),
        (
            -1,
            {1: [0] * 9, 2: [None] * 9},
            "node 2 lived and did not tell its metrics from 0.000 s to 7.000 s",
        ),
        (
            4,
            {1: [0] * 3, 2: [None] * 3, 3: [None] * 3},
            "nodes 2, 3 lived and did not tell their metrics from 0.000 s to 6.500 s",
        ),
    ],
)
def test_why_an_increase_is_open(
    make: Make, begin_s: float, told: dict[int, Iterable[float | None]], why: str
) -> None:
    run = make(metrics=scrapes("isr_shrinks", told, begin_s), ends_s=6.5)
    found = value(run, "metric_increase(isr_shrinks)")
    assert (found.high, found.why) == (math.inf, why)


@pytest.mark.parametrize(
    "text", ["metric_increase(isr_shrinks)", f"metric_max({URP})", f"metric_last({URP})"]
)
def test_behind_the_load_no_scrape_tells_anything(make: Make, text: str) -> None:
    told = [*scrapes(URP, {1: [0] * 14}), *scrapes("isr_shrinks", {2: [0] * 14})]
    why = f"no scrape told {'isr_shrinks' if 'isr' in text else URP} then"
    for at_s in (10, 11):
        run = make(metrics=told, events=life(at_s, at_s), ends_s=10)
        assert value(run, text, Window(Span.AFTER, 1)) == Value.unknown(why)


def test_a_node_that_is_started_late_owes_no_answer_before(make: Make) -> None:
    late = [event(EventKind.NODE_STARTED, 6.5, node=2), event(EventKind.NODE_ENDED, 9.5, node=2)]
    told = [*scrapes(URP, {1: QUIET[:11]}), *scrapes(URP, {2: [0.0, 2.0]}, 7)]
    run = make(metrics=told, events=late, ends_s=10)
    assert value(run, f"metric_max({URP})") == Value.exactly(2)
    assert value(run, f"metric_max({URP}, node 2)") == Value.exactly(2)


def test_a_file_that_lost_its_scrapes_is_not_read(tmp_path: Path) -> None:
    lost = [one for one in scrapes(URP, {1: [0.0]}) if one["metric"] != UP]
    pq.write_table(pa.Table.from_pylist(lost, schema=COLUMNS), tmp_path / "metrics.parquet")
    with pytest.raises(BadInput, match=r"values of node 1 at 0\.000 s"):
        read_scrapes(tmp_path / "metrics.parquet")


def test_every_metric_is_asked_of_one_bean_and_attribute() -> None:
    assert len({(one.bean, one.attribute) for one in METRICS.values()}) == len(METRICS)
