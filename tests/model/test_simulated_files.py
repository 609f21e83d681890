"""Tests of truncated logs, lost checkpoints, moves between log dirs and clock jumps in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.rundir.model import ConformanceFile
from ackproof_simulator.clock import SECOND
from ackproof_simulator.run import Simulation, setting_of
from ackproof_simulator.world import make_world
from run_directory import read_case
from simulated_run import lost, replayed

FILE = """\
name: files
cluster: {{kafka: "{kafka}", controllers: 3, log_dirs: 2}}
topics:
  t: {{assignment: [[1, 2, 3]], config: {{min.insync.replicas: 2}}}}
workload:
  producers: {{acks: all, rate: 300/s}}
  duration: 3s
faults:
{faults}
"""


def ran(tmp_path: Path, faults: str, kafka: str = "4.3.1") -> tuple[Simulation, ConformanceFile]:
    case = read_case(FILE.format(faults=faults, kafka=kafka), backend="model")
    return replayed(case, tmp_path / "run", seed=5, batches=150)


@pytest.mark.parametrize(("target", "loses"), [("follower(t/0)", False), ("brokers", True)])
def test_the_end_of_a_log_is_fetched_again_unless_nobody_has_it(
    tmp_path: Path, target: str, loses: bool
) -> None:
    fields = f"target: {target}, partition: t/0, bytes: 20KB"
    cut = f"  - truncate_segment: {{{fields}}}\n    at: 2s\n    restart_after: 1s\n"
    simulation, told = ran(tmp_path, cut)
    # records of 112 bytes: 20 KB are a bit less than 183 of them
    assert (150 < lost(told) < 250) if loses else lost(told) == 0
    assert len({simulation.world.partitions[0].log(broker).end for broker in (1, 2, 3)}) == 1


@pytest.mark.parametrize(("file", "begins_at_0"), [("replication-offset", True), ("recovery-point", False)])
def test_without_its_checkpoint_a_broker_begins_with_a_high_watermark_of_0(
    tmp_path: Path, file: str, begins_at_0: bool
) -> None:
    fault = f"  - delete_checkpoint: {{target: broker(3), file: {file}}}\n    at: 2s\n"
    case = read_case(FILE.format(faults=fault, kafka="4.3.1"), backend="model")
    simulation = Simulation(setting_of(case), case)
    marks: list[int] = []
    partition = simulation.world.partitions[0]
    simulation.world.clock.call_at(2100 * 10**6, lambda: marks.append(partition.log(3).high_watermark))
    simulation.run()
    assert [mark == 0 for mark in marks] == [begins_at_0]
    assert simulation.complete and set(partition.image.partition.isr) == {1, 2, 3}


def test_a_replica_that_moved_is_not_hit_where_it_lay(tmp_path: Path) -> None:
    move = "  - move_log_dir: {partition: t/0, target: leader(t/0)}\n    at: 500ms\n"
    fails = "  - fail_log_dir: {target: broker(1), dir: %d}\n    at: 2s\n    for: 1s\n"
    for number, hit in ((1, False), (2, True)):
        path = tmp_path / str(number)
        path.mkdir()
        simulation, told = ran(path, move + fails % number)
        assert (told.steps["log dirs of replicas"], lost(told)) == (1, 0)
        first = next(change for change in simulation.world.changes if change.image.leader != 1)
        # A broker that lost a log dir is started anew in the end, and hands over what it leads then.
        assert (first.at_ns < 3 * SECOND) is hit


@pytest.mark.parametrize(("kafka", "forgets"), [("4.2.1", True), ("4.3.1", False)])
def test_a_move_makes_4_2_forget_who_is_eligible(tmp_path: Path, kafka: str, forgets: bool) -> None:
    """Real brokers of both releases did the same: two of three brokers are stopped, and the leader's replica moves."""
    stops = "".join(f"  - stop: {{target: broker({node})}}\n    at: {node}00ms\n" for node in (2, 3))
    move = "  - move_log_dir: {partition: t/0, target: leader(t/0)}\n    at: 2500ms\n"
    simulation, told = ran(tmp_path, stops + move, kafka)
    moved = next(change for change in simulation.world.changes if change.at_ns > 2500 * 10**6)
    assert bool(moved.before.elr) and (moved.image.elr == ()) is forgets
    assert told.steps.get("log dirs of replicas, eligible replicas forgotten", 0) == int(forgets)


def test_a_leader_whose_clock_leaps_drops_who_has_not_asked_since(tmp_path: Path) -> None:
    """The follower fetches every second and may lag for 4 s (replica.lag.time.max.ms). Right after the jump, its last
    fetch seems an hour old."""
    late = "  - delay: {link: broker(3) -> broker(1), latency: 500ms}\n    at: 200ms\n    for: 8s\n"
    leap = "  - clock_jump: {target: leader(t/0), by: 1h}\n    at: 3950ms\n    for: 2s\n"
    for faults, drops in ((late, False), (late + leap, True)):
        path = tmp_path / str(drops)
        path.mkdir()
        simulation, told = ran(path, faults)
        shrunk = [change.at_ns for change in simulation.world.changes if change.image.isr == (1, 2)]
        assert (bool(shrunk), lost(told)) == (drops, 0)


@pytest.mark.parametrize(("by", "moves"), [("10s", True), ("-10s", False)])
def test_an_active_controller_whose_clock_leaps_forwards_resigns(
    tmp_path: Path, by: str, moves: bool
) -> None:
    fault = f"  - clock_jump: {{target: controller, by: {by}}}\n    at: 1s\n"
    case = read_case(FILE.format(faults=fault, kafka="4.3.1"), backend="model")
    simulation = Simulation(setting_of(case), case)
    gone: list[bool] = []
    simulation.world.clock.call_at(1100 * 10**6, lambda: gone.append(simulation.world.control.active < 0))
    simulation.run()
    assert gone == [moves]


def test_the_settings_of_a_deleted_topic_are_gone() -> None:
    fault = "  - recreate: {topic: t}\n    at: 1s\n"
    case = read_case(FILE.format(faults=fault, kafka="4.3.1"), backend="model")
    world = make_world(setting_of(case), case, 0)
    world.settings["t"] |= {"min.insync.replicas": "3", "unclean.leader.election.enable": "true"}
    world.make_anew("t")
    (partition,) = world.partitions
    assert world.settings["t"] == {"min.insync.replicas": "2"}
    assert (partition.rules.min_insync, partition.rules.unclean_election) == (2, False)
