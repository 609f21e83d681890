"""Tests of sweeps over seeds: the same results in every process, correct intervals, shrunk schedules, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ackproof.cli.main import main_code
from ackproof.experiment.case import Case
from ackproof.experiment.fault import FaultSpec
from ackproof.experiment.roles import Role
from ackproof.experiment.triggers import TimeTrigger
from ackproof.faults.processes import Pause
from ackproof.plan import load
from ackproof.plan.cases import cases, reseeded
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.model import SimulationFile
from ackproof_simulator.backend import run_in_model
from ackproof_simulator.counts import bootstrap, counts_of, wilson
from ackproof_simulator.sweep import (
    Mapper,
    fewest,
    in_processes,
    linger_for,
    runs_of,
    shrink,
    sweep,
    with_linger,
)

ROOT = Path(__file__).parents[2]
MATRIX = ROOT / "experiments" / "acks-matrix.yaml"


def cell(name: str = "acks=1,min.insync.replicas=1") -> Case:
    spec = load(MATRIX, backend="model")
    case = next(case for case in cases(spec) if case.id.startswith(name))
    return with_linger(case, linger_for(case.experiment, 50))


def swept(case: Case, seeds: range, mapper: Mapper | None = None) -> SimulationFile:
    return sweep(case, seeds, lambda seed: f"again {seed}", mapper, lambda done, of: None)


def test_processes_find_what_one_process_finds() -> None:
    case = cell()
    alone, together = swept(case, range(60)), swept(case, range(60), in_processes)
    assert alone.model_copy(update={"seconds": 0}) == together.model_copy(update={"seconds": 0})
    lost = alone.spread("lost")
    assert lost is not None and lost.seen == lost.runs == 60
    assert 2500 < lost.mean_low <= lost.mean <= lost.mean_high < 3500


def test_the_command_of_a_seed_repeats_its_run(tmp_path: Path) -> None:
    case = cell()
    swept = next(iter(runs_of(case, [14])))
    # as `ackproof run --backend model --seed 14` does it, with live readers and a timeline
    repeated = run_in_model(reseeded(case, 14), CaseDir(tmp_path), "")
    assert counts_of(repeated, 14) == swept


def test_reseeding_draws_what_the_seed_draws() -> None:
    spec = load(MATRIX, backend="model")
    for seed in (3, 4):
        drawn = [reseeded(case, seed) for case in cases(spec)]
        assert [(case.seed, case.orders) for case in drawn] == [
            (case.seed, case.orders) for case in cases(spec, seed=seed)
        ]


def test_intervals_are_those_of_the_books() -> None:
    # Newcombe 1998, table I: 81 of 263 and 0 of 20
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert bootstrap([5.0, 5.0]) == (5.0, 5.0)
    low, high = bootstrap([0.0] * 50 + [1.0] * 50)
    assert 0.38 < low < 0.45 < 0.55 < high < 0.62  # 0.5 ± 1.96 × 0.05


def fault(number: int) -> FaultSpec:
    return Pause(number=number, trigger=TimeTrigger(float(number)), target=Role.parse("broker(1)"), hold=1.0)


@pytest.mark.parametrize("needed", [{3}, {1, 8}, {2, 5, 7}, set(range(1, 9))])
def test_a_schedule_is_shrunk_to_what_it_takes(needed: set[int]) -> None:
    kept = fewest([fault(n) for n in range(1, 9)], lambda some: needed <= {one.number for one in some})
    assert {one.number for one in kept} == needed


def test_a_fault_that_adds_nothing_is_left_out(tmp_path: Path) -> None:
    text = MATRIX.read_text().replace(
        "expect:", "  - pause_client: {client: reader}\n    at: 300ms\n    for: 200ms\nexpect:"
    )
    path = tmp_path / "more.yaml"
    path.write_text(text)
    case = next(c for c in cases(load(path, backend="model")) if c.id.startswith("acks=1,"))
    shrunk = shrink(with_linger(case, 0.2), 0, "lost")
    assert shrunk is not None and shrunk.value > 0
    assert len(shrunk.faults) < shrunk.before == 3
    assert not any("pause_client" in one for one in shrunk.faults)


def test_the_command_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", str(MATRIX), "--seeds", "5", "--json", "--out", str(tmp_path), "--batches", "50"]
    assert main_code([*words, "--case", "acks=1,min.insync.replicas=1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cases"][0]["runs"] == 5
    assert list(tmp_path.glob("*/simulation.json"))
    # acks=all cannot lose, so that demanding a loss is met by no seed
    never = tmp_path / "never.yaml"
    never.write_text(
        MATRIX.read_text().replace("{given: {acks: all}, lost: 0}", '{given: {acks: all}, lost: "> 0"}')
    )
    assert main_code(["simulate", str(never), *words[2:], "--case", "acks=all,min.insync.replicas=2"]) == 2
    over = tmp_path / "over.yaml"
    over.write_text(
        MATRIX.read_text().replace('{given: {acks: 1}, lost: "> 0"}', "{given: {acks: 1}, lost: 0}")
    )
    assert main_code(["simulate", str(over), *words[2:], "--case", "acks=1,min.insync.replicas=1"]) == 1


def test_an_interrupt_ends_it_at_once_with_one_line() -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from ackproof.cli.main import entry; entry()",
            "simulate",
            str(MATRIX),
            "--seeds",
            "100000",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        process.wait(4)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 255
    assert len(err.strip().splitlines()) == 1 and "interrupted" in err
    assert all(line.startswith("…") for line in out.splitlines())
