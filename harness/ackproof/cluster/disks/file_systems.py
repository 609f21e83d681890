"""File systems of their own for nodes: an ext4 in a file of the node's folder, mounted through a loop device.

With one a disk can be full, fail with I/O errors, or lose its power for real: the file system is shut down without
a flush of its journal (`EXT4_IOC_SHUTDOWN`), so that nothing that was not fsynced is there after the next mount.
Only root can mount. A mount and its loop device are found again from the node's folder (`disks_sweep`); what says
whose they are is written there before they are made.
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
"""EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)."""
_AFTER_SYNC: Final = 0
_WITHOUT_LOG_FLUSH: Final = 2
_FREEZE: Final = 0xC0045877
"""FIFREEZE, _IOWR('X', 119, int)."""
_THAW: Final = 0xC0045878
"""FITHAW."""
_GET_FLAGS: Final = 0x80086601
"""FS_IOC_GETFLAGS."""
_SET_FLAGS: Final = 0x40086602
"""FS_IOC_SETFLAGS."""
_IMMUTABLE: Final = 0x10
_LOOP_CTL_REMOVE: Final = 0x4C81
_BUSY_LOOP: Final = re.compile(r"/dev/loop(\d+) already mounted")
_UNMOUNT_WITHIN_S: Final = 10.0
_SYS_ADMIN: Final = 1 << 21
_STEP: Final = 4096


class DiskError(AckproofError):
    """A file system could not be made, mounted or unmounted; the text has what the tool said."""


@dataclass(frozen=True)
class FileSystem:
    """One file system: `image` holds it, `at` is where it is mounted. Errors of all methods are `DiskError`."""

    image: Path
    at: Path

    def make(self, size: int) -> None:
        """Make it, `size` bytes large (a sparse file), and mount it."""
        self.at.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as image:
            image.truncate(size)
        # Nothing that can be left for later is written now; no blocks are kept back for root, who runs the nodes.
        options = ["-q", "-F", "-t", "ext4", "-m", "0", "-J", "size=8"]
        lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
        _call(["mke2fs", *options, "-E", lazy, str(self.image)])
        self.mount()
        # Kafka takes every folder of a log dir for a partition.
        (self.at / "lost+found").rmdir()
        self.sync()

    def mount(self) -> None:
        """Mount it; the journal is replayed, as after a power loss. Its loop device goes with the mount."""
        try:
            _call(["mount", "-t", "ext4", "-o", "loop,noatime", str(self.image), str(self.at)])
        except DiskError as error:
            device = _BUSY_LOOP.search(str(error))
            if device is None or not _forget_loop(int(device[1])):
                raise
            self.mount()  # on another, of which there is one fewer to fail

    @property
    def mounted(self) -> bool:
        return os.path.ismount(self.at)

    def unmount(self) -> None:
        """Unmount it, once nobody uses it any more."""
        thaw(self.at)
        said = ""

        def gone() -> bool:
            nonlocal said
            if not self.mounted:
                return True
            result = subprocess.run(["umount", str(self.at)], capture_output=True, text=True, check=False)
            said = result.stderr.strip()
            return result.returncode == 0

        try:
            wait_until(gone, what=f"{self.at} to be unmounted", timeout_s=_UNMOUNT_WITHIN_S, interval_s=0.02)
        except WaitTimeout as error:
            raise DiskError(f"{error}: {said}") from error

    def remount(self) -> None:
        """Unmount if it is mounted, and mount: only what had reached the disk is there afterwards.

        A process that is being started in namespaces of its own (a container) has a copy of all mounts for a moment.
        As long as that holds the loop device the next mount would be of the same file system, broken as it is.
        """
        self.unmount()
        try:
            wait_until(
                lambda: not self._is_held,
                what=f"the loop device of {self.image} to be free",
                timeout_s=_UNMOUNT_WITHIN_S,
                interval_s=0.01,
            )
        except WaitTimeout as error:
            raise DiskError(str(error)) from error
        self.mount()

    @property
    def _is_held(self) -> bool:
        """Whether a loop device still has the image, as the kernel says."""
        image = str(self.image.resolve())
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):  # it has just been let go
                if backing.read_text(encoding="utf-8").rstrip("\n") == image:
                    return True
        return False

    def sync(self) -> None:
        """Write all of it to the disk (`sync -f`)."""
        _call(["sync", "-f", str(self.at)])

    def lose_power(self) -> None:
        """From now on every access fails, and what was not fsynced is lost with the next mount."""
        _control(self.at, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH), to="be shut down")

    def fail(self) -> None:
        """Write out what was written; from then on every access fails with an I/O error, until the next mount."""
        _control(self.at, _SHUTDOWN, struct.pack("I", _AFTER_SYNC), to="be shut down")

    def freeze(self) -> None:
        """Until `thaw` every write to it waits, and so does every fsync; those who wait cannot be killed."""
        if not self.mounted:  # or the file system below would be
            raise DiskError(f"{self.at} cannot be frozen: nothing is mounted there")
        _control(self.at, _FREEZE, bytes(4), to="be frozen")

    def free(self) -> int:
        """Bytes that a program may still take (statvfs)."""
        seen = os.statvfs(self.at)
        return seen.f_bavail * seen.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Allocate blocks to a file of ours until at most `leave` bytes are free."""
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
        """Give back what `fill` took, if it did. One that is shut down, by whom ever, is mounted anew for it."""
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
    """Let a file system be written again; whether it was frozen."""
    try:
        _control(at, _THAW, bytes(4), to="be thawed")
    except DiskError:
        return False  # EINVAL: it is not frozen
    return True


def _forget_loop(number: int) -> bool:
    """Take a loop device that nobody uses out of the kernel, which makes new ones when it needs them; whether it did.

    A thaw between the freeze and the thaw of a file system's shutdown leaves the block device counted as frozen for
    good: each mount of it fails ("already mounted", and in the kernel's log "blockdev is frozen"), and no call ends
    that but its removal. Of a device that is in use the kernel refuses it.
    """
    try:
        with Path("/dev/loop-control").open("rb") as control:
            fcntl.ioctl(control, _LOOP_CTL_REMOVE, number)
    except OSError:
        return False
    return True


def set_immutable(folder: Path, on: bool) -> None:
    """Set or clear the flag of a folder (`chattr +i`; root) by which nothing can be made in it.

    Raises `DiskError` where the file system or the user's rights have no room for it.
    """
    to = f"be made {'im' if on else ''}mutable"
    (flags,) = struct.unpack("l", _control(folder, _GET_FLAGS, bytes(8), to=to))
    wanted = flags | _IMMUTABLE if on else flags & ~_IMMUTABLE
    if wanted != flags:
        _control(folder, _SET_FLAGS, struct.pack("l", wanted), to=to)


def make_writable(folder: Path) -> None:
    """Take back what keeps files from being made in a folder and those below it, as far as we may: flag and mode."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(DiskError):
            set_immutable(Path(path), False)
        with contextlib.suppress(OSError):
            Path(path).chmod(stat.S_IMODE(Path(path).stat().st_mode) | stat.S_IWUSR)


@functools.cache
def refusal() -> str | None:
    """Why nodes cannot have file systems of their own on this machine; None if they can. Tried once, for real."""
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


def found() -> str:
    """What the doctor says of them: a file system was made in a file, mounted and removed, or why it cannot be."""
    why = refusal()
    return (
        "a file system in a file can be mounted (loop device, ext4)"
        if why is None
        else f"not there, and needed only where disks are filled, fail or lose their power: {why}"
    )


def require(needs: Set[Need]) -> None:
    """Raises `BadInput` where nodes must have file systems of their own and cannot."""
    why = refusal() if Need.DISKS in needs else None
    if why is not None:
        raise BadInput(f"a fault needs file systems of their own for the nodes: {why}")


def to_be_made(needs: Set[Need]) -> bool:
    """Whether nodes get file systems of their own."""
    return Need.DISKS in needs or (Need.DISKS_WHERE_ROOT in needs and refusal() is None)


def _control(folder: Path, request: int, argument: bytes, *, to: str) -> bytes:
    """An ioctl of a folder, or of the file system that is mounted there. `to`: what it does, for the `DiskError`."""
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
