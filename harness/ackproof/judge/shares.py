"""Counts what happened to each record in a share group, from its members' ledger and the final read of its topics.

A broker also acknowledges an accept of a record before the start of the share partition, which other members have
finished. So acknowledged accepts of two members are normal. After an acknowledged accept nobody may acquire the record.
A broker acquired a record for a member at `acquired_ns` or later: if that is after the answer, so is the acquisition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.clients.command.fields import Position
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.shares import SHARES, Acknowledgement, ShareResult

_RECORD: Final = ["topic", "partition", "offset"]
_INPUT: Final = pa.schema([SHARES.field(name) for name in _RECORD])


@dataclass(frozen=True)
class ShareCounts:
    """Numbers of the input records that exist at the end (`records`) by what the share group did with them. Also
    numbers of rows in its members' ledger.

    Each record counts once. `accepted`: an accept was acknowledged, or its answer is not known. `rejected`: not
    accepted, and a reject was acknowledged, or its answer is not known. `limited`: neither accepted nor rejected, and
    delivered as often as the delivery limit allows. `undelivered`: never delivered to a member. `vanished`: delivered
    less often than the limit allows, and neither accepted nor rejected; a group at rest does not deliver it again.

    Rows: `redelivered`: deliveries of records that a broker acquired after the answer to an acknowledged accept.
    `deliveries`: all rows. `renewed`: acknowledged renewals. `refused`: refused acknowledgements, which are no anomaly.
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
    shares: pa.Table, there: Sequence[tuple[TopicPartition, npt.NDArray[np.int64]]], limit: int
) -> ShareCounts:
    """Return how many records of a share group met each fate in the group. `shares`: rows of one group (schema
    `SHARES`). `there`: offsets of the intact records of each partition (at least one) in the final read, each once.
    `limit`: delivery limit of the group."""
    refused, acknowledged = (
        pc.equal(shares["result"], int(result)) for result in (ShareResult.REFUSED, ShareResult.ACKNOWLEDGED)
    )
    accept, reject, renew = (
        pc.equal(shares["ack"], ack.value)
        for ack in (Acknowledgement.ACCEPT, Acknowledgement.REJECT, Acknowledgement.RENEW)
    )
    rows = shares.select([*_RECORD, "delivery_count", "acquired_ns"])
    for name, column in (
        ("accepted", pc.and_not(accept, refused)),
        ("rejected", pc.and_not(reject, refused)),
        ("answered_ns", pc.if_else(pc.and_(accept, acknowledged), shares["answered_ns"], None)),
    ):
        rows = rows.append_column(name, column)
    fates = rows.group_by(_RECORD).aggregate(
        [("accepted", "any"), ("rejected", "any"), ("delivery_count", "max"), ("answered_ns", "min")]
    )
    records = pa.concat_tables(
        pa.table(
            [
                pa.repeat(place.topic, len(offsets)),
                pa.repeat(pa.scalar(place.partition, pa.int32()), len(offsets)),
                offsets,
            ],
            _INPUT,
        )
        for place, offsets in there
    )
    found = records.join(fates, _RECORD)
    accepted, rejected = (pc.fill_null(found[name], False) for name in ("accepted_any", "rejected_any"))
    left, rejected = pc.invert(pc.or_(accepted, rejected)), pc.and_not(rejected, accepted)
    most = found["delivery_count_max"]
    again = rows.join(fates.select([*_RECORD, "answered_ns_min"]), _RECORD)
    return ShareCounts(
        records=len(records),
        accepted=_count(accepted),
        rejected=_count(rejected),
        limited=_count(pc.and_(left, pc.greater_equal(most, limit))),
        undelivered=_list_positions(found, pc.is_null(most)),
        vanished=_list_positions(found, pc.and_(left, pc.less(most, limit))),
        redelivered=_list_positions(again, pc.greater(again["acquired_ns"], again["answered_ns_min"])),
        deliveries=len(shares),
        renewed=_count(pc.and_(renew, acknowledged)),
        refused=_count(refused),
    )


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)


def _list_positions(rows: pa.Table, mask: pa.ChunkedArray) -> tuple[Position, ...]:
    found = rows_of(rows.filter(mask), *_RECORD)
    return tuple(sorted((TopicPartition(topic, partition), offset) for topic, partition, offset in found))
