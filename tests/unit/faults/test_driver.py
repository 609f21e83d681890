"""The fault driver on fake nodes: triggers, confirmation, healing, and every way in which a fault can fail."""

from __future__ import annotations

import threading
import time

import pytest

from ackproof.base.errors import AckproofError
from ackproof.base.wait import wait_until
from ackproof.cluster.protocol import NodeState
from ackproof.faults.injection import find_factory
from ackproof.faults.life import Stage
from ackproof.faults.processes import KillInjection
from ackproof.faults.registry import fault_kinds
from ackproof.rundir.timeline import EventKind, FaultHealed
from fault_stand import MakeStand, seen

LIFE = [EventKind.FAULT_ASKED, EventKind.FAULT_CONFIRMED, EventKind.FAULT_HEALED, EventKind.FAULT_RECOVERED]


def test_every_kind_of_fault_has_an_injection() -> None:
    without = {name for name, kind in fault_kinds().items() if find_factory(kind) is None}
    assert without == {"storm"}  # the driver itself lets its faults begin


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("kill: {target: broker(1)}", ["kill", "start"]),
        ("stop: {target: broker(1)}", ["terminate", "start"]),
        ("pause: {target: broker(1)}", ["pause", "resume"]),
        ("restart: {target: broker(1)}", ["terminate", "start"]),
    ],
)
def test_a_life(make_stand: MakeStand, fault: str, told: list[str]) -> None:
    stand = make_stand(f"  - {fault}\n    at: 10ms\n")
    stand.driver.start()
    stand.until(Stage.RECOVERED if fault.startswith("restart") else Stage.CONFIRMED)
    stand.driver.heal_all()
    assert stand.kinds() == LIFE
    assert stand.nodes[1].told == told
    assert stand.driver.failures() == []


def test_a_hold_ends_by_itself(make_stand: MakeStand) -> None:
    stand = make_stand("  - pause: {target: broker(1)}\n    at: 0ms\n    for: 50ms\n")
    stand.driver.start()
    stand.until(Stage.RECOVERED)
    times = {event.kind: event.t_ns for event in stand.events()}
    held = times[EventKind.FAULT_HEALED] - times[EventKind.FAULT_CONFIRMED]
    assert 50e6 <= held < 500e6


def test_a_state_fires_when_it_comes(make_stand: MakeStand) -> None:
    stand = make_stand("  - kill: {target: broker(1)}\n    when: acked >= 10\n")
    stand.driver.start()
    time.sleep(0.05)
    assert stand.kinds() == []
    stand.gauges.acks = 10
    stand.until(Stage.CONFIRMED)
    assert "acked is 10" in str(stand.events()[0].detail["trigger"])


@pytest.mark.parametrize("node", [None, 2])
def test_what_a_scrape_tells_is_a_state(make_stand: MakeStand, node: int | None) -> None:
    name = "under_replicated_partitions"
    asked = f"metric({name}{'' if node is None else f', node {node}'})"
    stand = make_stand(
        f'  - kill: {{target: broker(1)}}\n    when: "{asked} > 1"\n', more="observe: {metrics: true}\n"
    )
    stand.driver.start()
    for other in ((name, 3 - (node or 0)), (name, None if node else 2), ("offline_replica_count", node)):
        stand.gauges.scraped[other] = 7
    stand.gauges.scraped[name, node] = 1
    time.sleep(0.05)
    assert stand.kinds() == []
    stand.gauges.scraped[name, node] = 2
    stand.until(Stage.CONFIRMED)
    assert f"{asked} > 1: metric is 2" in str(stand.events()[0].detail["trigger"])


def test_an_unknown_quantity_is_not_a_state(make_stand: MakeStand) -> None:
    stand = make_stand("  - kill: {target: broker(1)}\n    when: lag(orders/0) >= 0\n")
    stand.driver.start()
    time.sleep(0.05)
    assert stand.kinds() == []
    stand.gauges.sample = seen(leader=1, high_watermark=-1)
    time.sleep(0.05)
    assert stand.kinds() == []


@pytest.mark.parametrize(
    ("condition", "before", "then", "is_now"),
    [
        ("isr(orders/0) == 1", {"isr": (1, 2)}, {"isr": (1,)}, "isr is 1"),
        ("leader(orders/0) < 0", {"leader": 2}, {"leader": -1}, "leader is -1"),
        ("leader(orders/0) == -1", {"leader": 2}, {"leader": -1}, "leader is -1"),
        ("leader_epoch(orders/0) > 4", {"leader_epoch": 4}, {"leader_epoch": 5}, "leader_epoch is 5"),
        (
            "high_watermark(orders/0) >= 7",
            {"high_watermark": 6},
            {"high_watermark": 7},
            "high_watermark is 7",
        ),
        ("log_end(orders/0) >= 9", {"log_ends": {1: 8, 2: 9}}, {"log_ends": {1: 9}}, "log_end is 9"),
        ("lag(orders/0) > 3", {"high_watermark": 6}, {"high_watermark": 5}, "lag is 4"),
        ("isr_lag(orders/0) > 3", {"log_ends": {1: 9, 2: 6}}, {"log_ends": {1: 9, 2: 5}}, "isr_lag is 4"),
        ("withheld(orders/0) > 3", {"last_stable": 3}, {"last_stable": 2}, "withheld is 4"),
    ],
)
def test_what_a_look_tells_is_a_state(
    make_stand: MakeStand, condition: str, before: dict[str, object], then: dict[str, object], is_now: str
) -> None:
    stand = make_stand(f"  - kill: {{target: broker(1)}}\n    when: {condition}\n")
    stand.gauges.sample = seen(**before)
    stand.driver.start()
    time.sleep(0.05)
    assert stand.kinds() == []
    stand.gauges.sample = seen(**then)
    stand.until(Stage.CONFIRMED)
    assert is_now in str(stand.events()[0].detail["trigger"])


def test_a_state_that_never_comes_is_a_failure(make_stand: MakeStand) -> None:
    stand = make_stand("  - kill: {target: broker(1)}\n    when: acked >= 10\n")
    stand.driver.start()
    assert not stand.driver.pending
    stand.driver.no_more_states()
    stand.until(Stage.FAILED)
    assert (
        "never fired: when acked >= 10; it was 0 when the load ended: a longer" in stand.driver.failures()[0]
    )
    assert stand.nodes[1].told == []


def test_a_count_is_awaited_and_a_state_is_not(make_stand: MakeStand) -> None:
    stand = make_stand("  - kill: {target: broker(1)}\n    when: acked >= 10\n")
    assert stand.driver.awaits_a_count
    stand.driver.start()
    stand.driver.no_more_states()
    stand.until(Stage.FAILED)
    assert not stand.driver.awaits_a_count
    for state in (
        "when: acked >= 10\n    at_latest: 8s",
        "when: lag(orders/0) > 10",
        "when: acked < 10",
        "at: 9s",
    ):
        assert not make_stand(f"  - kill: {{target: broker(1)}}\n    {state}\n").driver.awaits_a_count


TWO = """\
  - pause: {target: broker(1)}
    when: acked >= 1
  - kill: {target: broker(2)}
    after: {fault: 1, by: 40ms}
"""


def test_after_counts_from_the_confirmation(make_stand: MakeStand) -> None:
    stand = make_stand(TWO)
    stand.driver.start()
    stand.gauges.acks = 1
    stand.until(Stage.CONFIRMED, 2)
    first = next(e.t_ns for e in stand.events() if e.fault == 1 and e.kind is EventKind.FAULT_CONFIRMED)
    second = next(e.t_ns for e in stand.events() if e.fault == 2)
    assert second - first >= 40e6


def test_after_a_failed_fault_comes_nothing(make_stand: MakeStand) -> None:
    stand = make_stand(TWO)
    stand.nodes[1].now = NodeState.GONE
    stand.gauges.acks = 1
    stand.driver.start()
    stand.until(Stage.FAILED, 2)
    assert not stand.driver.pending
    assert any("fault 1" in text for text in stand.driver.failures())


@pytest.mark.parametrize("kind", ["kill", "stop", "pause", "restart"])
def test_a_fault_that_misses_is_not_confirmed(make_stand: MakeStand, kind: str) -> None:
    stand = make_stand(f"  - {kind}: {{target: broker(1)}}\n    at: 0ms\n")
    stand.nodes[1].deaf = True
    stand.driver.start()
    stand.until(Stage.FAILED)
    assert EventKind.FAULT_CONFIRMED not in stand.kinds()
    assert EventKind.FAULT_FAILED in stand.kinds()


@pytest.mark.parametrize("kind", ["stop", "restart", "rolling_restart"])
def test_a_node_that_shuts_down_too_late_is_started_all_the_same(make_stand: MakeStand, kind: str) -> None:
    stand = make_stand(f"  - {kind}: {{target: broker(1)}}\n    at: 0ms\n")
    node = stand.nodes[1]
    node.deaf = True

    def end() -> None:
        node.deaf, node.now = False, NodeState.GONE

    threading.Timer(0.3, end).start()
    stand.driver.start()
    stand.until(Stage.FAILED)
    assert node.told, stand.driver.failures()
    assert (node.told[-1], node.now) == ("start", NodeState.RUNNING)


def test_nobody_holds_the_role(make_stand: MakeStand) -> None:
    stand = make_stand("  - kill: {target: leader(orders/0)}\n    at: 0ms\n", resolved=())
    stand.driver.start()
    stand.until(Stage.FAILED)
    assert "aimed at nothing" in stand.driver.failures()[0]


def test_a_node_that_never_comes_back_is_said(make_stand: MakeStand) -> None:
    stand = make_stand("  - kill: {target: broker(1)}\n    at: 0ms\n    restart_after: 1ms\n")
    stand.nodes[1].ready = False
    stand.driver.start()
    stand.until(Stage.FAILED)
    assert EventKind.FAULT_CONFIRMED in stand.kinds()
    assert EventKind.FAULT_RECOVERED not in stand.kinds()
    assert "unfenced" in stand.driver.failures()[0]


def test_healing_is_told_from_when_it_began(make_stand: MakeStand, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fault-healed` has the time at which healing began. Links may work long before all is healed."""
    stand = make_stand("  - kill: {target: broker(1)}\n    at: 0ms\n    restart_after: 1ms\n")
    start = KillInjection.heal

    def heal(injection: KillInjection) -> str:
        did = start(injection)
        time.sleep(0.2)
        return did

    monkeypatch.setattr(KillInjection, "heal", heal)
    stand.driver.start()
    stand.until(Stage.RECOVERED)
    (told,) = (event for event in stand.events() if event.kind is EventKind.FAULT_HEALED)
    assert isinstance(told.what, FaultHealed)
    assert 0 < told.what.begun_ns <= told.t_ns - 0.2e9


def test_what_does_not_heal_holds_no_node_any_more(
    make_stand: MakeStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault whose healing fails releases its nodes. Otherwise other faults would wait for these nodes for ever."""
    stand = make_stand("  - kill: {target: broker(1)}\n    at: 0ms\n    restart_after: 1ms\n")

    def heal(injection: KillInjection) -> str:
        assert stand.holds.others(1, 0) == (1,)
        raise AckproofError("no disk")

    monkeypatch.setattr(KillInjection, "heal", heal)
    stand.driver.start()
    stand.until(Stage.FAILED)
    assert "healing: no disk" in stand.driver.failures()[0]
    wait_until(lambda: not stand.holds.others(1, 0), what="node 1 to be free", timeout_s=5)


def test_a_pause_that_somebody_ended_before_its_time(make_stand: MakeStand) -> None:
    stand = make_stand("  - pause: {target: broker(1)}\n    at: 0ms\n")
    stand.driver.start()
    wait_until(lambda: EventKind.FAULT_CONFIRMED in stand.kinds(), what="the pause", timeout_s=5)
    stand.nodes[1].now = NodeState.RUNNING
    stand.driver.heal_all()
    assert EventKind.FAULT_RECOVERED not in stand.kinds()
    assert "did not hold: node 1" in stand.driver.failures()[0]


def test_a_paused_process_that_another_fault_replaced_is_no_failure(make_stand: MakeStand) -> None:
    stand = make_stand("  - pause: {target: broker(1)}\n    at: 0ms\n")
    stand.driver.start()
    wait_until(lambda: EventKind.FAULT_CONFIRMED in stand.kinds(), what="the pause", timeout_s=5)
    stand.nodes[1].kill()
    stand.nodes[1].start()
    stand.driver.heal_all()
    assert stand.kinds() == LIFE


def test_stopping_the_run_heals_and_ends(make_stand: MakeStand) -> None:
    stand = make_stand("  - pause: {target: broker(1)}\n    at: 0ms\n    for: 60s\n")
    stand.driver.start()
    stand.until(Stage.CONFIRMED)
    stand.stop.set()
    stand.driver.heal_all()
    assert stand.nodes[1].now is NodeState.RUNNING


@pytest.mark.parametrize("kind", ["kill", "stop", "pause", "restart", "crash_loop"])
def test_what_found_nothing_to_break_starts_nothing(make_stand: MakeStand, kind: str) -> None:
    stand = make_stand(
        f"  - kill: {{target: broker(1)}}\n    at: 0ms\n  - {kind}: {{target: broker(1)}}\n    at: 100ms\n"
    )
    stand.driver.start()
    stand.until(Stage.FAILED, 2)
    assert "nothing to break" in stand.driver.failures()[0]
    assert stand.nodes[1].told == ["kill"]


def test_a_drawn_fault_gets_its_thread_shortly_before_its_time(make_stand: MakeStand) -> None:
    stand = make_stand("  - storm: {count: 2, menu: {pause: 1}, gap: 30s..31s}\n    at: 0ms\n")
    stand.driver.start()
    stand.until(Stage.ASKED)
    running = {thread.name for thread in threading.enumerate()}
    assert "fault-1" in running
    assert not running & {"fault-1001", "fault-1002"}
    stand.stop.set()
    stand.driver.heal_all()
    assert stand.driver.stages() == {1: Stage.FAILED, 1001: Stage.MISSED, 1002: Stage.MISSED}
