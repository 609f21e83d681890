"""Tests of frozen disks, and of a quorum without one voter, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.rundir.layout import CaseDir
from ackproof.rundir.timeline import EventKind, read_timeline
from ackproof_model.replay.metadata import conform
from ackproof_model.replay.observed import observe
from ackproof_simulator.clock import MS, SECOND
from ackproof_simulator.disks import Disks
from ackproof_simulator.faults.disks import SlowDiskRun
from ackproof_simulator.run import Simulation, setting_of
from run_directory import read_case
from simulated_run import simulated

FILE = """\
name: disks
cluster: {{kafka: "4.3.1", {cluster}}}
topics:
  t: {{assignment: [[1, 2, 3]], config: {{min.insync.replicas: 2}}}}
{topics}
workload:
  producers: {{acks: all, rate: 300/s, count: {producers}}}
  duration: 3s
faults:
{faults}
"""


def ran(
    tmp_path: Path,
    faults: str,
    *,
    cluster: str = "controllers: 3",
    producers: int = 1,
    topics: str = "",
    batches: int = 150,
) -> Simulation:
    """Simulate 150 batches, or `batches`; assert that the run is complete, has no forbidden step and loses nothing.
    Return the simulation."""
    case = read_case(
        FILE.format(cluster=cluster, faults=faults, producers=producers, topics=topics), backend="model"
    )
    simulation = simulated(case, tmp_path / "run", seed=5, batches=batches)
    assert simulation.complete, simulation.reasons
    told = conform(CaseDir(tmp_path / "run"), simulation.case)
    assert told.forbidden is None, told.forbidden
    assert {one.anomaly: one.count for one in told.classes if one.anomaly == "lost"} == {"lost": 0}
    return simulation


def slow(target: str, stall: str, lasts: str = "2s") -> str:
    return f"  - slow_disk: {{target: {target}, stall: {stall}}}\n    at: 1s\n    for: {lasts}\n"


def ended(simulation: Simulation) -> bool:
    return [life.reason for life in simulation.lives if life.stage.name != "RECOVERED"] == []


def shrunk(simulation: Simulation, place: int = 0) -> list[tuple[int, ...]]:
    """Return the ISRs of the partition with number `place` that had fewer than three members, in order."""
    found = [change.image.isr for change in simulation.world.changes if change.place == place]
    return [isr for isr in found if len(isr) < 3]


def witnesses(tmp_path: Path) -> list[str]:
    events, _ = read_timeline(CaseDir(tmp_path / "run").timeline)
    kinds = (EventKind.FAULT_ASKED, EventKind.FAULT_CONFIRMED, EventKind.FAULT_HEALED)
    told = [event for event in events if event.kind in (*kinds, EventKind.FAULT_RECOVERED)]
    assert [event.kind for event in told] == [*kinds, EventKind.FAULT_RECOVERED]
    return [str(event.detail.get("witness", "")) for event in told]


def test_whoever_waits_for_a_follower_s_disk_waits_and_the_isr_stays_full(tmp_path: Path) -> None:
    simulation = ran(tmp_path, slow("follower(t/0)", "600ms"))
    assert ended(simulation)
    assert shrunk(simulation) == []
    assert 500 * MS < simulation.world.gaps[0] < 700 * MS
    assert witnesses(tmp_path)[1].endswith("has its log took 0.59 s")


def test_a_follower_that_cannot_append_for_long_enough_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    simulation = ran(tmp_path, slow("broker(3)", "9s"))
    assert ended(simulation)
    assert shrunk(simulation) == [(1, 2)]
    assert observe(CaseDir(tmp_path / "run"), simulation.case).stall_ns == 9 * SECOND
    (dropped,) = [change for change in simulation.world.changes if change.image.isr == (1, 2)]
    # replica.lag.time.max.ms is 4 s, and looked at every 2 s; it stands still from 1 s on
    assert 4 * SECOND <= dropped.at_ns - SECOND <= 6.1 * SECOND
    assert set(simulation.world.partitions[0].image.partition.isr) == {1, 2, 3}


def test_a_slow_leader_answers_late_and_goes_on_leading(tmp_path: Path) -> None:
    simulation = ran(tmp_path, slow("leader(t/0)", "9s"))
    assert ended(simulation)
    assert 8 * SECOND < simulation.world.gaps[0] < 10 * SECOND
    assert simulation.world.changes == []


FAR = "  - delay: {link: followers(t/0) -> leader(t/0), latency: 100ms}\n    at: 500ms\n"
"""A delay of the links to the leader, so that some records are always in flight to it."""


def test_a_slow_leader_drops_the_followers_whose_fetches_wait_behind_the_append(tmp_path: Path) -> None:
    assert (1,) in shrunk(ran(tmp_path, FAR + slow("leader(t/0)", "9s")))


@pytest.mark.parametrize(("config", "served"), [("", False), (', config: {num.io.threads: "8"}', True)])
def test_who_has_no_free_handler_serves_nobody(tmp_path: Path, config: str, served: bool) -> None:
    """u/0 is in the other log dir. Clusters of the harness have two request handlers, so two waiting requests block all
    others."""
    far = FAR + "  - delay: {link: broker(4) -> broker(1), latency: 100ms}\n    at: 500ms\n"
    simulation = ran(
        tmp_path,
        far + slow("broker(1), dir: 1", "9s"),
        cluster=f"brokers: 4, log_dirs: 2{config}",
        producers=3,
        topics="  u: {assignment: [[1, 4]]}",
    )
    assert ((1,) in shrunk(simulation, 0), (1,) not in shrunk(simulation, 1)) == (True, served)


def test_two_log_dirs_stand_still_apart(tmp_path: Path) -> None:
    """t/0 is in the first log dir, u/0 in the second. A fetcher of another leader goes on; one of the same leader
    waits."""
    other = "  u: {assignment: [[3, 2, 1]], config: {min.insync.replicas: 2}}"
    simulation = ran(tmp_path, slow("broker(2), dir: 1", "9s"), cluster="log_dirs: 2", topics=other)
    assert ended(simulation)
    assert (shrunk(simulation, 0), shrunk(simulation, 1)) == ([(1, 3)], [])
    same = other.replace("[3, 2, 1]", "[1, 2, 3]")
    simulation = ran(tmp_path / "same", slow("broker(2), dir: 1", "9s"), cluster="log_dirs: 2", topics=same)
    assert (shrunk(simulation, 0), shrunk(simulation, 1)) == ([(1, 3)], [(1, 3)])


@pytest.mark.parametrize(("stall", "moves"), [("400ms", False), ("4s", True)])
def test_a_slow_controller_is_replaced_when_the_others_hear_nothing_for_too_long(
    tmp_path: Path, stall: str, moves: bool
) -> None:
    simulation = ran(tmp_path, slow("controller", stall))
    assert ended(simulation)
    assert (simulation.world.control.active != simulation.world.control.controllers[0]) is moves


def test_nothing_is_decided_while_all_controllers_disks_stand_still(tmp_path: Path) -> None:
    """A leader is killed meanwhile. Its successor is elected after the thaw, otherwise it would be within 4 s."""
    faults = slow("controllers", "9s") + "  - kill: {target: leader(t/0)}\n    at: 1500ms\n"
    simulation = ran(tmp_path, faults)
    assert ended(simulation)
    led = [change.at_ns for change in simulation.world.changes if change.image.leader != change.before.leader]
    assert min(led) > 10 * SECOND


def test_who_is_elected_while_its_disk_stands_still_learns_of_it_when_it_goes_on(tmp_path: Path) -> None:
    faults = slow("broker(2)", "4s") + "  - stop: {target: broker(1)}\n    at: 1500ms\n"
    case = read_case(
        FILE.format(cluster="controllers: 3", faults=faults, producers=1, topics=""), backend="model"
    )
    simulation = Simulation(setting_of(case), case)
    partition = simulation.world.partitions[0]
    seen: list[tuple[int, bool]] = []
    for second in (3, 6):
        simulation.world.clock.call_at(
            second * SECOND, lambda: seen.append((partition.image.partition.leader, partition.leads(2)))
        )
    simulation.run()
    assert seen == [(2, False), (2, True)]


def test_a_session_that_ends_while_the_controller_stands_still_ends_when_it_goes_on(tmp_path: Path) -> None:
    kill = "  - kill: {target: leader(t/0)}\n    at: 1500ms\n    restart_after: 6s\n"
    simulation = ran(tmp_path, slow("controller", "700ms", "5s") + kill)
    assert ended(simulation)
    led = [change.at_ns for change in simulation.world.changes if change.image.leader == 2]
    assert led and led[0] < 7 * SECOND


def test_a_slow_combined_node_does_not_learn_of_the_new_controller_and_is_fenced(tmp_path: Path) -> None:
    simulation = ran(tmp_path, slow("broker(1)", "9s"), cluster="combined: true")
    assert ended(simulation)
    # the session is 3 s; without a move of the controller it is never fenced, as the tests above show
    assert simulation.world.partitions[0].image.partition.leader == 2


def test_a_process_that_waits_for_its_disk_can_be_killed_and_starts_when_it_goes_on(tmp_path: Path) -> None:
    kill = "  - kill: {target: broker(1)}\n    at: 1500ms\n    restart_after: 1s\n"
    simulation = ran(tmp_path, slow("broker(1)", "3s", "4s") + kill)
    assert ended(simulation)
    assert simulation.world.control.disks.frozen == {}
    assert simulation.world.control.disks.waiting == 0


def test_what_a_frozen_file_system_has_synced_outlives_a_loss_of_power(tmp_path: Path) -> None:
    """All replicas lose power at the same time: records from before the freeze are kept on each."""
    faults = slow("brokers", "1500ms", "200ms") + (
        "  - power_loss: {target: brokers, how: device}\n    at: 1200ms\n    restart_after: 500ms\n"
    )
    simulation = ran(tmp_path, faults)
    frozen_at = SECOND
    assert simulation.final[0].end > 0
    sent = [
        b for one in simulation.world.producers for b in one.batches if b.outcome == 0 and b.done < frozen_at
    ]
    assert sent and simulation.world.partitions[0].synced.keys() == {1, 2, 3}


def test_a_file_system_is_frozen_by_one_fault_at_a_time_and_by_none_that_has_failed(tmp_path: Path) -> None:
    simulation = ran(
        tmp_path, slow("broker(3)", "2s") + slow("broker(3)", "3s").replace("at: 1s", "at: 1500ms")
    )
    assert [life.reason for life in simulation.lives] == [
        "",
        "slow_disk: another fault has frozen the file system",
    ]
    assert simulation.world.control.disks.frozen == {}


def test_a_freeze_that_does_not_hold_is_noticed_by_its_witness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Disks, "freeze", lambda *_: None)
    monkeypatch.setattr(Disks, "thaw", lambda *_: None)
    monkeypatch.setattr(SlowDiskRun, "WITHIN_S", 5.0)
    simulation = ran(tmp_path, slow("leader(t/0)", "600ms"))
    assert [life.reason for life in simulation.lives] == ["it had no effect"]


# -- voters -------------------------------------------------------------------------------------------------------

REMOVED = "  - remove_controller: {target: %s}\n    at: 1s\n    for: 6s\n"
ANOTHER_DIES = "  - kill: {target: controller(103)}\n    at: 1500ms\n    restart_after: 4s\n"
LEADER_DIES = "  - kill: {target: leader(t/0)}\n    at: 2s\n"


def test_the_active_controller_is_taken_out_another_takes_its_place_and_it_comes_back(tmp_path: Path) -> None:
    simulation = ran(tmp_path, REMOVED % "controller")
    assert ended(simulation)
    before, after = witnesses(tmp_path)[1], witnesses(tmp_path)[3]
    assert before.endswith("voters 102, 103") and after.endswith("voters 101, 102, 103")
    assert "controller 101 leads" not in before + after
    confirmed = simulation.lives[0].confirmed_ns
    # Real ones: 1.7 s from the request, of which 0.4 s to make the quorum a dynamic one and 0.9 s to elect another.
    assert confirmed and 0.9 * SECOND < confirmed - SECOND < 1.8 * SECOND


def test_a_quorum_of_three_without_one_voter_does_not_survive_another(tmp_path: Path) -> None:
    """With two voters left, the death of one stops elections until it is back. With three voters a leader is elected at
    once."""
    elected = {}
    for name, faults in (
        ("two", REMOVED % "controller(102)" + ANOTHER_DIES + LEADER_DIES),
        ("three", ANOTHER_DIES + LEADER_DIES),
    ):
        simulation = ran(tmp_path / name, faults)
        assert ended(simulation)
        (elected[name],) = [
            change.at_ns
            for change in simulation.world.changes
            if change.image.leader not in (1, -1, change.before.leader)
        ]
    assert elected["three"] < 6 * SECOND < elected["two"]


def test_who_is_no_voter_any_more_cannot_be_removed(tmp_path: Path) -> None:
    again = "  - remove_controller: {target: controller(102)}\n    at: 3s\n    for: 1s\n"
    simulation = ran(tmp_path, REMOVED % "controller(102)" + again)
    assert simulation.lives[1].reason == "controller 102 is no voter: nothing to remove"


def test_a_removal_that_most_of_the_rest_cannot_commit_has_no_effect(tmp_path: Path) -> None:
    """Controller 102 is dead, so 101 and 103 commit. Without 103, controller 101 alone would be half of {101, 102}."""
    dead = "  - kill: {target: controller(102)}\n    at: 500ms\n"
    simulation = ran(tmp_path, dead + REMOVED % "controller(103)")
    assert simulation.lives[1].reason == "it had no effect"
    assert simulation.world.control.quorum.voters == [101, 102, 103]
