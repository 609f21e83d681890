"""Tests of nodes' file systems, which root mounts for real: full, failing, frozen, after a power loss, and cleaned up
after a kill -9."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ackproof.base.errors import BadInput
from ackproof.cluster.disks import file_systems as disks
from ackproof.cluster.disks.file_systems import DiskError, FileSystem
from ackproof.cluster.disks.node_disk import OWNER_FILE, mounts_below, orphans
from ackproof.experiment.backends import Need
from ackproof.run.housekeeping import sweep
from ackproof.rundir.registry import RunEntry, state_directory

LOOP_CTL_ADD = 0x4C80
root = pytest.mark.skipif(disks.refusal() is not None, reason=disks.refusal() or "")


def test_a_full_one_takes_nothing_more_until_it_is_freed(system: FileSystem) -> None:
    before = system.free()
    system.fill()
    assert system.free() < 64 << 10 < before
    with pytest.raises(OSError, match="No space left"):
        (system.at / "x").write_bytes(b"1" * (128 << 10))
    (system.at / disks.FILLER).unlink()
    assert system.free() > before // 2


def test_without_power_only_what_was_fsynced_is_left(system: FileSystem) -> None:
    kept, lost = system.at / "kept", system.at / "lost"
    with kept.open("wb") as file:
        file.write(b"1")
        file.flush()
        os.fsync(file.fileno())
    lost.write_bytes(b"1")
    system.lose_power()
    with pytest.raises(OSError):
        (system.at / "y").write_bytes(b"1")
    system.remount()
    assert kept.read_bytes() == b"1"
    # The journal may have been committed in between, and the name with it: never what it held.
    assert not lost.exists() or lost.read_bytes() == b""


def test_a_failing_one_is_mended_by_mounting_it_anew(system: FileSystem) -> None:
    (system.at / "x").write_bytes(b"1")
    system.fail()
    with pytest.raises(OSError):
        (system.at / "y").write_bytes(b"1")
    system.remount()
    (system.at / "y").write_bytes(b"1")
    assert (system.at / "x").read_bytes() == b"1"


def test_it_is_mounted_anew_only_when_nobody_holds_the_broken_one_any_more(system: FileSystem) -> None:
    """A process that starts in its own mount namespace, as every container does, has a copy of the mount."""
    copy = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo there; exec sleep 1"]
    with subprocess.Popen(copy, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "there\n"
        system.fail()
        system.remount()
        (system.at / "y").write_bytes(b"1")


def test_a_frozen_one_is_unmounted_all_the_same(system: FileSystem) -> None:
    system.freeze()
    with pytest.raises(DiskError, match="frozen"):
        system.freeze()
    system.unmount()
    assert not system.mounted


@pytest.fixture
def says_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that makes `mount` report loop device `number` as busy, as if the kernel counted it as frozen.
    Once the device is gone from the kernel, `mount` works."""
    real, tools = shutil.which("mount"), tmp_path / "tools"
    tools.mkdir()
    tool = tools / "mount"

    def of(number: int) -> None:
        tool.write_text(
            f'#!/bin/sh\n[ -e /sys/block/loop{number} ] || exec {real} "$@"\n'
            f"echo mount: here: /dev/loop{number} already mounted or mount point busy. >&2\nexit 32\n",
            encoding="ascii",
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    return of


def test_a_loop_device_that_was_left_frozen_is_taken_out_of_the_kernel(
    system: FileSystem, says_busy: Callable[[int], None]
) -> None:
    system.unmount()
    with Path("/dev/loop-control").open("rb") as control:
        number = fcntl.ioctl(control, LOOP_CTL_ADD, 900 + os.getpid() % 90)
    says_busy(number)
    system.mount()
    assert system.mounted
    assert not Path(f"/sys/block/loop{number}").exists()


def test_one_that_is_in_use_stays(system: FileSystem, says_busy: Callable[[int], None]) -> None:
    (number,) = (
        int(backing.parts[3].removeprefix("loop"))
        for backing in Path("/sys/block").glob("loop*/loop/backing_file")
        if backing.read_text(encoding="utf-8").rstrip() == str(system.image)
    )
    says_busy(number)
    with pytest.raises(DiskError, match=f"loop{number} already mounted"):
        system.mount()
    assert system.mounted
    system.sync()


def test_whoever_needs_what_cannot_be_had_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disks, "refusal", lambda: "only root can mount file systems")
    with pytest.raises(BadInput, match="only root can mount"):
        disks.require(frozenset({Need.DISKS}))
    disks.require(frozenset({Need.DISKS_WHERE_ROOT}))
    assert not disks.to_be_made(frozenset({Need.DISKS_WHERE_ROOT}))


MAKER = """
import sys, time
from pathlib import Path
from ackproof.cluster.disks.file_systems import SMALLEST, FileSystem
from ackproof.cluster.disks.node_disk import NodeDisk
data = Path(sys.argv[1])
disk = NodeDisk(data, (data,), data, lambda: None, (FileSystem(data.parent / "data.ext4", data),))
disk.make(SMALLEST, "test-run")
(data / "x").write_bytes(b"1")
disk.file_systems[0].freeze()
print("made", flush=True)
time.sleep(60)
"""


def killed_owner(data: Path) -> subprocess.Popen[str]:
    """Return the ended process that made a file system on `data`, froze it, and was killed."""
    owner = subprocess.Popen([sys.executable, "-c", MAKER, str(data)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "made\n"
    assert data.parent not in list(orphans()), "its owner lives"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    return owner


@root
def test_what_a_killed_owner_left_mounted_is_swept(tmp_path: Path) -> None:
    data = tmp_path / "case" / "nodes" / "1" / "data"
    killed_owner(data)
    assert mounts_below(tmp_path) == [data]
    swept = sweep()
    assert str(data) in swept.mounts
    assert not mounts_below(tmp_path)
    assert not (data.parent / "data.ext4").exists()
    assert not (data.parent / OWNER_FILE).exists()
    assert data.parent not in list(orphans())


@root
def test_a_sweep_goes_on_when_one_run_is_held_and_says_why(tmp_path: Path) -> None:
    held, other = tmp_path / "held", tmp_path / "other"
    data = held / "nodes" / "1" / "data"
    owner = killed_owner(data)
    (other / "nodes" / "1" / "data").mkdir(parents=True)
    for name, case in (("run-1", held), ("run-2", other)):
        entry = RunEntry(run_id=name, case_dir=str(case), owner_pid=owner.pid, owner_started=1)
        entry.save(state_directory() / "runs" / f"{name}.json")
    with subprocess.Popen(["sleep", "60"], cwd=data) as holder:
        try:
            swept = sweep()
        finally:
            holder.kill()
    (why,) = [line for line in swept.failed if line.startswith(f"{data}:")]
    assert "busy" in why
    assert str(other / "nodes" / "1" / "data") in swept.data
    assert str(data) not in swept.data
    again = sweep()
    assert str(data) in again.mounts
    assert str(data) in again.data
    assert not [line for line in again.failed if str(tmp_path) in line]
