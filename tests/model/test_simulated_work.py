"""Tests of planned work in virtual time: each fault completes, is replayed without a forbidden step, and loses at most
what it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.experiment.problems import InvalidExperiment
from ackproof.faults.life import Stage
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile
from ackproof.rundir.timeline import NodeStarted
from ackproof_model.replay.metadata import conform
from ackproof_simulator.run import Simulation
from run_directory import read_case
from simulated_run import lost, replayed, simulated

FILE = """\
name: work
cluster: {{kafka: "{kafka}", brokers: 4, controllers: 3}}
topics:
  t: {{assignment: [[1, 2, 3]], config: {{min.insync.replicas: 2}}}}
workload:
  producers: {{acks: {acks}, rate: 1000/s}}
  duration: 3s
faults:
{faults}
"""


def worked(
    tmp_path: Path, faults: str, kafka: str = "4.3.1", acks: str = "all"
) -> tuple[Simulation, ConformanceFile]:
    """Simulate a run with these faults and replay it; return both results."""
    case = read_case(FILE.format(kafka=kafka, faults=faults, acks=acks), backend="model")
    return replayed(case, tmp_path / "run", seed=5, batches=60)


@pytest.mark.parametrize(
    ("to", "replicas"), [("[4, 2, 3]", (4, 2, 3)), ("[2]", (2,)), ("[1, 2, 3, 4]", (1, 2, 3, 4))]
)
def test_a_partition_moves_to_other_replicas_and_loses_nothing(
    tmp_path: Path, to: str, replicas: tuple[int, ...]
) -> None:
    simulation, told = worked(tmp_path, f"  - reassign: {{partition: t/0, to: {to}}}\n    at: 1s\n")
    (partition,) = simulation.world.partitions
    assert (partition.image.partition.replicas, set(partition.image.partition.isr)) == (
        replicas,
        set(replicas),
    )
    assert told.steps["reassigned"] == 1
    assert lost(told) == 0
    gone = {1, 2, 3, 4} - set(replicas)
    assert all(not partition.log(broker).batches for broker in gone)


def test_a_move_is_cancelled_half_way(tmp_path: Path) -> None:
    fault = "  - cancel_reassign: {partition: t/0, to: [4, 1, 2]}\n    at: 1s\n    for: 1s\n"
    simulation, told = worked(tmp_path, fault)
    assert set(simulation.world.partitions[0].image.partition.replicas) == {1, 2, 3}
    assert told.steps["reassignment cancelled"] == 1
    assert lost(told) == 0


@pytest.mark.parametrize("drain", ["true", "false"])
def test_a_broker_is_taken_out(tmp_path: Path, drain: str) -> None:
    fault = f"  - decommission: {{target: broker(1), drain: {drain}}}\n    at: 1s\n    restart_after: 1s\n"
    simulation, told = worked(tmp_path, fault)
    assert set(simulation.world.partitions[0].image.partition.replicas) == {2, 3, 4}
    assert lost(told) == 0


def test_a_lower_minimum_is_in_force_while_it_is_set(tmp_path: Path) -> None:
    """Two of three replicas are stopped, so records are acknowledged only while min.insync.replicas is 1."""
    faults = """\
  - stop: {target: broker(3)}
    at: 500ms
  - stop: {target: broker(2)}
    after: {fault: 1, by: 600ms}
  - set: {topic: t, config: {min.insync.replicas: 1}}
    after: {fault: 2, by: 2s}
    for: 1s
"""
    simulation, _ = worked(tmp_path, faults)
    shrunk, begun = simulation.lives[1].confirmed_ns, simulation.lives[2].confirmed_ns
    assert shrunk and begun
    ended = begun + 10**9
    assert simulation.lives[2].stage is Stage.RECOVERED
    acked = [batch.done for one in simulation.world.producers for batch in one.batches if batch.outcome == 0]
    assert not [done for done in acked if shrunk + 10**9 < done < begun - 10**9]
    assert [done for done in acked if begun < done < ended]


def test_unclean_elections_that_are_switched_on_take_place_and_lose(tmp_path: Path) -> None:
    """The last member of the ISR stays dead, so there is no leader; the controller checks every two seconds."""
    faults = """\
  - set: {topic: t, config: {min.insync.replicas: 1}}
    at: 200ms
    for: 20s
  - pause: {target: "followers(t/0)"}
    at: 1s
    for: 6s
  - kill: {target: "leader(t/0)"}
    after: {fault: 2, by: 5500ms}
  - set: {topic: t, config: {unclean.leader.election.enable: true}}
    after: {fault: 3, by: 6s}
    for: 4s
"""
    simulation, told = worked(tmp_path, faults)
    (elected,) = [one for one in told.elections if one.observed > 1]
    assert elected.cause in {"election", "unclean election"}
    leaderless, led = (
        next(change.at_ns for change in simulation.world.changes if change.image.leader == leader)
        for leader in (-1, elected.observed)
    )
    asked = simulation.lives[3].confirmed_ns
    assert asked and leaderless < asked <= led <= asked + 2_000_000_000
    assert lost(told) > 1000


def test_a_log_dir_that_fails_takes_what_lies_in_it_and_nothing_else(tmp_path: Path) -> None:
    """Two log dirs: t/0 is in the first, u/0 in the second. Broker 1 leads both, and lives on."""
    path = tmp_path / "dirs.yaml"
    text = FILE.format(
        acks="all", kafka="4.3.1", faults="  - fail_log_dir: {target: leader(t/0)}\n    at: 1s\n    for: 2s\n"
    )
    path.write_text(
        text.replace("controllers: 3", "controllers: 3, log_dirs: 2").replace(
            "workload:", "  u: {assignment: [[1, 2, 3]], config: {min.insync.replicas: 2}}\nworkload:"
        )
    )
    (case,) = cases(load(path, backend="model"))
    simulation = simulated(case, tmp_path / "run", seed=5, batches=60)
    assert [life.reason for life in simulation.lives if life.stage.name != "RECOVERED"] == []
    told = conform(CaseDir(tmp_path / "run"), simulation.case)
    assert (told.forbidden, lost(told)) == (None, 0)
    assert told.steps["log dir of broker N failed"] == 1
    moved = [change for change in simulation.world.changes if change.image.leader != change.before.leader]
    assert moved[0].place == 0
    # u/0 moves when the broker is stopped to be started anew, and not before.
    assert simulation.lives[0].confirmed_ns
    assert [change.at_ns > 3 * 10**9 for change in moved if change.place == 1] == [True]


def test_a_topic_that_is_made_anew_has_lost_what_it_held(tmp_path: Path) -> None:
    simulation, told = worked(tmp_path, "  - recreate: {topic: t}\n    at: 1s\n")
    assert 500 < lost(told) < 2500
    assert told.not_replayed == ()
    (went,) = told.deletions
    assert (went.acked, went.either, went.by) == (lost(told), 0, "fault 1 (recreate)")
    assert went.log_end == -1  # brokers of the model remove at once what nobody holds
    assert simulation.world.partitions[0].log(1).start == 0


def test_each_of_several_incarnations_is_replayed(tmp_path: Path) -> None:
    """In the first incarnation a leader dies with records that only it had. Records of the second one are deleted,
    too."""
    faults = """\
  - kill: {target: leader(t/0)}
    at: 300ms
    restart_after: 6s
  - recreate: {topic: t}
    after: {fault: 1, by: 4s}
  - recreate: {topic: t}
    after: {fault: 2, by: 1s}
"""
    _, told = worked(tmp_path, faults, acks="1")
    assert [(one.incarnation, one.by) for one in told.deletions] == [
        (1, "fault 2 (recreate)"),
        (2, "fault 3 (recreate)"),
    ]
    assert all(one.acked > 100 for one in told.deletions)
    (gone,) = [one for one in told.classes if one.anomaly == "lost"]
    assert (gone.explained, told.present, told.not_replayed) == (gone.count, 0, ())


def test_a_topic_is_made_anew_while_a_broker_of_it_is_gone(tmp_path: Path) -> None:
    """The new topic leads without the dead broker, whose replica joins the ISR when it returns."""
    faults = """\
  - kill: {target: broker(1)}
    at: 500ms
    restart_after: 6s
  - recreate: {topic: t}
    after: {fault: 1, by: 4s}
"""
    simulation, _ = worked(tmp_path, faults)
    assert set(simulation.world.partitions[0].image.partition.isr) == {1, 2, 3}


@pytest.mark.parametrize("kafka", ["3.9.2", "4.0.2", "4.2.1"])
def test_an_upgrade_changes_the_rules_node_by_node(tmp_path: Path, kafka: str) -> None:
    simulation, told = worked(tmp_path, '  - upgrade: {to: "4.3.1"}\n    at: 1s\n', kafka)
    (partition,) = simulation.world.partitions
    assert partition.rules.elr and partition.rules.last_known_leader_unfenced
    assert set(partition.own) == {1, 2, 3, 4}
    assert lost(told) == 0
    started = [node for _, node, what in simulation.world.journal.lives if isinstance(what, NodeStarted)]
    assert started[:3] != [1, 2, 3]  # controllers first
    assert len(started) == 7


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("set: {topic: t, config: {retention.ms: 1}}", "it does not know the setting 'retention.ms'"),
        ("full_disk: {target: broker(1), leave: 1MiB}", "no files and no bytes"),
        ("clock_jump: {target: broker(1), by: -2h}", "stamped an hour ahead"),
        ("truncate_segment: {target: leader(t/0), segment: closed}", "one segment each"),
        ("fail_log_dir: {target: broker(1), how: read_only}", "no files and no bytes"),
    ],
)
def test_what_would_change_nothing_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "work.yaml"
    path.write_text(FILE.format(kafka="4.3.1", acks="all", faults=f"  - {text}\n    at: 1s\n"))
    with pytest.raises(InvalidExperiment, match=why):
        load(path, backend="model")
