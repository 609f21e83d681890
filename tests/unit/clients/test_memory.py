"""Tests that `FreeMemory` returns freed memory to the kernel: malloc's, even between blocks that are in use, and
Arrow's.

Each test runs a separate process. A process that has run other tests may take blocks that its allocator already holds,
and would then neither grow nor shrink.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

BURST_MIB = 64 * 1000 * 1000 / 2**20

BURST = """
import ctypes, re, sys
from pathlib import Path
import pyarrow as pa
from ackproof.clients.parts import FreeMemory

def held_mib():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

def records():
    "As they wait in a client, every 64th still in use."
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(1000) for _ in range(64_000)]
    for block in blocks:
        ctypes.memset(block, 1, 1000)
    for number, block in enumerate(blocks):
        if number % 64:
            libc.free(block)

def part():
    "Columns of a large part."
    pool = pa.default_memory_pool()
    buffers = [pa.allocate_buffer(1000_000, memory_pool=pool) for _ in range(64)]
    for buffer in buffers:
        ctypes.memset(buffer.address, 1, buffer.size)

free = FreeMemory(every_s=float(sys.argv[2]))
before = held_mib()
globals()[sys.argv[1]]()
burst = held_mib()
free.give_back()
print(burst - before, burst - held_mib())
"""
"""Program that prints two numbers in MiB: memory that a burst took and freed, and the part that `give_back` returned to
the kernel. Arguments: the burst (`records` or `part`), and `every_s`."""


@pytest.mark.parametrize(
    ("every_s", "given_back"), [(0, True), (60, False)], ids=["at once", "not again so soon"]
)
@pytest.mark.parametrize("burst", ["records", "part"])
def test_it_goes_back(burst: str, every_s: float, given_back: bool) -> None:
    command = [sys.executable, "-c", BURST, burst, str(every_s)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    took, back = map(float, told.stdout.split())
    assert took > BURST_MIB / 2, "it was given back by itself"
    assert (back > BURST_MIB / 2) == given_back, back


FETCHES = """
import ctypes, sys
from ackproof.clients.parts import FreeMemory

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
if sys.argv[1] == "set":
    FreeMemory()
libc.free(libc.malloc(16_000_000))
before = libc.mallinfo2()
blocks = [libc.malloc(1_000_000) for _ in range(64)]
after = libc.mallinfo2()
print((after.hblkhd - before.hblkhd) / 2**20)
"""
"""Program that prints how many MiB of 64 blocks of 1 MB malloc mapped separately, after a larger block was freed. With
the argument `set` it constructs a `FreeMemory` first."""


@pytest.mark.parametrize(("how", "by_kernel"), [("set", True), ("as it is", False)])
def test_large_blocks_are_the_kernels_though_larger_ones_were_freed(how: str, by_kernel: bool) -> None:
    told = subprocess.run([sys.executable, "-c", FETCHES, how], capture_output=True, text=True, check=True)
    assert (float(told.stdout) > BURST_MIB * 0.9) == by_kernel, told.stdout
