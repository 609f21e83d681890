"""Tests that every case of the catalogue that the model accepts ends in virtual time and meets its expectations."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.experiment.case import Case
from ackproof.experiment.problems import InvalidExperiment
from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof_simulator.counts import counts_of
from ackproof_simulator.run import Simulation, setting_of
from ackproof_simulator.sweep import linger_for, with_linger
from simulated_run import NOT_SIMULATED, OF_REQUESTS, SIMULATED

COUNTED = ("lost", "duplicate", "surfaced")


def test_all_of_the_catalogue_can_be_simulated_or_is_refused_with_the_reason() -> None:
    refused = {}
    for file in NOT_SIMULATED:
        with pytest.raises(InvalidExperiment) as said:
            load(file, backend="model")
        refused[file.stem] = str(said.value).partition("on the backend model, because ")[2]
    assert refused.pop("pairs").startswith("its faults do not wait for one another")
    assert refused.pop("reader-returns").startswith("it has no groups")
    assert refused.keys() == OF_REQUESTS
    assert all(why.startswith("the model has no proxy between") for why in refused.values())


def broken(case: Case) -> list[str]:
    """Simulate a case; return a sentence for each problem of the run."""
    coarse = with_linger(case, linger_for(case.experiment, 100))
    simulation = Simulation(setting_of(coarse), coarse)
    simulation.run()
    counts = counts_of(simulation, 0)
    said = list(simulation.reasons)
    for expect in case.experiment.expect:
        for name, bound in expect.bounds.items():
            if name in COUNTED:
                seen = getattr(counts, name)
                if seen < bound.lowest or (bound.highest is not None and seen > bound.highest):
                    said.append(f"expected {name} {bound}, simulated {seen}")
    if not counts.complete or not counts.acked:
        said.append("no complete run")
    if case.experiment.workload.producers.idempotence and counts.duplicate:
        said.append(f"an idempotent producer left {counts.duplicate} duplicates")
    return said


@pytest.mark.parametrize("file", SIMULATED, ids=lambda file: file.stem)
def test_a_simulated_case_shows_what_is_expected(file: Path) -> None:
    wrong = {case.id: said for case in cases(load(file, backend="model"), repeat=1) if (said := broken(case))}
    assert not wrong
