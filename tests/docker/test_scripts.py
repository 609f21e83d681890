"""Tests of scripted steps in containers: requests are held and let through as written, and each planted lie fails the
script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ackproof.cluster.containers.engine import Engine
from faultbench.spoilt import nothing
from scripted import CATALOGUE, LIES, Lie, found_out, last, played, written

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="links of containers are laid by root"),
]
# Nobody dies, and no session ends: what is held is let through.
QUICK = (
    "{send: 0, then: {acked: 1, ends: {1: 1, 2: 0, 3: 0}}}",
    "{fetch: 2, then: {ends: {1: 1, 2: 1, 3: 0}}}",
    "{lead: 2, then: {leader: 2, epoch: 1, believed: {1: 0, 2: 0}}}",
    "{learn: 2, then: {believed: {1: 0, 2: 1, 3: 0}}}",
)
UNLED = Lie(
    "network.requests.links.NamespaceRequestLinks.renew",
    nothing,
    0,
    "the fetches of broker 2 to be held",
)
"""Lie: the connections of containers are not redirected to the proxy."""


@pytest.mark.nightly  # tests/cluster/test_scripts.py has a script with every push
def test_what_is_held_is_let_through_one_by_one(engine: Engine, tmp_path: Path) -> None:
    file = written(tmp_path / "quick.yaml", *QUICK)
    steps, failed = played(file, tmp_path / "run", "docker")
    assert (failed, [step.wrong for step in steps]) == ("", ["", "", "", ""])
    seen = last(steps)
    assert (seen.leader, seen.epoch, seen.ends) == (2, 1, {1: 1, 2: 1, 3: 0})


@pytest.mark.nightly
def test_a_tail_that_nobody_fetched_is_lost(engine: Engine, tmp_path: Path) -> None:
    steps, failed = played(CATALOGUE / "script-acks-1-tail.yaml", tmp_path, "docker")
    assert failed == ""
    seen = last(steps)
    assert (seen.leader, seen.epoch, seen.acked, seen.down) == (2, 1, 3, (1,))
    assert seen.ends == {1: 3, 2: 1, 3: 1}


@pytest.mark.nightly
@pytest.mark.parametrize("lie", [*LIES, UNLED], ids=lambda lie: lie.call)
def test_duds(engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lie: Lie) -> None:
    found_out(lie, monkeypatch, tmp_path, "docker")
