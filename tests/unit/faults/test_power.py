"""A file system of a node loses its power, or is filled, for real (root)."""

from __future__ import annotations

import os

import pytest

from ackproof.base.errors import FaultNotConfirmed
from ackproof.cluster.disks.file_systems import FileSystem
from ackproof.faults.disks.power_loss import CANARY, Canary


def test_a_canary_does_not_live_through_a_power_loss(system: FileSystem) -> None:
    canary = Canary.sit("broker-1", system)
    assert canary.lives()
    system.lose_power()
    system.remount()
    assert not canary.lives()


def test_nor_when_the_journal_was_committed_in_between(system: FileSystem) -> None:
    """An fsync that was under way when the node was stopped does that: only the name is on the disk then."""
    with (system.at / "another").open("wb") as another:
        canary = Canary.sit("broker-1", system)
        another.write(b"1")
        another.flush()
        os.fsync(another.fileno())
    system.lose_power()
    system.remount()
    assert (system.at / CANARY).exists()
    assert not canary.lives()


def test_a_mere_kill_is_no_power_loss(system: FileSystem) -> None:
    """What was written is written out by an orderly unmount: the canary says so."""
    canary = Canary.sit("broker-1", system)
    system.remount()
    assert canary.lives()


def test_on_a_full_disk_nobody_could_see_it(system: FileSystem) -> None:
    system.fill()
    with pytest.raises(FaultNotConfirmed, match=r"takes no file .*: No space left on device"):
        Canary.sit("broker-1", system)


def test_what_was_filled_is_freed_although_another_fault_has_shut_it_down(system: FileSystem) -> None:
    free = system.free()
    system.fill()
    assert system.free() < free // 100
    system.sync()
    system.fail()
    system.unfill()
    assert system.free() > free * 0.9
