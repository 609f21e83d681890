"""Copies of records by idempotent producers: which of them idempotence forbids, and which it never promised to avoid.

A broker knows copies by producer id, producer epoch and sequence, and only a client raises its epoch: when it gives up
on records that it had sent, and when a batch is refused as out of sequence because the one before it failed. Then it
sends what was in flight anywhere again, and no broker can know these for copies (librdkafka: INTRODUCTION.md,
"Idempotent Producer", and its issue 4953; the Java client since KIP-360 too). Another producer id says so only of what
was on its way when its client gave up on something. Two copies within one epoch are the broker's own.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.quantities.evidence import Evidence
from ackproof.rundir import storage
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import ledger_rows
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS

_UNKNOWN = (-1, -1)
_REPORTED_NS: Final = 1_000_000_000
"""Within so long a client has reported what came of all that it gave up at once."""


def sent_again(evidence: Evidence) -> int:
    """How many `duplicate` findings are copies in another producer epoch.

    0 where the logs on disk were not seen: without them nobody knows the epochs.
    """
    run = evidence.run
    if not run.replica_batches.exists():
        return 0
    names = ["topic", "partition", "producer", "seq"]
    found = storage.read_rows(run.finding_parts, names, pc.field("class") == "duplicate", FINDINGS)
    copies: Counter[tuple[str, int, int, int]] = Counter(
        zip(*(found[name].to_pylist() for name in found.column_names), strict=True)
    )
    gave_up = _on_their_way(run, copies)
    by_place: dict[TopicPartition, dict[tuple[int, int], int]] = defaultdict(dict)
    for (topic, partition, producer, seq), count in copies.items():
        by_place[TopicPartition(topic, partition)][producer, seq] = count
    return sum(_excused(evidence, place, mine, gave_up) for place, mine in sorted(by_place.items()))


def _excused(
    evidence: Evidence,
    place: TopicPartition,
    copies: dict[tuple[int, int], int],
    gave_up: Set[tuple[int, int]],
) -> int:
    """Of so many further copies by (producer, seq): those whose producer epoch no other copy has."""
    rows = evidence.final_rows.of(place)
    sequences = {seq for _, seq in copies}
    chosen = rows.filter(pc.is_in(rows["seq"], pa.array(sorted(sequences), pa.int64())))
    sessions = _sessions(evidence, place, chosen["offset"].to_numpy())
    seen: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for producer, seq, session in zip(
        chosen["producer"].to_pylist(), chosen["seq"].to_pylist(), sessions, strict=True
    ):
        known = seen.setdefault((producer, seq), set())
        one_id = all(session[0] == producer_id for producer_id, _ in known)
        if session != _UNKNOWN and (one_id or (producer, seq) in gave_up):
            known.add(session)
    return sum(min(count, max(0, len(seen.get(key, ())) - 1)) for key, count in copies.items())


def _sessions(evidence: Evidence, place: TopicPartition, offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Producer id and epoch of the batch at each offset, as the replica with the longest log has it."""
    table = evidence.logs.of_partition(place)
    if table.num_rows == 0:
        yield from [_UNKNOWN] * len(offsets)
        return
    longest = table["node"][int(np.argmax(table["last_offset"].to_numpy()))].as_py()
    table = evidence.logs.of_replica(place, longest).sort_by("first_offset")
    first, last = table["first_offset"].to_numpy(), table["last_offset"].to_numpy()
    ids, epochs = table["producer_id"].to_numpy(), table["producer_epoch"].to_numpy()
    for offset, at in zip(offsets, np.searchsorted(first, offsets, side="right") - 1, strict=True):
        inside = at >= 0 and offset <= last[at]
        yield (int(ids[at]), int(epochs[at])) if inside else _UNKNOWN


def _on_their_way(run: CaseDir, copies: Iterable[tuple[str, int, int, int]]) -> frozenset[tuple[int, int]]:
    """Of the copies: (producer, seq) of those that were on their way when their producer gave up on something."""
    names = ["producer", "seq", "sent_ns", "done_ns", "outcome"]
    wanted = {key[2:] for key in copies}
    sequences = pc.field("seq").isin(sorted({seq for _, seq in wanted}))
    unknown = pc.field("outcome") == int(Outcome.INDETERMINATE)
    table = ledger_rows(run.produced, names, sequences | unknown)
    times: dict[int, list[int]] = defaultdict(list)
    for row in sorted(table.filter(unknown).to_pylist(), key=lambda row: row["done_ns"]):
        times[row["producer"]].append(row["done_ns"])
    return frozenset(
        (row["producer"], row["seq"])
        for row in table.to_pylist()
        if (row["producer"], row["seq"]) in wanted
        and _any_within(times[row["producer"]], row["sent_ns"], _until_ns(row["done_ns"]))
    )


def _any_within(times: Sequence[int], begin: int, end: float) -> bool:
    at = bisect_left(times, begin)
    return at < len(times) and times[at] <= end


def _until_ns(done_ns: int) -> float:
    """Until when its client can have told that it gave up with an attempt on its way; of one without a report ever."""
    return done_ns + _REPORTED_NS if done_ns >= 0 else math.inf
