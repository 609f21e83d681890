"""Tests of random faults in virtual time, whose runs are replayed. Simulation and replay share only the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackproof.plan import load
from ackproof.plan.cases import cases
from ackproof.rundir.layout import CaseDir
from ackproof_model.replay.metadata import conform
from simulated_run import simulated

STORM = """\
name: storms
cluster: {{{cluster}}}
topics:
  t: {{partitions: 2, config: {{min.insync.replicas: {insync}, unclean.leader.election.enable: {unclean}}}}}
workload:
  producers: {{count: 2, acks: {acks}, rate: 600/s}}
  duration: 14s
faults:
  - storm:
      count: 8
      menu:
        pause: 2
        kill: {{weight: 2, lasting: 1s..4s}}
        slow_disk: {{weight: 3, stall: 4s}}
        stop: 1
        power_loss: 1
        {own}: 1
      roles: [leader(t/0), follower(t/1), broker, controller]
      gap: 0.3s..2s
      lasting: 0.5s..4s
    at: 2s
"""
WORLDS = {
    "kraft": ('kafka: "4.3.1", controllers: 3', "remove_controller"),
    "combined": ('kafka: "4.3.1", controllers: 3, combined: true', "restart"),
    "zookeeper": ('kafka: "3.9.2", mode: zookeeper', "expire_session"),
}
CAREFUL = {"acks": "all", "insync": 2, "unclean": "false"}
CARELESS = {"acks": 1, "insync": 1, "unclean": "true"}


@pytest.mark.parametrize(
    "settings", [pytest.param(CAREFUL, id="careful"), pytest.param(CARELESS, id="careless")]
)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(3)), pytest.param(range(3, 100), marks=pytest.mark.nightly)],
    ids=["some", "many"],
)
def test_whatever_happens_is_allowed_and_explains_what_is_lost(
    tmp_path: Path, settings: dict[str, object], world: str, seeds: range
) -> None:
    cluster, own = WORLDS[world]
    path = tmp_path / "storms.yaml"
    path.write_text(STORM.format(cluster=cluster, own=own, **settings), encoding="utf-8")
    experiment = load(path, backend="model")
    lost = 0
    for seed in seeds:
        (case,) = cases(experiment, seed=seed)
        folder = tmp_path / str(seed)
        told = conform(CaseDir(folder), simulated(case, folder, seed=seed, batches=300).case)
        assert told.forbidden is None, (seed, told.forbidden)
        assert [one for one in told.classes if one.unexplained] == [], seed
        assert told.present == 0, seed
        lost += sum(one.count for one in told.classes)
    assert lost or settings is CAREFUL, "a storm that costs nothing shows nothing"
