"""A disk that stands still again and again while another fault breaks it, on a file system of this machine's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.base.wait import wait_until
from ackproof.cluster.disks.file_systems import DiskError, FileSystem
from ackproof.experiment.fault import Grip
from ackproof.faults.disks.slow_disk import Stutter, timed_fsync
from ackproof.faults.injection import Holds

STALL_S = 0.2


def _stutter(system: FileSystem, holds: Holds) -> Stutter:
    return Stutter({1: system}, STALL_S, holds.acting_on, lambda node: bool(holds.others(node, 7)))


def _until_slow(system: FileSystem) -> None:
    wait_until(
        lambda: timed_fsync(system.at) >= STALL_S / 2, what="a slow write", timeout_s=5, interval_s=0.01
    )


def test_what_another_fault_breaks_and_mounts_anew_is_slow_again(system: FileSystem) -> None:
    holds = Holds()
    stutter = _stutter(system, holds)
    stutter.start()
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
        stutter.end()
    assert stutter.error is None
    assert timed_fsync(system.at) < STALL_S / 2


def test_what_breaks_by_itself_is_said(system: FileSystem) -> None:
    stutter = _stutter(system, Holds())
    system.fail()
    stutter.start()
    try:
        wait_until(lambda: stutter.error, what="it to say so", timeout_s=5)
    finally:
        stutter.end()
    assert "cannot be frozen" in str(stutter.error)


def test_where_nothing_is_mounted_nothing_is_frozen(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="nothing is mounted there"):
        FileSystem(tmp_path / "none.ext4", tmp_path).freeze()
