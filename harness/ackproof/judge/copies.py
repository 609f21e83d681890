"""Copies of records by idempotent producers: which of them idempotence forbids, and which it never promised to avoid.

A broker knows copies by producer id, producer epoch and sequence, and only a client raises its epoch: when it gives up
on records that it had sent, and when a batch is refused as out of sequence because the one before it failed. Then it
sends what was in flight anywhere again, and no broker can know these for copies (librdkafka: INTRODUCTION.md,
"Idempotent Producer", and its issue 4953; the Java client since KIP-360 too). Another producer id says so only of what
was on its way when its client gave up on something. Two copies within one epoch are the broker's own.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackproof.rundir import storage
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import final_rows, ledger_rows
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import FINDINGS

_UNKNOWN = (-1, -1)
_REPORTED_NS: Final = 1_000_000_000
"""Within so long a client has reported what came of all that it gave up at once."""


def sent_again(run: CaseDir) -> int:
    """How many `duplicate` findings are copies in another producer epoch.

    0 where the logs on disk were not seen: without them nobody knows the epochs.
    """
    if not run.replica_batches.exists():
        return 0
    names = ["topic", "partition", "producer", "seq"]
    found = storage.read_rows(run.finding_parts, names, pc.field("class") == "duplicate", FINDINGS)
    copies: Counter[tuple[str, int, int, int]] = Counter(
        zip(*(found[name].to_pylist() for name in found.column_names), strict=True)
    )
    gave_up = _on_their_way(run, copies)
    excused = 0
    for topic, partition in {key[:2] for key in copies}:
        mine = {key[2:]: count for key, count in copies.items() if key[:2] == (topic, partition)}
        excused += _excused(run, TopicPartition(topic, partition), mine, gave_up)
    return excused


def _excused(
    run: CaseDir, place: TopicPartition, copies: dict[tuple[int, int], int], gave_up: Set[tuple[int, int]]
) -> int:
    """Of so many further copies by (producer, seq): those whose producer epoch no other copy has."""
    rows = final_rows(run, place, ["producer", "seq", "offset"])
    sequences = {seq for _, seq in copies}
    chosen = rows.filter(pc.is_in(rows["seq"], pa.array(sorted(sequences), pa.int64())))
    sessions = _sessions(run, place, chosen["offset"].to_numpy())
    seen: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for producer, seq, session in zip(
        chosen["producer"].to_pylist(), chosen["seq"].to_pylist(), sessions, strict=True
    ):
        known = seen.setdefault((producer, seq), set())
        one_id = all(session[0] == producer_id for producer_id, _ in known)
        if session != _UNKNOWN and (one_id or (producer, seq) in gave_up):
            known.add(session)
    return sum(min(count, max(0, len(seen.get(key, ())) - 1)) for key, count in copies.items())


def _sessions(run: CaseDir, place: TopicPartition, offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Producer id and epoch of the batch at each offset, as the replica with the longest log has it."""
    wanted = (pc.field("topic") == place.topic) & (pc.field("partition") == place.partition)
    names = ["node", "first_offset", "last_offset", "producer_id", "producer_epoch"]
    table = storage.read_table(run.replica_batches, columns=names, filters=wanted)
    if table.num_rows == 0:
        yield from [_UNKNOWN] * len(offsets)
        return
    longest = table["node"][int(np.argmax(table["last_offset"].to_numpy()))].as_py()
    table = table.filter(pc.equal(table["node"], longest)).sort_by("first_offset")
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
    for row in table.filter(unknown).to_pylist():
        times[row["producer"]].append(row["done_ns"])
    return frozenset(
        (row["producer"], row["seq"])
        for row in table.to_pylist()
        if (row["producer"], row["seq"]) in wanted
        and any(row["sent_ns"] <= time <= _until_ns(row["done_ns"]) for time in times[row["producer"]])
    )


def _until_ns(done_ns: int) -> float:
    """Until when its client can have told that it gave up with an attempt on its way; of one without a report ever."""
    return done_ns + _REPORTED_NS if done_ns >= 0 else math.inf
