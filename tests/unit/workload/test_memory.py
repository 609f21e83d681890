"""What a client has freed is given back to the kernel, though something among it is still in use."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackproof.workload.memory import FreeMemory

BLOCK, BLOCKS, KEPT_EVERY = 1000, 64_000, 64


def held_mib() -> float:
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


@pytest.fixture
def freed_between_what_is_kept() -> Iterator[float]:
    """As a burst of records leaves it; what they took, in MiB."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before = held_mib()
    blocks = [libc.malloc(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    kept = blocks[::KEPT_EVERY]
    for block in set(blocks).difference(kept):
        libc.free(block)
    yield held_mib() - before
    for block in kept:
        libc.free(block)


def test_it_goes_back_while_what_lies_between_stays(freed_between_what_is_kept: float) -> None:
    held = held_mib()
    assert freed_between_what_is_kept > BLOCK * BLOCKS / 2**20 / 2, "the allocator gave it back by itself"
    FreeMemory(every_s=0).give_back()
    assert held - held_mib() > BLOCK * BLOCKS / 2**20 / 2


def test_not_again_at_once(freed_between_what_is_kept: float) -> None:
    free = FreeMemory(every_s=60)
    held = held_mib()
    free.give_back()
    assert held - held_mib() < freed_between_what_is_kept / 2
