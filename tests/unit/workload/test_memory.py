"""What a client has freed is given back to the kernel, though something among it is still in use.

In a process of its own: one that has run other tests may take the blocks from what its allocator holds free already,
and would then neither grow by them nor shrink as they are given back.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

BURST_MIB = 64 * 1000 * 1000 / 2**20

FREED_BETWEEN_WHAT_IS_KEPT = """
import ctypes, re, sys
from pathlib import Path
from ackproof.workload.memory import FreeMemory

BLOCK, BLOCKS, KEPT_EVERY = 1000, 64_000, 64

def held_mib():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
free = FreeMemory(every_s=float(sys.argv[1]))
before = held_mib()
blocks = [libc.malloc(BLOCK) for _ in range(BLOCKS)]
for block in blocks:
    ctypes.memset(block, 1, BLOCK)
for number, block in enumerate(blocks):
    if number % KEPT_EVERY:
        libc.free(block)
burst = held_mib()
free.give_back()
print(burst - before, burst - held_mib())
"""
"""As a burst of records leaves a client: prints what the burst took, and what was given back of it (MiB)."""


@pytest.mark.parametrize(
    ("every_s", "given_back"), [(0, True), (60, False)], ids=["at once", "not again so soon"]
)
def test_it_goes_back_while_what_lies_between_stays(every_s: float, given_back: bool) -> None:
    told = subprocess.run(
        [sys.executable, "-c", FREED_BETWEEN_WHAT_IS_KEPT, str(every_s)],
        capture_output=True,
        text=True,
        check=True,
    )
    took, back = map(float, told.stdout.split())
    assert took > BURST_MIB / 2, "the allocator gave it back by itself"
    assert (back > BURST_MIB / 2) == given_back, back
