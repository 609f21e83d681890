"""Tests of upgrades under load: every node goes down and comes back with another release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.cluster.admin import features
from ackproof.cluster.install import Installation
from ackproof.experiment.kafka import ELR, METADATA, features_of
from faultbench import Bench, duds_on, no_bite
from faultbench.duds import Dud

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

TOPICS: dict[str, object] = {"t": {"config": {"min.insync.replicas": 1}}}


@pytest.mark.parametrize(
    ("old", "new"), [("3.9.2", "4.0.2"), ("3.9.2", "4.4.0"), ("4.3.1", "4.4.0"), ("4.3.0", "4.3.1")]
)
def test_an_upgrade(installs: Callable[[str], Installation], tmp_path: Path, old: str, new: str) -> None:
    installs(new)
    with Bench(tmp_path, installed=installs(old), kafka=old, controllers=3, topics=TOPICS) as bench:
        before = features(bench.cluster.running_links()[1]).finalised
        assert before[METADATA] == features_of(old)[METADATA][1]
        bite = bench.bite(f"upgrade: {{to: '{new}'}}", name=f"upgrade from {old} to {new}")
        assert bite.good, bite
        after = features(bench.cluster.running_links()[2])
        assert after.finalised[METADATA] == features_of(new)[METADATA][1]
        assert after.finalised.get(ELR, 0) == (0 if new.startswith("4.0") else 1)
        assert f"started as Kafka {new}" in bite.recovery


@pytest.mark.parametrize("dud", duds_on("an older release"))
def test_a_dud_does_not_pass_for_an_upgrade(
    installs: Callable[[str], Installation], tmp_path: Path, dud: Dud
) -> None:
    with Bench(tmp_path, installed=installs("4.3.1"), kafka="4.3.1", topics=TOPICS) as bench:
        no_bite(bench, dud)
