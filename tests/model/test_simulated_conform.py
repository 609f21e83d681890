"""Tests that the replay of simulated runs agrees with the simulation on every step and every lost record.

The replay knows only the files that the simulation left: metadata log, samples, logs and ledgers. It must notice a
protocol that was changed in the simulation."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from ackproof.experiment.case import Case
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import ConformanceFile
from ackproof_model.replay.metadata import conform
from ackproof_reference import node
from ackproof_reference.broker import Broker, BrokerAndMessages
from ackproof_reference.controller import alter_partition, fence, unfence
from ackproof_reference.leader import produce
from ackproof_reference.messages import Altered, AlterPartition, Produce
from ackproof_reference.metadata import Metadata
from ackproof_reference.rules import Rules
from ackproof_simulator import control
from ackproof_simulator.control import Control
from run_directory import read_case
from simulated_run import SIMULATED, simulated

ROOT = Path(__file__).parents[2]


def replayed(case: Case, folder: Path, seed: int) -> ConformanceFile:
    simulation = simulated(case, folder, seed=seed, batches=60)
    return conform(CaseDir(folder), simulation.case)


def disagreement(file: ConformanceFile) -> list[str]:
    """Return a sentence for each difference between the replay and the simulated run."""
    said = [f"{one.anomaly}: {one.unexplained} unexplained" for one in file.classes if one.unexplained]
    if file.forbidden is not None:
        said.append(f"forbidden: {file.forbidden.rule}: {file.forbidden.text}")
    if file.present:
        said.append(f"{file.present} must be gone and are there")
    said += [
        f"elected {one.observed}, not {one.reference}"
        for one in file.elections
        if one.observed != one.reference
    ]
    return said + list(file.not_replayed)


@pytest.mark.parametrize("file", SIMULATED, ids=lambda file: file.stem)
def test_the_replay_allows_each_step_and_explains_each_loss_of_a_simulated_run(
    file: Path, tmp_path: Path
) -> None:
    """One cell of each file is simulated; `tools/bench/simulated_conform.py` runs all cells with many seeds."""
    every = list(cases(load(file, backend="model"), repeat=1))
    number = SIMULATED.index(file)
    told = replayed(every[number % len(every)], tmp_path / "run", number)
    assert disagreement(told) == []
    assert told.steps["partition created"]
    assert told.replayed > 20


def test_losses_are_there_to_be_explained(tmp_path: Path) -> None:
    case = next(iter(cases(load(ROOT / "experiments" / "acks-matrix.yaml", backend="model"))))
    told = {one.anomaly: one for one in replayed(case, tmp_path / "run", 1).classes}
    assert told["lost"].count > 1000


EXPERIMENT = """\
name: planted
topics:
  orders: {partitions: 1, replication_factor: 3, config: {min.insync.replicas: 2}}
workload:
  producers: {acks: all, rate: 2000/s}
  duration: 3s
faults:
  - pause: {target: followers(orders/0)}
    at: 500ms
    for: 1500ms
  - kill: {target: leader(orders/0)}
    after: {fault: 1, by: 600ms}
    restart_after: 4s
"""


def planted(tmp_path: Path) -> ConformanceFile:
    case = read_case(EXPERIMENT, backend="model")
    return replayed(case, tmp_path / "run", 3)


def test_without_a_lie_there_is_nothing_to_find(tmp_path: Path) -> None:
    assert disagreement(planted(tmp_path)) == []


def second_in_line(metadata: Metadata, broker: int, rules: Rules) -> Metadata:
    """Planted error: fence a broker, and elect another leader than the protocol names."""
    fenced = fence(metadata, broker, rules)
    isr = fenced.partition.isr
    if fenced.partition.leader == metadata.partition.leader or len(isr) < 2:
        return fenced
    return fenced._replace(partition=fenced.partition._replace(leader=isr[-1]))


def skipping_an_epoch(metadata: Metadata, broker: int, rules: Rules) -> Metadata:
    """Planted error: fence a broker, and raise the leader epoch by two."""
    fenced = fence(metadata, broker, rules)
    moved = fenced.partition.leader_epoch > metadata.partition.leader_epoch
    ahead = fenced.partition._replace(leader_epoch=fenced.partition.leader_epoch + moved)
    return fenced._replace(partition=ahead)


def twice(metadata: Metadata, request: AlterPartition, rules: Rules) -> tuple[Metadata, Altered]:
    """Planted error: change the ISR, and raise the partition epoch by two."""
    changed, answer = alter_partition(metadata, request, rules)
    if changed is metadata:
        return changed, answer
    ahead = changed.partition._replace(epoch=changed.partition.epoch + 1)
    return changed._replace(partition=ahead), answer._replace(partition=ahead)


def at_once(broker: Broker, request: Produce, rules: Rules) -> BrokerAndMessages:
    """Planted error: acknowledge acks=all without waiting for replicas."""
    return produce(broker, request._replace(acks=1), rules)


@pytest.mark.parametrize(
    ("where", "what", "lie", "rule"),
    [
        (control, "fence", second_in_line, "another leader than the reference names"),
        (control, "fence", skipping_an_epoch, "leader epoch"),
        (control, "alter_partition", twice, "partition epoch"),
        (node, "produce", at_once, "ack above what its epoch kept"),
    ],
    ids=["leader", "leader epoch", "partition epoch", "acks=all"],
)
def test_a_protocol_that_was_bent_in_the_simulation_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: ModuleType, what: str, lie: object, rule: str
) -> None:
    monkeypatch.setattr(where, what, lie)
    told = planted(tmp_path)
    assert told.forbidden is not None
    assert told.forbidden.rule == rule


def test_a_fenced_broker_that_leads_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has no record of the unfencing, so each later step of the broker is forbidden."""
    monkeypatch.setattr(Control, "unfence", _quietly)
    told = planted(tmp_path)
    assert told.forbidden is not None
    assert told.forbidden.rule == "fenced broker joined the ISR"


def _quietly(self: Control, broker: int) -> None:
    self.fenced.discard(broker)
    for partition in self.partitions:
        self.apply(partition, unfence(partition.image, broker, partition.rules))


def test_rows_that_vanish_from_the_final_read_are_explained_by_no_step(tmp_path: Path) -> None:
    case = read_case(EXPERIMENT, backend="model")
    simulation = simulated(case, tmp_path / "run", seed=3, batches=60, without=range(10, 15))
    told = conform(CaseDir(tmp_path / "run"), simulation.case)
    (lost,) = (one for one in told.classes if one.anomaly == "lost")
    assert (lost.count, lost.unexplained) == (5, 5)
