"""Faults of a file that certainly meet and cannot are refused, and only those: both sides of each edge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.experiment.problems import InvalidExperiment
from ackproof.faults.registry import fault_kinds
from ackproof.plan import Plan
from ackproof.plan.cases import load

Load = Callable[[str], Plan]
HEAD = """\
name: n
cluster: {brokers: 3, controllers: 3%s}
topics: {t: {}, u: {}}
workload: {producers: {count: 2}, consumers: {live: 1}, duration: 10s}
faults:
"""
TO_2 = "{link: broker(1) -> broker(2)"


def refused(load_text: Load, first: str, second: str, *others: str, cluster: str = "") -> str:
    """What is said of the second fault; '' where the file is valid."""
    try:
        load_text(HEAD % cluster + "".join(f"  - {{{fault}}}\n" for fault in (first, second, *others)))
    except InvalidExperiment as error:
        (problem,) = error.problems
        return str(problem)
    return ""


AFTER = "after: {fault: 1, by: 1s}"
DOWN = "stop: broker(1), at: 2s"
STILL = "pause: broker(1), at: 2s, for: 9s"
CUT = f"cut: {TO_2}}}, at: 2s, for: 9s"
CANNOT = [
    (DOWN, f"kill: broker(1), {AFTER}", "keeps node 1 down"),
    (DOWN, f"pause: broker(1), {AFTER}", "keeps node 1 down"),
    (DOWN, f"stop: brokers, {AFTER}", "keeps node 1 down"),
    (DOWN, f"power_loss: broker(1), {AFTER}", "keeps node 1 down"),
    (DOWN, f"clock_jump: {{target: broker(1), by: 1h}}, {AFTER}", "keeps node 1 down"),
    (DOWN, f"upgrade: {{to: '4.3.1'}}, {AFTER}", "keeps node 1 down"),
    (DOWN, f"set: {{broker: 1, config: {{num.io.threads: 3}}}}, {AFTER}", "keeps node 1 down"),
    (DOWN, f"delay: {TO_2}, latency: 100ms}}, {AFTER}", "lets nothing pass over 1→2"),
    (STILL, f"stop: broker(1), {AFTER}", "keeps node 1 at a standstill"),
    (STILL, f"starve: broker(1), {AFTER}", "keeps node 1 at a standstill"),
    ("kill: majority, at: 2s", f"kill: majority, {AFTER}", "one of 1, 2, 3 down"),
    ("lose_quorum: {by: kill}, at: 2s", f"kill: controllers, {AFTER}", "one of 101, 102, 103 down"),
    ("lose_quorum: {by: kill}, at: 2s", f"lose_quorum: {{by: pause}}, {AFTER}", "one of 101, 102, 103 down"),
    ("fail_log_dir: broker(1), at: 2s", f"full_disk: broker(1), {AFTER}", "keeps node 1 down"),
    (CUT, f"delay: {TO_2}, latency: 100ms}}, {AFTER}", "lets nothing pass over 1→2"),
    ("detach: broker(2), at: 2s", f"loss: {TO_2}, share: 5%}}, {AFTER}", "lets nothing pass over 1→2"),
    (
        "set: {topic: t, config: {min.insync.replicas: 1}}, at: 2s, for: 9s",
        f"set: {{topic: t, config: {{flush.ms: 9, min.insync.replicas: 2}}}}, {AFTER}",
        "has changed min.insync.replicas",
    ),
    (
        "set: {broker: 1, config: {num.io.threads: 3}}, at: 2s",
        f"set: {{config: {{num.io.threads: 4}}}}, {AFTER}",
        "has changed num.io.threads",
    ),
    (
        f"drop_large: {TO_2}, above: 600B}}, at: 2s",
        f"drop_large: {TO_2}, above: 1000B}}, {AFTER}",
        "loses packets of 2000 bytes over 1→2",
    ),
    (
        "remove_controller: controller(101), at: 2s",
        f"remove_controller: controller(101), {AFTER}",
        "keeps node 101 out of the quorum",
    ),
    (
        "kill_client: {client: producer(0)}, at: 2s, restart_after: 1s",
        "pause_client: {client: producer(0)}, at: 99s",
        "killed prod",
    ),
    (
        "pause_client: {client: producer(0)}, at: 2s",
        f"pause_client: {{client: producer(0)}}, {AFTER}",
        "has paused producer(0)",
    ),
]
MAY = [
    (DOWN, f"kill: broker(2), {AFTER}"),
    (DOWN, f"kill: broker, {AFTER}"),  # drawn
    (DOWN, f"kill: leader(t/0), {AFTER}"),
    (DOWN, f"cut: {TO_2}}}, {AFTER}"),  # what is silent stays so
    (DOWN, f"flap: {TO_2}, down: 1s, up: 1s}}, {AFTER}"),
    (DOWN, f"delay: {{link: broker(2) -> brokers, latency: 100ms}}, {AFTER}"),  # 2→3 is left
    (DOWN, f"set: {{topic: t, config: {{flush.ms: 9}}}}, {AFTER}"),
    (STILL, f"kill: broker(1), {AFTER}"),
    (STILL, f"empty_disk: broker(1), {AFTER}"),
    ("starve: broker(1), at: 2s", f"pause: broker(1), {AFTER}"),
    ("restart: broker(1), at: 2s", f"kill: broker(1), {AFTER}"),
    ("kill: minority, at: 2s", f"kill: majority, {AFTER}"),
    ("lose_quorum: {by: kill}, at: 2s", f"kill: controller(101), {AFTER}"),
    ("flip_bits: {target: broker(1), partition: t/0}, at: 2s", f"kill: broker(1), {AFTER}"),
    ("full_disk: {target: broker(1), leave: 1MB}, at: 2s", f"kill: broker(1), {AFTER}"),
    ("full_disk: controller(101), at: 2s", f"kill: controller(101), {AFTER}"),
    ("slow_disk: broker(1), at: 2s", f"slow_disk: broker(1), {AFTER}"),
    (CUT, f"black_hole: {TO_2}}}, {AFTER}"),
    (CUT, f"flap: {TO_2}, down: 1s, up: 1s}}, {AFTER}"),
    (CUT, f"delay: {{link: broker(2) -> broker(1), latency: 100ms}}, {AFTER}"),
    ("detach: broker(2), at: 2s", f"cut: {TO_2}}}, {AFTER}"),
    (f"flap: {TO_2}, down: 1s, up: 1s}}, at: 2s", f"delay: {TO_2}, latency: 100ms}}, {AFTER}"),
    (f"throttle: {TO_2}, rate: 9KB/s}}, at: 2s", f"delay: {TO_2}, latency: 100ms}}, {AFTER}"),
    ("split: {groups: [brokers, [1]]}, at: 2s", f"delay: {TO_2}, latency: 100ms}}, {AFTER}"),
    (
        "set: {config: {num.io.threads: 3}}, at: 2s",
        f"set: {{broker: 1, config: {{num.io.threads: 4}}}}, {AFTER}",
    ),
    (f"drop_large: {TO_2}, above: 1200B}}, at: 2s", f"drop_large: {TO_2}, above: 600B}}, {AFTER}"),
    (
        f"drop_large: {TO_2}, above: 600B}}, at: 2s",
        f"drop_large: {{link: broker(1) -> broker(3), above: 600B}}, {AFTER}",
    ),
    (
        "set: {topic: t, config: {flush.ms: 9}}, at: 2s",
        f"set: {{topic: u, config: {{flush.ms: 9}}}}, {AFTER}",
    ),
    (
        "set: {topic: t, config: {flush.ms: 9}}, at: 2s",
        f"set: {{topic: t, config: {{segment.ms: 9}}}}, {AFTER}",
    ),
    ("remove_controller: controller(101), at: 2s", f"remove_controller: controller(102), {AFTER}"),
    ("kill_client: {client: producer(0)}, at: 2s", f"pause_client: {{client: producer(1)}}, {AFTER}"),
    ("kill_client: {client: producer}, at: 2s", f"pause_client: {{client: producer}}, {AFTER}"),
    ("pause_client: {client: producer(0)}, at: 2s", f"kill_client: {{client: producer(0)}}, {AFTER}"),
]


@pytest.mark.parametrize(("first", "second", "why"), CANNOT, ids=range(len(CANNOT)))
def test_what_certainly_meets_and_cannot_is_refused(
    load_text: Load, first: str, second: str, why: str
) -> None:
    told = refused(load_text, first, second, cluster=', kafka: "4.2.1"')
    assert ":7:6: faults[2]." in told
    assert "nothing to break: fault 1 (" in told
    assert why in told
    assert told.endswith("or aim it elsewhere")


@pytest.mark.parametrize(("first", "second"), MAY, ids=range(len(MAY)))
def test_what_composes_or_may_not_meet_is_left_to_the_run(load_text: Load, first: str, second: str) -> None:
    assert refused(load_text, first, second) == ""


KILL = "kill: broker(1), at: 5s, restart_after: 4s"
TIMES = [
    (KILL, "at: 6s", True),
    (KILL, "at: 8s", True),
    (KILL, "at: 8.1s", False),  # on a busy machine it may come later
    (KILL, "at: 5.9s", False),
    (KILL, "at: 4s", False),
    (KILL, "after: {fault: 1, by: 0s}", True),
    (KILL, "after: {fault: 1, by: 3s}", True),
    (KILL, "after: {fault: 1, by: 3.1s}", False),
    (KILL, "when: acked >= 9", False),
    ("kill: broker(1), when: acked >= 9", "after: {fault: 1}", True),
    ("kill: broker(1), when: acked >= 9", "at: 99s", False),
    ("kill: broker(1), at: 5s", "at: 99s", True),
    ("stop: broker(1), at: 5s", "at: 64s", False),  # a controlled shutdown takes its time
    ("stop: broker(1), at: 5s", "at: 65s", True),
]


@pytest.mark.parametrize(("first", "when", "meets"), TIMES, ids=range(len(TIMES)))
def test_when_they_surely_meet(load_text: Load, first: str, when: str, meets: bool) -> None:
    assert bool(refused(load_text, first, f"pause: broker(1), {when}, for: 1s")) is meets


CHAINS = [
    ("after: {fault: 1, by: 1s}", "after: {fault: 1, by: 2s}", True),
    ("after: {fault: 1, by: 1s}", "after: {fault: 1, by: 1s}", False),
    ("after: {fault: 1, by: 1s}", "at: 4s", False),  # nobody knows when fault 1 is confirmed
]


@pytest.mark.parametrize(("second", "third", "meets"), CHAINS, ids=range(len(CHAINS)))
def test_two_that_follow_a_third(load_text: Load, second: str, third: str, meets: bool) -> None:
    follow = f"kill: broker(2), {second}", f"kill: broker(2), {third}"
    told = refused(load_text, "kill: broker(1), when: acked >= 9", *follow)
    assert bool(told) is meets
    assert "faults[3]" in told or not meets


@pytest.mark.parametrize(("by", "meets"), [("1s", True), ("1.1s", False)])
def test_what_lies_between_takes_its_time_too(load_text: Load, by: str, meets: bool) -> None:
    between, last = f"kill: broker(2), {AFTER}", f"pause: broker(1), after: {{fault: 2, by: {by}}}, for: 1s"
    first = "kill: broker(1), when: acked >= 9, restart_after: 4s"
    assert bool(refused(load_text, first, between, last)) is meets


def test_what_a_third_fault_may_undo_is_not_certain(load_text: Load) -> None:
    stop = f"stop: broker(1), {AFTER}"
    assert refused(load_text, STILL, stop)
    assert refused(load_text, STILL, stop, f"{CUT}")
    assert not refused(load_text, STILL, stop, "kill: broker(1), at: 6s, restart_after: 1s")
    assert not refused(load_text, STILL, stop, "storm: {count: 2}, at: 1s")
    command = "command: {inject: [a], check: [b], heal: [c]}, at: 1s"
    assert not refused(load_text, STILL, stop, command)


def test_several_log_dirs(load_text: Load) -> None:
    dirs = ", log_dirs: 2"
    full, failed = (
        "full_disk: {target: broker(1), dir: %s}",
        "fail_log_dir: {target: broker(1), dir: 1}, at: 2s",
    )
    assert "leaves node 1 without log dir 1" in refused(
        load_text, failed, f"{full % 1}, {AFTER}", cluster=dirs
    )
    assert not refused(load_text, failed, f"{full % 2}, {AFTER}", cluster=dirs)
    assert not refused(load_text, failed, f"kill: broker(1), {AFTER}", cluster=dirs)


def test_where_and_what_to_do(load_text: Load) -> None:
    told = refused(load_text, DOWN, f"kill: broker(1), {AFTER}")
    assert told.partition(":")[2] == (
        "7:6: faults[2].kill: nothing to break: fault 1 (stop broker(1)) keeps node 1 down for good; "
        "give fault 1 restart_after, or aim it elsewhere"
    )
    assert "keeps node 1 down by then; let it begin later, or aim" in refused(
        load_text, KILL, f"kill: broker(1), {AFTER}"
    )


def test_faults_that_wait_for_each_other_are_no_chain(load_text: Load) -> None:
    told = refused(load_text, "kill: broker(1), after: {fault: 1}", f"kill: broker(1), {AFTER}")
    assert "fault 1 cannot wait for itself" in told


def test_other_problems_of_a_fault_come_first(load_text: Load) -> None:
    assert "broker(9) does not exist" in refused(load_text, DOWN, f"kill: broker(9), {AFTER}")


def test_every_fault_that_holds_nodes_says_when_it_lets_go() -> None:
    """One that keeps its nodes in a state ends at some time, or what comes after it would be refused for nothing."""
    for kind in fault_kinds().values():
        assert kind.GRIP is None or kind.GRIP not in kind.OVER or kind.KIND in ("starve", "flip_bits"), (
            kind.KIND
        )


def test_the_catalogue_is_not_refused() -> None:
    for file in sorted((Path(__file__).resolve().parents[3] / "experiments").glob("*.yaml")):
        load(file)
