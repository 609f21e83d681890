"""Leases of address blocks, so that several clusters, of several harnesses, live on one machine.

A block 127.C.0.0/16 is held by a lock (flock) on the file `<state>/leases/C.lock`. The lock belongs to the open
file, whose descriptor every JVM of the cluster inherits: the kernel frees it when the harness *and* all its JVMs
are gone, whatever killed them. Lock files are never deleted, for a deleted file could be locked twice.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from ackproof.base.errors import BadInput
from ackproof.cluster.addresses import LARGEST_NODE, Address, Addresses
from ackproof.rundir.registry import state_directory

BLOCKS: Final = range(1, 255)
"""127.0.x.y is left to the machine itself."""
_BASE_PORTS: Final = (29092, 27092, 25092, 23092, 21092)
"""First ports to try: a stranger who listens at one port of *all* addresses takes that port from every block."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Lease(AbstractContextManager["Lease"]):
    """A block of addresses, held until `release` or the death of all who inherited `descriptor`."""

    def __init__(self, addresses: Addresses, descriptor: int, name: socket.socket | None = None) -> None:
        self.addresses = addresses
        self._descriptor: int | None = descriptor
        self._name = name

    @property
    def descriptor(self) -> int:
        """The lock's file descriptor, to be passed on to every process that uses the addresses."""
        if self._descriptor is None:
            raise BadInput("the lease of this cluster's addresses was given back")
        return self._descriptor

    def release(self) -> None:
        """Give the block back, as far as this process is concerned."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._name is not None:
            self._name.close()
            self._name = None

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire(node_ids: Iterable[int], *, holder: str, state: Path | None = None) -> Lease:
    """Lease a block whose addresses for these nodes nobody uses. `holder` is written into the lock file.

    The block that has been unused for longest comes first, so that a late client of a cluster that is gone does
    not find a new one at its address. Raises `BadInput` when no block is free, or when the loopback interface is down.
    """
    nodes = tuple(node_ids)
    if unfit := [node for node in nodes if not 1 <= node <= LARGEST_NODE]:
        raise BadInput(f"node ids must be from 1 to {LARGEST_NODE}, not {', '.join(map(str, unfit))}")
    _require_loopback()
    folder = (state or state_directory()) / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    for block in sorted(BLOCKS, key=lambda block: _last_used(folder, block)):
        descriptor = os.open(_lock_file(folder, block), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        name = _claim(block)
        addresses = _lock(descriptor, block, nodes) if name is not None else None
        if addresses is not None:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{holder}\n".encode(), 0)
            return Lease(addresses, descriptor, name)
        os.close(descriptor)
        if name is not None:
            name.close()
    raise BadInput(
        f"no block of loopback addresses is free: each of 127.1.0.0/16 … 127.254.0.0/16 is leased in {folder} "
        "or its ports are in use; `ackproof clean` ends what dead runs left behind"
    )


def held(state: Path | None = None) -> dict[int, str]:
    """The blocks that are leased now, and by whom. For `clean` and tests."""
    folder = (state or state_directory()) / "leases"
    found: dict[int, str] = {}
    for block in BLOCKS:
        file = _lock_file(folder, block)
        if not file.exists():
            continue
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found[block] = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
        finally:
            os.close(descriptor)
    return found


def _lock_file(folder: Path, block: int) -> Path:
    return folder / f"{block}.lock"


def _last_used(folder: Path, block: int) -> float:
    try:
        return _lock_file(folder, block).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _claim(block: int) -> socket.socket | None:
    """The block's name in this network namespace, if no living harness has it. Freed by the kernel with its socket."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0ackproof/lease/{block}")
    except OSError as error:
        name.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return name


def _lock(descriptor: int, block: int, nodes: tuple[int, ...]) -> Addresses | None:
    """The addresses, if the lock could be had and nobody listens there."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    for base_port in _base_ports():
        addresses = Addresses(block, base_port)
        if all(is_free(address) for address in addresses.listening(nodes)):
            return addresses
    return None


def _base_ports() -> list[int]:
    """Ports that the kernel will not give to an outgoing connection by chance."""
    try:
        lowest = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = 32768
    return [port for port in _BASE_PORTS if port + 3 < lowest] or list(_BASE_PORTS)


def _require_loopback() -> None:
    """Where it is down one can listen, and nobody is reached: nodes would die a minute later, of something else."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("127.1.0.1", 9))  # a datagram socket that connects only looks for a route
        except OSError as error:
            raise BadInput(
                f"the loopback interface cannot be used ({error.strerror}); as root: ip link set lo up"
            ) from error


def is_free(address: Address) -> bool:
    """Whether one could listen there now. Connections of the past (TIME_WAIT) do not matter."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
                return False
            raise
    return True
