"""Tests of scripts on real brokers: each step is confirmed; other changes, and a gate that does not hold, are
noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripted import CATALOGUE, LIES, Lie, found_out, last, played

pytestmark = pytest.mark.cluster


def test_a_tail_that_nobody_fetched_is_lost(tmp_path: Path) -> None:
    steps, failed = played(CATALOGUE / "script-acks-1-tail.yaml", tmp_path)
    assert (failed, len(steps), [step.wrong for step in steps if step.wrong]) == ("", 6, [])
    seen = last(steps)
    assert (seen.leader, seen.epoch, seen.acked, seen.down) == (2, 1, 3, (1,))
    assert seen.ends == {1: 3, 2: 1, 3: 1}
    assert seen.high_watermarks == {2: 0, 3: 0}, "a follower tells its own, too"


@pytest.mark.nightly  # its shorter kin is above
def test_a_leader_that_slept_through_an_epoch_loses_what_it_acknowledges(tmp_path: Path) -> None:
    """The bug of Kafka is described in docs/found.md; the test fails when a release fixes it."""
    steps, failed = played(CATALOGUE / "slept-through-epoch.yaml", tmp_path)
    assert failed == ""
    seen = last(steps)
    assert (seen.leader, seen.epoch, seen.acked, seen.ends[3]) == (3, 3, 3, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.call)
def test_duds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lie: Lie) -> None:
    found_out(lie, monkeypatch, tmp_path)
