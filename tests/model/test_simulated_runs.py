"""Tests of runs in virtual time: what acks=0, 1 and all keep, the same ledgers for the same seed, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.experiment.case import Case
from ackproof.experiment.problems import InvalidExperiment
from ackproof.faults.registry import fault_kinds
from ackproof.faults.storm import Storm
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import parts
from ackproof.rundir.timeline import Event, EventKind, read_timeline
from ackproof_simulator.backend import run_in_model
from ackproof_simulator.counts import Counts, counts_of
from ackproof_simulator.faults.virtual import maker_of
from ackproof_simulator.run import Simulation, setting_of
from simulated_run import lost, replayed

ROOT = Path(__file__).parents[2]
MATRIX = ROOT / "experiments" / "acks-matrix.yaml"
COARSE = "workload.producers.linger=100ms"


def simulated(file: Path, *settings: str, seed: int = 7) -> dict[str, Counts]:
    found = {}
    for case in cases(load(file, settings, backend="model"), seed=seed):
        simulation = Simulation(setting_of(case), case)
        simulation.run()
        found[case.id] = counts_of(simulation, seed)
    return found


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(text)
    return path


def test_acks_0_and_1_lose_the_unreplicated_tail_and_acks_all_loses_nothing() -> None:
    found = simulated(MATRIX, COARSE)
    assert len(found) == 6
    for name, counts in found.items():
        assert counts.complete and counts.faults_confirmed, name
        if name.startswith("acks=all"):
            assert counts.lost == 0
            # What frozen followers had received and the dead leader had not answered is sent again.
            assert 0 < counts.duplicate <= 1000
        else:
            # 0.6 s at 5000 records a second, give or take a batch of each producer
            assert 2000 <= counts.lost <= 4000, name
        assert 2000 <= counts.new_leader_ms <= 4500, name


def small() -> Case:
    return next(
        case
        for case in cases(
            load(MATRIX, ["workload.producers.rate=500/s", "workload.duration=2s"], backend="model")
        )
        if case.id.startswith("acks=1,min.insync.replicas=1")
    )


def test_the_same_seed_leaves_the_same_ledgers_byte_for_byte(tmp_path: Path) -> None:
    case, folders = small(), [CaseDir(tmp_path / "a"), CaseDir(tmp_path / "b")]
    for folder in folders:
        run_in_model(case, folder, "ackproof run …")
    first, second = (
        {
            path.relative_to(folder.path): path.read_bytes()
            for path in parts(folder.produced) + parts(folder.consumed)
        }
        for folder in folders
    )
    assert len(first) == 4  # two producers, a live reader, the final reader
    assert first == second


def test_the_timeline_begins_with_who_leads_and_who_is_in_sync(tmp_path: Path) -> None:
    """Later events are compared with this state, for example to find when an ISR first shrank."""
    told: list[Event] = []
    run_in_model(small(), CaseDir(tmp_path / "a"), "", told.append)
    events, _ = read_timeline(CaseDir(tmp_path / "a").timeline)
    assert [(event.t_ns, event.kind) for event in told] == [(event.t_ns, event.kind) for event in events]
    first = [event for event in events if event.kind in (EventKind.LEADER, EventKind.ISR)][:2]
    assert [(event.t_ns, event.kind) for event in first] == [(0, EventKind.LEADER), (0, EventKind.ISR)]
    assert len(first[1].detail["isr"]) == 3  # type: ignore[arg-type]


def test_another_seed_leaves_another_run() -> None:
    one, other = (simulated(MATRIX, COARSE, seed=seed) for seed in (1, 2))
    assert [c.unavailable_ms for c in one.values()] != [c.unavailable_ms for c in other.values()]


def test_what_the_model_can_do_is_what_validation_lets_through() -> None:
    for name, kind in fault_kinds().items():
        played = kind is Storm or maker_of(kind) is not None
        assert (kind.not_on("model") is None) is played, name


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("flip_bits: {target: leader(t/0)}", "protocol does not say"),
        ("storm: {count: 2, menu: {pause: 1, flip_bits: 1}}", "protocol does not say"),
    ],
)
def test_what_it_cannot_do_is_refused_at_validation(tmp_path: Path, fault: str, why: str) -> None:
    path = written(tmp_path, f"name: x\ntopics: {{t: {{}}}}\nfaults:\n  - {fault}\n    at: 1s\n")
    with pytest.raises(InvalidExperiment, match=why):
        load(path, backend="model")


@pytest.mark.parametrize("target", ["majority", "brokers"])
def test_combined_nodes_that_were_all_down_find_a_quorum_before_they_are_registered(
    tmp_path: Path, target: str
) -> None:
    text = f"""\
name: combined
cluster: {{controllers: 3, combined: true}}
topics: {{t: {{assignment: [[1, 2, 3]]}}}}
workload: {{producers: {{acks: all, rate: 500/s}}, duration: 4s}}
faults:
  - kill: {{target: {target}}}
    at: 1s
    restart_after: 1s
"""
    (case,) = cases(load(written(tmp_path, text), backend="model"))
    simulation, told = replayed(case, tmp_path / "run", seed=3, batches=100)
    assert lost(told) == 0
    assert simulation.world.control.active > 0
