"""One number for what lies at an offset, so that a log and what a reader was handed of it can be held side by side."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

UNKNOWN: Final = -1
"""In place of a sum: nobody could say."""
ABORTED: Final = 0
COMMITTED: Final = 1
"""What a transaction's marker says, in place of a sum."""
_OFFSET, _PRODUCER, _SEQ, _INTACT, _MIX = map(
    np.uint64,
    (
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x27D4EB2F165667C5,
        0xFF51AFD7ED558CCD,
    ),
)
"""Odd numbers without a pattern."""
_HALF: Final = np.uint64(32)
_BLOCK: Final = 1 << 16


def content(
    offset: npt.NDArray[np.int64],
    producer: npt.NDArray[np.signedinteger],
    seq: npt.NDArray[np.signedinteger],
    intact: npt.NDArray[np.bool_],
) -> npt.NDArray[np.uint64]:
    """A hash of each record's place and identity (`payload.Identity`). Of several the sum modulo 2⁶⁴ is taken."""
    mixed = offset.astype(np.uint64) * _OFFSET
    mixed += producer.astype(np.int64).view(np.uint64) * _PRODUCER
    mixed += seq.astype(np.int64).view(np.uint64) * _SEQ
    mixed += intact.astype(np.uint64) * _INTACT
    mixed ^= mixed >> _HALF
    mixed *= _MIX
    mixed ^= mixed >> _HALF
    return mixed


def total(
    offset: npt.NDArray[np.int64],
    producer: npt.NDArray[np.signedinteger],
    seq: npt.NDArray[np.signedinteger],
    intact: npt.NDArray[np.bool_],
) -> int:
    """The sum over records, 0 … 2⁶⁴ - 1; block by block, so that what is worked on stays near the processor."""
    found = 0
    for at in range(0, len(offset), _BLOCK):
        block = slice(at, at + _BLOCK)
        hashes = content(offset[block], producer[block], seq[block], intact[block])
        found += int(hashes.sum(dtype=np.uint64))
    return found % (1 << 64)


def signed(found: int) -> int:
    """A sum as columns hold it, -2⁶³ … 2⁶³ - 1."""
    return found - (1 << 64) if found >= 1 << 63 else found
