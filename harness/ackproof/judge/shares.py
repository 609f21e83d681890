"""What became of each record in a share group: counts from its members' ledger and the final read of its topics.

A broker acknowledges an accept also if the record is behind the start of the share partition: others have finished it.
So acknowledged accepts of two members are normal. In either case nobody may acquire the record after the answer.
`acquired_ns` bounds from below when a broker acquired it for a member, so the order is the broker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.shares import Acknowledgement, ShareResult

_NEVER: Final = np.iinfo(np.int64).max
Numbers = npt.NDArray[np.int64]
Position = tuple[TopicPartition, int]


@dataclass(frozen=True)
class ShareCounts:
    """Fate of the records that are there at the end, of which there are `records`.

    `accepted`: an accept was acknowledged, or may count. Of the others: `rejected` (likewise), `limited`: delivered as
    often as the limit allows. `undelivered`: nobody was handed it. `vanished`: it is neither finished nor given up,
    and the group, which is at rest, was not handed it again. `redelivered`: deliveries that a broker acquired
    after the answer to an acknowledged accept. `deliveries`: rows of all members. `renewed`: acknowledged renewals.
    `refused`: refused acknowledgements, which are no finding.
    """

    records: int
    accepted: int
    rejected: int
    limited: int
    undelivered: tuple[Position, ...]
    vanished: tuple[Position, ...]
    redelivered: tuple[Position, ...]
    deliveries: int
    renewed: int
    refused: int


def count_shares(
    shares: pa.Table, there: Sequence[tuple[TopicPartition, Numbers]], limit: int
) -> ShareCounts:
    """Count the fate of records. `shares`: rows of one group, as `SHARES`. `there`: offsets of the intact records of
    each partition in the final read, each once. `limit`: delivery limit of the group."""
    accepted = rejected = limited = 0
    undelivered: list[Position] = []
    vanished: list[Position] = []
    redelivered: list[Position] = []
    for place, offsets in there:
        own = shares.filter(
            pc.and_(pc.equal(shares["topic"], place.topic), pc.equal(shares["partition"], place.partition))
        )
        column = {
            name: own[name].to_numpy()
            for name in ("offset", "delivery_count", "acquired_ns", "answered_ns", "result")
        }
        ack = np.asarray(own["ack"].to_numpy(zero_copy_only=False), dtype=np.str_)
        keys = np.unique(np.concatenate([offsets, column["offset"]]).astype(np.int64))
        row = np.searchsorted(keys, column["offset"])
        counts = column["result"] != ShareResult.REFUSED
        accepts, rejects = ack == Acknowledgement.ACCEPT.value, ack == Acknowledgement.REJECT.value
        handed, done, gone = (
            _any(row, mask, len(keys))
            for mask in (np.ones(len(row), bool), accepts & counts, rejects & counts)
        )
        most = np.zeros(len(keys), np.int64)
        np.maximum.at(most, row, column["delivery_count"])
        # the earliest acknowledged accept of each record
        sure = accepts & (column["result"] == ShareResult.ACKNOWLEDGED)
        answered = np.full(len(keys), _NEVER, np.int64)
        np.minimum.at(answered, row[sure], column["answered_ns"][sure])
        again = column["acquired_ns"] > answered[row]
        is_there = np.isin(keys, offsets)
        left = is_there & ~done & ~gone
        accepted += int((is_there & done).sum())
        rejected += int((is_there & ~done & gone).sum())
        limited += int((left & (most >= limit)).sum())
        undelivered += [(place, int(offset)) for offset in keys[is_there & ~handed]]
        vanished += [(place, int(offset)) for offset in keys[left & handed & (most < limit)]]
        redelivered += [(place, int(offset)) for offset in column["offset"][again]]
    renewals = pc.and_(
        pc.equal(shares["ack"], Acknowledgement.RENEW.value),
        pc.equal(shares["result"], int(ShareResult.ACKNOWLEDGED)),
    )
    return ShareCounts(
        records=sum(len(offsets) for _, offsets in there),
        accepted=accepted,
        rejected=rejected,
        limited=limited,
        undelivered=tuple(undelivered),
        vanished=tuple(vanished),
        redelivered=tuple(redelivered),
        deliveries=len(shares),
        renewed=_sum(renewals),
        refused=_sum(pc.equal(shares["result"], int(ShareResult.REFUSED))),
    )


def _any(row: Numbers, mask: npt.NDArray[np.bool_], length: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(length, np.bool_)
    found[row[mask]] = True
    return found


def _sum(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)
