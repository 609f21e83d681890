"""Real file systems of a node (root): they lose power, fill up, or are frozen."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.wait import wait_until
from ackproof.cluster.disks.file_systems import DiskError, FileSystem
from ackproof.experiment.fault import Grip
from ackproof.faults.context import Holds
from ackproof.faults.disks.power_loss import CANARY, Canary
from ackproof.faults.disks.slow_disk import FreezeLoop, timed_fsync


def test_a_canary_does_not_live_through_a_power_loss(system: FileSystem) -> None:
    canary = Canary.write("broker-1", system)
    assert canary.lives()
    system.lose_power()
    system.remount()
    assert not canary.lives()


def test_nor_when_the_journal_was_committed_in_between(system: FileSystem) -> None:
    """An fsync in progress when the node stops commits the journal: only the canary's name is on the disk then."""
    with (system.at / "another").open("wb") as another:
        canary = Canary.write("broker-1", system)
        another.write(b"1")
        another.flush()
        os.fsync(another.fileno())
    system.lose_power()
    system.remount()
    assert (system.at / CANARY).exists()
    assert not canary.lives()


def test_a_mere_kill_is_no_power_loss(system: FileSystem) -> None:
    """An orderly unmount writes everything out, so the canary keeps its content."""
    canary = Canary.write("broker-1", system)
    system.remount()
    assert canary.lives()


def test_on_a_full_disk_nobody_could_see_it(system: FileSystem) -> None:
    system.fill()
    with pytest.raises(FaultNotConfirmed, match=r"takes no file .*: No space left on device"):
        Canary.write("broker-1", system)


def test_what_was_filled_is_freed_although_another_fault_has_shut_it_down(system: FileSystem) -> None:
    free = system.free()
    system.fill()
    assert system.free() < free // 100
    system.sync()
    system.fail()
    system.unfill()
    assert system.free() > free * 0.9


STALL_S = 0.2


def _freeze_loop(system: FileSystem, holds: Holds) -> FreezeLoop:
    return FreezeLoop({1: system}, STALL_S, holds.acting_on, lambda node: bool(holds.others(node, 7)))


def _until_slow(system: FileSystem) -> None:
    wait_until(
        lambda: timed_fsync(system.at) >= STALL_S / 2, what="a slow write", timeout_s=5, interval_s=0.01
    )


def test_what_another_fault_breaks_and_mounts_anew_is_slow_again(system: FileSystem) -> None:
    holds = Holds()
    loop = _freeze_loop(system, holds)
    loop.start()
    try:
        _until_slow(system)
        holds.take(1, 8, Grip.DOWN)
        with holds.acting_on(1):
            system.fail()
        with pytest.raises(FaultNotConfirmed, match="Input/output error"):
            timed_fsync(system.at)
        assert not threading.Event().wait(2 * STALL_S), "it goes on meanwhile"
        with holds.acting_on(1):
            system.remount()
        holds.release(1, 8)
        _until_slow(system)
    finally:
        loop.end()
    assert loop.error is None
    assert timed_fsync(system.at) < STALL_S / 2


def test_what_breaks_by_itself_is_said(system: FileSystem) -> None:
    loop = _freeze_loop(system, Holds())
    system.fail()
    loop.start()
    try:
        wait_until(lambda: loop.error, what="it to say so", timeout_s=5)
    finally:
        loop.end()
    assert "cannot be frozen" in str(loop.error)


def test_where_nothing_is_mounted_nothing_is_frozen(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="nothing is mounted there"):
        FileSystem(tmp_path / "none.ext4", tmp_path).freeze()
