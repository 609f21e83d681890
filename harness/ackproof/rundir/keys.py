"""Which key a record has, and which records are tombstones: both follow from who sent it, and as its which attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, overload

import numpy as np
import numpy.typing as npt

HEADER: Final = "ackproof"
"""The header of a tombstone that has what else is its value: who sent it."""
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Keys:
    """`count` keys of a producer's own, which its records have in turn; each `tombstone_every`-th record of a key (0:
    none) deletes it."""

    count: int
    tombstone_every: int = 0

    def of(self, producer: int, seq: int) -> bytes:
        """The key of a record."""
        return b"%d-%d" % (producer, seq % self.count)

    @overload
    def deletes(self, seq: int) -> bool: ...
    @overload
    def deletes(self, seq: _Numbers) -> npt.NDArray[np.bool_]: ...
    def deletes(self, seq: int | _Numbers) -> bool | npt.NDArray[np.bool_]:
        """Whether a record is a tombstone."""
        every = self.tombstone_every
        return (every > 0) & (seq // self.count % max(every, 1) == every - 1)
