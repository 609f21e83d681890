"""Test of a leader's replica that moves to another log dir, observed on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.cluster.install import Installation
from faultbench import Bench

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_replicas_move_and_what_cannot_is_no_bite(
    installs: Callable[[str], Installation], tmp_path: Path
) -> None:
    with Bench(tmp_path, installed=installs("4.4.0"), log_dirs=2) as bench:
        for fault in (
            "move_log_dir: {partition: t/0, target: leader(t/0)}",
            "move_log_dir: {partition: t/0, target: followers(t/0)}",
        ):
            bite = bench.bite(fault)
            assert bite.good, bite
            assert bite.witness.startswith("disk: the folder of t/0 is at broker")
        bench.cluster.node(2).stop()
        dud = bench.bite("move_log_dir: {partition: t/0, target: broker(2)}", record=False, settled=False)
        assert not dud.bit
        assert "nothing to move" in dud.failures[0]
