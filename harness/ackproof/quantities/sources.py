"""Counts records by the broker from which live readers fetched them; imported only when the quantity `reads` is
measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ackproof.quantities.evidence import Evidence
from ackproof.quantities.ledgers import live_reads
from ackproof.rundir.layout import client_folder
from ackproof.rundir.lifelines import Spans
from ackproof.rundir.observed import FetchSources
from ackproof.rundir.partition import TopicPartition

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
QUEUED_NS: Final = 1_000_000_000
"""Longest time, in ns, from the fetch of a record until the reader gets it from its client library."""
_NOBODY: Final = -1


def _split_reads(node: int, read_ns: Ints, times: Ints, brokers: Ints) -> tuple[Bools, Bools]:
    """Return two masks over the records of a partition that a reader read at the times `read_ns`: True in the first if
    a record was certainly fetched from broker `node`, in the second if it may have been. `brokers`: the broker in each
    report of the reader, from which it then fetched the partition (-1: from none). `times`: time of each report in ns,
    ascending."""
    last = len(times) - 1
    first = np.maximum(np.searchsorted(times, read_ns - QUEUED_NS, "right") - 1, 0)
    end = np.minimum(np.searchsorted(times, read_ns, "left"), last)
    mine = _is_set_between(brokers == node, first, end)
    others = _is_set_between((brokers != node) & (brokers != _NOBODY), first, end)
    silent = _is_set_between(np.diff(times, prepend=times[0]) > QUEUED_NS, first + 1, end)
    silent |= read_ns - times[last] > QUEUED_NS
    silent |= times[0] - read_ns > QUEUED_NS
    return mine & ~others & ~silent, mine | silent | ~others


def _is_set_between(flags: Bools, first: Ints, last: Ints) -> Bools:
    """Return for each pair of indices True if at least one flag is set from `first` to `last`, both included."""
    sums = np.concatenate([[0], np.cumsum(flags)])
    found: Bools = sums[last + 1] > sums[first]
    return found


def count_reads(evidence: Evidence, node: int, place: TopicPartition | None, spans: Spans) -> tuple[int, int]:
    """Return two numbers of records that live readers read: those that were certainly fetched from the broker `node`,
    and those that may have been.

    Counts reads of one partition (`place`; None: of all) within `spans`, (begin, end) in ns. A reader that reported
    nothing of a partition may have fetched all of it from any broker.
    """
    certain = possible = 0
    for client in evidence.clients:
        if client.kind != "reader":
            continue
        named = _by_place(evidence.fetching.get(client.id, ()))
        for where, times in live_reads(evidence.run.consumed / client_folder(client.id), spans):
            if place not in (None, where):
                continue
            if where not in named:
                possible += len(times)
                continue
            surely, maybe = _split_reads(node, times, *named[where])
            certain, possible = certain + int(surely.sum()), possible + int(maybe.sum())
    return certain, possible


def _by_place(told: Sequence[FetchSources]) -> dict[TopicPartition, list[Ints]]:
    found: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for line in told:
        for topic, partition, broker in line.sources:
            found[TopicPartition(topic, partition)].append((line.t_ns, broker))
    return {
        place: [np.array(column, np.int64) for column in zip(*sorted(rows), strict=True)]
        for place, rows in found.items()
    }
