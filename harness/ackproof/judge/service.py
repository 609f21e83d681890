"""Counts what a service under test did with each input record, from its output, its commits and the events it printed.

The input is the final read of the input topic. A record is dropped if the group's committed offset is greater and the
output lacks it: the service will not read it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ackproof.clients.command.events import (
    LINES,
    Breach,
    EventName,
    ProgramEvent,
    ProgramLines,
    level_of,
    needed_at,
)
from ackproof.clients.command.fields import Position
from ackproof.rundir import storage
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.ledger import FinalRows
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.service import ServiceFile

_SEQ_BITS: Final = np.int64(40)
Numbers = npt.NDArray[np.int64]


@dataclass
class ServiceEvents:
    """Events that the instances of a service printed, put together. `level`: highest level (docs/clients.md) for which
    each event of this level and of all lower ones was printed: 1 deliveries, 2 commits, 3 sends; else 0. `missing`:
    events that the case's level requires and that no instance printed.

    `delivered`, `processed`: how often each input record was delivered and processed. `granted`: request time and
    offset of the newest accepted commit, by partition. `unsure`: request time of the newest commit that failed or has
    no answer, by partition: it may have been applied. Times are in ns on CLOCK_MONOTONIC. `breaches`: (instance, breach
    of the contract).

    Sends (level 3), by input record: `attempts`, and how many of them `failed` or were acknowledged (`acked_of`).
    `acked`: acknowledged offsets in the output. `reliable`: each `started` event names acks=all.
    """

    level: int = 0
    missing: tuple[EventName, ...] = ()
    delivered: Counter[Position] = field(default_factory=Counter)
    processed: Counter[Position] = field(default_factory=Counter)
    granted: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    unsure: dict[TopicPartition, int] = field(default_factory=dict)
    failed: Counter[Position] = field(default_factory=Counter)
    acked_of: Counter[Position] = field(default_factory=Counter)
    attempts: Counter[Position] = field(default_factory=Counter)
    acked: set[Position] = field(default_factory=set)
    reliable: bool = True
    breaches: list[tuple[str, Breach]] = field(default_factory=list)


@dataclass(frozen=True)
class ServiceCounts:
    """Numbers of input records by what the service did with them. A position is a (partition, offset) of the input.

    `records`: input records with an identity. `copied`: those that are in the output. `dropped`: missing in the output,
    although a later offset is committed. `pending`: missing in the output, and no later offset is committed. `doubled`:
    more often in the output than in the input. `foreign`: output records that are not in the input. `uncommitted`: True
    if the group committed nothing.
    """

    records: int
    copied: int
    dropped: tuple[Position, ...]
    pending: tuple[Position, ...]
    doubled: tuple[Position, ...]
    foreign: int
    uncommitted: bool


def count_copies(run: CaseDir, file: ServiceFile, places: Sequence[TopicPartition]) -> ServiceCounts:
    """Compare the final read of the input partitions (`places`, at least one) with the output, and return what became
    of each input record. Input records without an identity, or that are not intact, are left out. Raises OSError or
    ArrowException for a broken file."""
    rows = FinalRows(run)
    keys, partitions, offsets = [], [], []
    for index, place in enumerate(places):
        table = rows.read_partition(place)
        intact = table["intact"].to_numpy() & (table["producer"].to_numpy() >= 0)
        keys.append(_keys(table["producer"].to_numpy()[intact], table["seq"].to_numpy()[intact]))
        offsets.append(table["offset"].to_numpy()[intact])
        partitions.append(np.full(len(keys[-1]), index, np.int64))
    key, offset, number = map(np.concatenate, (keys, offsets, partitions))
    output = storage.read_table(run.service_output)
    out_key = _keys(output["producer"].to_numpy(), output["seq"].to_numpy())
    committed = file.committed.of_partition
    behind = np.array([committed.get(place, -1) for place in places], np.int64)
    own, out_count = np.unique(out_key[output["producer"].to_numpy() >= 0], return_counts=True)
    in_key, first, in_count = np.unique(key, return_index=True, return_counts=True)
    copies = _look_up(own, out_count, in_key)
    absent = _look_up(own, out_count, key) == 0
    passed = offset < behind[number]

    def positions(rows_of: Numbers) -> tuple[Position, ...]:
        return tuple((places[int(number[row])], int(offset[row])) for row in rows_of)

    known = int(out_count[np.isin(own, in_key)].sum())
    return ServiceCounts(
        records=len(key),
        copied=int((~absent).sum()),
        dropped=positions(np.flatnonzero(absent & passed)),
        pending=positions(np.flatnonzero(absent & ~passed)),
        doubled=positions(first[copies > in_count]),
        foreign=len(out_key) - known,
        uncommitted=not committed,
    )


def _keys(producer: npt.NDArray[np.signedinteger], seq: npt.NDArray[np.signedinteger]) -> Numbers:
    keys: Numbers = (producer.astype(np.int64) << _SEQ_BITS) | seq.astype(np.int64)
    return keys


def _look_up(known: Numbers, counts: Numbers, wanted: Numbers) -> Numbers:
    """Return the count of each wanted key, 0 for keys that are not in `known`. `known`: keys, ascending, each with its
    number in `counts`."""
    if not len(known):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    found: Numbers = np.where(known[at] == wanted, counts[at], 0)
    return found


def read_events(run: CaseDir, file: ServiceFile, level: int) -> ServiceEvents:
    """Return the events that the instances of a service printed, put together. `level`: level that the service is to
    reach; at level 0 nothing is read. Raises OSError if a file cannot be read."""
    told = ServiceEvents()
    names: set[EventName] = set()
    for one in file.instances if level else ():
        lines = ProgramLines(run.clients / one.id / LINES, one.started_ns, live=False)
        events = lines.take()
        names.update(event.name for event in events)
        _add(told, events)
        _add_commits(told, events)
        if one.status >= 0:
            lines.end(one.status)
        told.breaches += [(one.id, breach) for breach in lines.breaches]
    told.level = level_of(names)
    told.missing = tuple(name for name in needed_at(level) if name not in names)
    return told


def _add(told: ServiceEvents, events: Sequence[ProgramEvent]) -> None:
    attempts: dict[int, ProgramEvent] = {}
    for event in events:
        match event.name:
            case EventName.STARTED:
                told.reliable &= event.acks == "all"
            case EventName.DELIVERED if event.place is not None:
                told.delivered[event.place, event.offset] += 1
            case EventName.PROCESSED if event.place is not None:
                told.processed[event.place, event.offset] += 1
            case EventName.ATTEMPT:
                attempts[event.number] = event
                if event.origin is not None:
                    told.attempts[event.origin] += 1
            case EventName.RESULT if event.number in attempts:
                _add_result(told, attempts[event.number], event)
            case _:
                pass


def _add_commits(told: ServiceEvents, events: Sequence[ProgramEvent]) -> None:
    commits: dict[int, ProgramEvent] = {}
    for event in events:
        if event.name is EventName.COMMIT:
            commits[event.number] = event
        elif event.name is EventName.COMMITTED and not event.error and event.number in commits:
            asked = commits.pop(event.number)
            for place, offset in asked.positions:
                told.granted[place] = max(told.granted.get(place, (-1, -1)), (asked.t_ns, offset))
    for asked in commits.values():  # those that failed, too
        for place, _ in asked.positions:
            told.unsure[place] = max(told.unsure.get(place, -1), asked.t_ns)


def _add_result(told: ServiceEvents, attempt: ProgramEvent, result: ProgramEvent) -> None:
    if attempt.origin is not None:
        (told.failed if result.error else told.acked_of)[attempt.origin] += 1
    if not result.error and result.offset >= 0 and attempt.place is not None:
        told.acked.add((attempt.place, result.offset))


def unwritten(file: ServiceFile, told: ServiceEvents) -> list[Position]:
    """Return the positions that an instance reported as acknowledged, and that are at or beyond the end of the output
    topic. A record below the end that is not visible may belong to an aborted transaction, so it is not returned.
    Partitions whose end is unknown are left out."""
    last = {TopicPartition(topic, partition): end for topic, partition, end in file.output_ends}
    return sorted((place, offset) for place, offset in told.acked if offset >= last.get(place, offset + 1))


def regressed(file: ServiceFile, told: ServiceEvents) -> list[tuple[TopicPartition, int, int]]:
    """Return (partition, committed offset, offset of the newest accepted commit) for each partition whose
    committed offset is below that of the commit; a committed offset of -1 means none. A partition with a
    later commit that failed or has no answer is left out."""
    now = file.committed.of_partition
    return [
        (place, now.get(place, -1), offset)
        for place, (asked_ns, offset) in sorted(told.granted.items())
        if now.get(place, -1) < offset and told.unsure.get(place, -1) < asked_ns
    ]
