"""File systems for nodes: an ext4 in a file of the node's folder, mounted through a loop device.

Such a disk can be full, fail with I/O errors, or lose power. For a loss of power, the file system is shut down without
a flush of its journal (`EXT4_IOC_SHUTDOWN`), so that the next mount has only what was fsynced. Only root can mount. A
mount and its loop device are found again from the node's folder (`node_disk.orphans`), where their owner is written
before they are made.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackproof.base.errors import AckproofError, BadInput, WaitTimeout
from ackproof.base.wait import wait_until
from ackproof.experiment.backends import Need

IMAGE_SUFFIX: Final = ".ext4"
FILLER: Final = ".ackproof-filler"
SMALLEST: Final = 32 << 20
_SHUTDOWN: Final = 0x8004587D
"""Request number of the ioctl EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32): no access works any more."""
_AFTER_SYNC: Final = 0
_WITHOUT_LOG_FLUSH: Final = 2
_FREEZE: Final = 0xC0045877
"""Request number of the ioctl FIFREEZE, _IOWR('X', 119, int): writes block."""
_THAW: Final = 0xC0045878
"""Request number of the ioctl FITHAW, which ends FIFREEZE."""
_GET_FLAGS: Final = 0x80086601
"""Request number of the ioctl FS_IOC_GETFLAGS, which reads a folder's flags."""
_SET_FLAGS: Final = 0x40086602
"""Request number of the ioctl FS_IOC_SETFLAGS, which sets a folder's flags."""
_IMMUTABLE: Final = 0x10
_LOOP_CTL_REMOVE: Final = 0x4C81
_BUSY_LOOP: Final = re.compile(r"/dev/loop(\d+) already mounted")
_UNMOUNT_WITHIN_S: Final = 10.0
_SYS_ADMIN: Final = 1 << 21
_STEP: Final = 4096


class DiskError(AckproofError):
    """An operation on a file system failed, such as a mount or a freeze. The text has the reason."""


@dataclass(frozen=True)
class FileSystem:
    """An ext4 file system in the file `image`, mounted at `at` through a loop device (root only).

    Methods raise `DiskError` if a tool or an ioctl fails, OSError if a file cannot be opened.
    """

    image: Path
    at: Path

    def make(self, size: int) -> None:
        """Make a file system of `size` bytes in a sparse file, and mount it."""
        self.at.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as image:
            image.truncate(size)
        # Delay all writes that mkfs can delay. Reserve no blocks for root, because root runs the nodes.
        options = ["-q", "-F", "-t", "ext4", "-m", "0", "-J", "size=8"]
        lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
        _call(["mke2fs", *options, "-E", lazy, str(self.image)])
        self.mount()
        # Remove lost+found: Kafka takes every folder of a log dir for a partition.
        (self.at / "lost+found").rmdir()
        self.sync()

    def mount(self) -> None:
        """Mount the file system; its journal is replayed, as after a power loss. Its loop device is released at
        unmount."""
        try:
            _call(["mount", "-t", "ext4", "-o", "loop,noatime", str(self.image), str(self.at)])
        except DiskError as error:
            device = _BUSY_LOOP.search(str(error))
            if device is None or not _forget_loop(int(device[1])):
                raise
            self.mount()  # mount through another loop device: the broken one is removed

    @property
    def mounted(self) -> bool:
        return os.path.ismount(self.at)

    def unmount(self) -> None:
        """Thaw the file system, and unmount it; wait at most `_UNMOUNT_WITHIN_S` until no process uses it. Does nothing
        if it is not mounted."""
        thaw(self.at)
        said = ""

        def unmounted() -> bool:
            nonlocal said
            if not self.mounted:
                return True
            result = subprocess.run(["umount", str(self.at)], capture_output=True, text=True, check=False)
            said = result.stderr.strip()
            return result.returncode == 0

        try:
            wait_until(
                unmounted, what=f"{self.at} to be unmounted", timeout_s=_UNMOUNT_WITHIN_S, interval_s=0.02
            )
        except WaitTimeout as error:
            raise DiskError(f"{error}: {said}") from error

    def remount(self) -> None:
        """Unmount, wait until the loop device is free (at most `_UNMOUNT_WITHIN_S`), and mount again. Afterwards the
        file system has only what had reached the disk.

        A process that starts in its own namespaces (a container) has a copy of all mounts for a moment, which keeps the
        loop device in use. A mount in that moment would show the same broken file system.
        """
        self.unmount()
        image = str(self.image.resolve())

        def is_free() -> bool:
            for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
                with contextlib.suppress(OSError):  # it has just been let go
                    if backing.read_text(encoding="utf-8").rstrip("\n") == image:
                        return False
            return True

        try:
            wait_until(
                is_free,
                what=f"the loop device of {self.image} to be free",
                timeout_s=_UNMOUNT_WITHIN_S,
                interval_s=0.01,
            )
        except WaitTimeout as error:
            raise DiskError(str(error)) from error
        self.mount()

    def sync(self) -> None:
        """Write all cached data of this file system to the disk (`sync -f`)."""
        _call(["sync", "-f", str(self.at)])

    def lose_power(self) -> None:
        """Make every access fail until the next mount, after which data that was not fsynced is gone."""
        _control(self.at, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH), to="be shut down")

    def fail(self) -> None:
        """Flush, then make every access fail with an I/O error until the next mount."""
        _control(self.at, _SHUTDOWN, struct.pack("I", _AFTER_SYNC), to="be shut down")

    def freeze(self) -> None:
        """Block every write and fsync until `thaw`; blocked processes cannot be killed. Raises `DiskError` also if the
        file system is not mounted."""
        if not self.mounted:  # or the file system below would be
            raise DiskError(f"{self.at} cannot be frozen: nothing is mounted there")
        _control(self.at, _FREEZE, bytes(4), to="be frozen")

    def free(self) -> int:
        """Return the bytes that a program may still allocate (statvfs)."""
        seen = os.statvfs(self.at)
        return seen.f_bavail * seen.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Fill the file system with one file until about `leave` bytes are free, or nothing more fits."""
        filler = os.open(self.at / FILLER, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            end = os.fstat(filler).st_size
            step = self.free() - leave
            while step >= _STEP:
                step = min(step, max(_STEP, self.free() - leave))
                try:
                    os.posix_fallocate(filler, end, step)
                    end += step
                    step = self.free() - leave
                except OSError:
                    # Blocks of the file system's own bookkeeping are needed too.
                    step //= 2
        finally:
            os.close(filler)

    def unfill(self) -> bool:
        """Remove the file that `fill` made; return False if there is no such file. If a fault has shut the file system
        down, it is mounted again first."""
        filler = self.at / FILLER
        try:
            filler.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise DiskError(f"{filler} cannot be removed: {error.strerror}") from error
            self.remount()
            filler.unlink(missing_ok=True)
        return True


def thaw(at: Path) -> bool:
    """Thaw the file system of the folder `at`, its mount point. Return True if it was frozen and is thawed, False if it
    was not frozen or cannot be thawed.
    """
    try:
        _control(at, _THAW, bytes(4), to="be thawed")
    except DiskError:
        return False  # EINVAL: it is not frozen
    return True


def _forget_loop(number: int) -> bool:
    """Remove an unused loop device from the kernel, which makes new ones as needed. Return True if it was removed.

    A thaw during a file system's shutdown leaves the block device frozen for good: each mount fails ("already mounted",
    in the kernel's log "blockdev is frozen") until the device is removed. The kernel refuses to remove a device that is
    in use.
    """
    try:
        with Path("/dev/loop-control").open("rb") as control:
            fcntl.ioctl(control, _LOOP_CTL_REMOVE, number)
    except OSError:
        return False
    return True


def set_immutable(folder: Path, on: bool) -> None:
    """Set (`on` True) or clear the immutable flag of a folder (`chattr`); while it is set, no file can be made in it.
    Needs root. Raises `DiskError` if the file system or the user's rights do not allow it."""
    to = f"be made {'im' if on else ''}mutable"
    (flags,) = struct.unpack("l", _control(folder, _GET_FLAGS, bytes(8), to=to))
    wanted = flags | _IMMUTABLE if on else flags & ~_IMMUTABLE
    if wanted != flags:
        _control(folder, _SET_FLAGS, struct.pack("l", wanted), to=to)


def make_writable(folder: Path) -> None:
    """Clear the immutable flag of a folder and of all folders below it, and let their owner write into them, as far as
    this user may."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(DiskError):
            set_immutable(Path(path), False)
        with contextlib.suppress(OSError):
            Path(path).chmod(stat.S_IMODE(Path(path).stat().st_mode) | stat.S_IWUSR)


@functools.cache
def refusal() -> str | None:
    """Return why this machine cannot mount file systems for nodes, None if it can. The first call mounts one as a
    trial; its result is kept."""
    if os.geteuid() != 0:
        return "only root can mount file systems"
    capabilities = Path("/proc/self/status").read_text(encoding="ascii").partition("CapEff:\t")[2].split()[0]
    if not int(capabilities, 16) & _SYS_ADMIN:
        return "mounting needs the capability CAP_SYS_ADMIN, which this root lacks"
    for tool, package in (("mke2fs", "e2fsprogs"), ("mount", "mount"), ("umount", "mount")):
        if shutil.which(tool) is None:
            return f"{tool} is missing (apt-get install {package})"
    with tempfile.TemporaryDirectory(prefix="ackproof-disk-") as folder:
        trial = FileSystem(Path(folder) / f"trial{IMAGE_SUFFIX}", Path(folder) / "mount")
        try:
            trial.make(SMALLEST)
        except DiskError as error:
            return str(error)
        finally:
            trial.unmount()
    return None


def require(needs: Set[Need]) -> None:
    """Raise `BadInput` if these needs (preparations that faults require) include `Need.DISKS`, and this machine cannot
    mount file systems for nodes."""
    why = refusal() if Need.DISKS in needs else None
    if why is not None:
        raise BadInput(f"a fault needs file systems of their own for the nodes: {why}")


def to_be_made(needs: Set[Need]) -> bool:
    """Return True if each node gets a file system of its own. With `Need.DISKS` in `needs` (preparations that faults
    require), it always does. With only `Need.DISKS_WHERE_ROOT`, it does if this machine can mount file systems."""
    return Need.DISKS in needs or (Need.DISKS_WHERE_ROOT in needs and refusal() is None)


def _control(folder: Path, request: int, argument: bytes, *, to: str) -> bytes:
    """Call the ioctl `request` on a folder or its file system, and return the changed `argument`. `to`: its purpose,
    for the message of the `DiskError`, which is raised if the system refuses it."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return fcntl.ioctl(opened, request, argument)
        finally:
            os.close(opened)
    except OSError as error:
        raise DiskError(f"{folder} cannot {to}: {error.strerror}") from error


def _call(command: Sequence[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60.0)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiskError(f"{' '.join(command)}: {error}") from error
    if result.returncode != 0:
        said = " ".join((result.stderr or result.stdout).split())
        raise DiskError(f"{' '.join(command)} failed ({result.returncode}): {said[:400]}")
