"""Checks of the replicas' logs on disk: they are compared with each other, and with the records of the final read.

If the reader is wrong, no record may be called lost. If the replicas differ, a reader's records depend on the leader:
no configuration permits that below the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.judge.checks.contents import ComparedBatches, compare
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, breaks, contradicts, lacks, not_judged
from ackproof.rundir.arrow import rows_of
from ackproof.rundir.documents import PartitionRead
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import LogBatches, Replica
from ackproof.rundir.timeline import fault_name

_proves = partial(breaks, proven=True)


class _Batch(NamedTuple):
    """Columns of a batch in `replicas.BATCHES`. All but `sound` must be equal in all replicas. `sound`: True if the
    batch's CRC is right in this replica."""

    first_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    records: int
    control: bool
    transactional: bool
    sound: bool

    @property
    def header(self) -> _Batch:
        """This batch with `sound` set to True. Copies of a batch are compared by it: bytes that were damaged on disk
        after the header do not make two headers differ."""
        return self._replace(sound=True)


class _Logs(NamedTuple):
    """The logs of a partition's replicas on disk, with the facts that their comparison needs. `read`: the partition's
    final read. `in_sync`: ids of the ISR at the end.

    `damaged_by`: by node id, the fault (in words) that removed or damaged part of its log, for which Kafka is not to
    blame. `may_expire`: True if retention or a soak may delete records. Each broker deletes at its own time, so that
    the logs may begin at different offsets.
    """

    read: PartitionRead
    replicas: Sequence[Replica]
    in_sync: Sequence[int]
    damaged_by: Mapping[int, str]
    may_expire: bool
    batches: LogBatches

    @property
    def place(self) -> TopicPartition:
        return self.read.place

    def rows(self, node: int, start: int, end: int) -> list[_Batch]:
        batches = (
            _Batch(*row) for row in rows_of(self.batches.of_replica(self.place, node), *_Batch._fields)
        )
        return [batch for batch in batches if batch.last_offset >= start and batch.first_offset < end]

    def since(self, *nodes: int) -> str:
        """Return, as the end of a sentence, the faults that removed or damaged part of the logs of these
        nodes; '' if no fault did."""
        by = [
            f"{self.damaged_by[node]} took from that of node {node}"
            for node in nodes
            if node in self.damaged_by
        ]
        return f"; {', '.join(by)}" if by else ""


def check_logs(facts: Facts) -> Iterator[Opinion]:
    """Compare the replicas' logs on disk with each other and with the final read, except for compacted topics.

    Yields a `breaks` opinion (a promise is broken) where in-sync logs that no fault damaged differ below the high
    watermark or end below it. Yields it, too, where all of them lack an offset, or where the final reader and another
    one got other records than a log has. Yields `contradicts` if only the final reader did.

    Yields `lacks` for other differences and for logs that could not be read, `agrees` for partitions without any
    difference. If the read of a partition is incomplete, only its end is compared with the ends of the logs. Yields
    nothing without a final read or without the logs on disk. Raises `BadInput`, OSError or ArrowException for broken
    files.
    """
    final, replicas = facts.final_read, facts.replicas
    if final is None or replicas is None:
        return
    yield from (lacks(f"the logs on disk: {reason}") for reason in replicas.reasons)
    committed = {read.place: read for read in reversed(final.committed) if read.complete}
    for read in final.partitions:
        if read.topic not in facts.case.experiment.topics:
            continue  # the coherence of the final read names it
        if facts.may_compact(read.topic):
            continue  # each replica may have compacted another part
        place = read.place
        logs = _Logs(
            read,
            facts.replicas_of.get(place, ()),
            facts.in_sync.get(place, ()),
            _damaged_by(facts, place),
            bool(facts.log_starts) or facts.may_expire(place),
            facts.logs,
        )
        if not read.complete:  # a lack of its own
            yield from _ends_that_no_log_reaches(logs)
            continue
        yield from _compare_logs(facts, logs)
        if place in committed:
            yield from _compare_committed(facts, logs, committed[place])


def check_presence(facts: Facts) -> Iterator[Opinion]:
    """Yield a `not judged` opinion if there are no logs on disk or no final read: then nothing confirms the
    final read."""
    if facts.final_read is None or facts.replicas is None:
        yield not_judged("the logs on disk were not seen, so the final read has no second witness")


def _damaged_by(facts: Facts, place: TopicPartition) -> dict[int, str]:
    rots = {
        fault.number: f"fault {fault_name(fault.number)}" for fault in facts.case.faults if fault.rots(place)
    }
    return {node: rots[fault] for fault, node in facts.aimed_at(rots)}


def _compare_logs(facts: Facts, logs: _Logs) -> Iterator[Opinion]:
    read, damaged, name = logs.read, logs.damaged_by, str(logs.place)
    lacks_here, agrees_here = partial(lacks, subject=name), partial(agrees, subject=name)
    present = {replica.node: replica for replica in logs.replicas if replica.node in logs.in_sync}
    missing = sorted(set(logs.in_sync) - present.keys())
    if missing or not present:
        yield lacks_here(
            f"{name}: no log on disk was seen of {_nodes(missing) if missing else 'any replica'}"
        )
        return
    for replica in present.values():
        if replica.reason:
            yield lacks_here(f"{name}: the log of node {replica.node}: {replica.reason}")
        elif replica.rest:
            yield lacks_here(
                f"{name}: {replica.rest} bytes at the end of the log of node {replica.node} are no batch"
            )
        elif replica.log_end < read.end:
            says = lacks if replica.node in damaged else _proves
            yield says(
                f"{name}: node {replica.node} is in the ISR and its log ends at {replica.log_end}, below the high "
                f"watermark {read.end}{logs.since(replica.node)}",
                subject=name,
            )
    whole = {node: replica for node, replica in present.items() if not replica.reason and not replica.rest}
    if not whole:
        return
    if not logs.may_expire:
        yield from map(lacks_here, _later_starts(name, read, whole))
    start = max(read.start, *(replica.log_start for replica in whole.values()))
    rows = {node: logs.rows(node, start, read.end) for node in whole}
    differing = list(_differences(logs, rows))
    yield from differing
    holes = _holes(start, read.end, rows)
    lost = (
        len(whole) == len(present)
        and not holes.keys() & damaged.keys()
        and _hole_in_all(facts, logs, holes, rows)
    )
    if lost:
        yield _proves(
            f"{name}: none of the logs of {_nodes(sorted(rows))} has offset {lost[0]}, and the final reader got no "
            f"record from there to offset {lost[1] - 1}: a broker leaves no offset out of a log that is not compacted",
            subject=name,
            numbers={"offset": lost[0], "offsets": lost[1] - lost[0]},
        )
    doubts = [
        f"{name}: the log of node {node} lacks offset {hole[0]}, and the final read ends at {read.end}"
        for node, hole in holes.items()
        if not lost
    ]
    doubts += _beyond(logs, whole)
    doubts += _broken_checksums(logs, rows)
    best = min(whole, key=lambda node: (node in damaged, node))
    summed = facts.audit.contents.get(name, (None, None))[0]
    log = facts.logs.of_replica(logs.place, best)
    compared = compare(facts.final_rows, logs.place, log, start, read.end, summed=summed)
    odd = compared.other and not differing
    short_twice = _short_twice(read, rows[best]) and facts.disk_fault is None
    if odd:
        yield _served_other_records(
            compared,
            name,
            f"the final reader read other records than the log of node {best} holds",
            short_twice=short_twice,
        )
    if not (odd and short_twice):
        doubts += _wrong_counts(name, read, start, rows)
    yield from map(lacks_here, doubts)
    if not (differing or lost or doubts or odd) and len(whole) == len(present):
        unknown = f"; the records of {compared.unknown} batches could not be read" if compared.unknown else ""
        alike = f"{name}: the logs of {_nodes(sorted(rows))} agree up to {read.end}"
        yield agrees_here(f"{alike} and hold what the final read has{unknown}", numbers={"offset": read.end})


def _compare_committed(facts: Facts, logs: _Logs, read: PartitionRead) -> Iterator[Opinion]:
    """Compare the final read at read_committed with the first in-sync log that no fault damaged, without its
    aborted batches. Yields one opinion on whether they differ. Yields nothing without such a log, if that log
    could not be read, or if it has no batch to compare."""
    name = str(logs.place)
    sound = [one for one in logs.replicas if one.node in logs.in_sync and one.node not in logs.damaged_by]
    if not sound or sound[0].reason:
        return
    node, start = sound[0].node, max(read.start, sound[0].log_start)
    summed = facts.audit.contents.get(name, (None, None))[1]
    log = facts.logs.of_replica(logs.place, node)
    compared = compare(facts.final_rows, logs.place, log, start, read.end, committed=True, summed=summed)
    if compared.other:
        yield _served_other_records(
            compared,
            name,
            "the final reader at read_committed read other records than the markers in the log of node "
            f"{node} commit",
        )
    elif compared.same:
        yield agrees(
            f"{name}: the final reader at read_committed read what the markers in the log of node {node} commit",
            subject=name,
        )


def _short_twice(read: PartitionRead, rows: Sequence[_Batch]) -> bool:
    """Return True if two final readers, one after the other, both got fewer records than a log has outside
    transactions. False if one of the two numbers is unknown."""
    return 0 <= min(read.records, read.again) <= max(read.records, read.again) < _least(read, rows)


def _served_other_records(
    compared: ComparedBatches, name: str, text: str, *, short_twice: bool = False
) -> Opinion:
    """Return an opinion on batches whose records differ between the final read and a log (`compared`). `name`: the
    partition. `text`: the finding as a sentence.

    The opinion is `breaks` (a promise is broken) if a second reader confirms the finding: a live reader was served the
    same records as the final reader, or `short_twice` is True. Otherwise it is `contradicts` (files disagree).
    `short_twice`: two final readers, one after the other, both got fewer records than the log holds.
    """
    says = breaks if compared.agreed or short_twice else contradicts
    also = f"; a live reader was served the same in {compared.agreed} of them" if compared.agreed else ""
    also += "; a second reader passed over records that the log holds, too" if short_twice else ""
    return says(
        f"{name}: {text}, from offset {compared.first} on ({compared.other} batches){also}",
        subject=name,
        numbers={"batches": compared.other, "agreed": compared.agreed},
    )


def _differences(logs: _Logs, rows: Mapping[int, Sequence[_Batch]]) -> Iterator[Opinion]:
    damaged, name = logs.damaged_by, str(logs.place)
    (first, reference), *others = sorted(rows.items(), key=lambda each: (each[0] in damaged, each[0]))
    headers = {row.header for row in reference}
    for node, mine in others:
        odd = sorted({row.header for row in mine} ^ headers)
        if odd:
            pair = sorted((first, node))
            says = lacks if damaged.keys() & pair else _proves
            yield says(
                f"{name}: nodes {pair[0]} and {pair[1]} are in the ISR, and below the high watermark their logs "
                f"differ from offset {odd[0].first_offset} on ({len(odd)} batches){logs.since(*pair)}",
                subject=name,
                numbers={"offset": odd[0].first_offset, "batches": len(odd)},
            )


def _later_starts(name: str, read: PartitionRead, logs: Mapping[int, Replica]) -> Iterator[str]:
    for node, replica in sorted(logs.items()):
        if replica.log_start > read.start:
            yield (
                f"{name}: the log of node {node} begins at {replica.log_start}, and the final read at "
                f"{read.start}"
            )


def _holes(start: int, end: int, rows: Mapping[int, Sequence[_Batch]]) -> dict[int, tuple[int, int]]:
    """Return the first range (begin, end) of offsets that each log lacks between `start` and `end`, by node.
    Ends are excluded. Logs without gaps are not in the result."""
    holes = {}
    for node, mine in sorted(rows.items()):
        expected = start
        for row in mine:
            if row.first_offset > expected:
                holes[node] = expected, row.first_offset
                break
            expected = row.last_offset + 1
        else:
            if expected < end:
                holes[node] = expected, end
    return holes


def _hole_in_all(
    facts: Facts, logs: _Logs, holes: Mapping[int, tuple[int, int]], rows: Mapping[int, Sequence[_Batch]]
) -> tuple[int, int] | None:
    """Return the first hole (begin, end) if it is the same in all logs, and the final reader got no record in it; else
    None. None also if the reader's ledger cannot be read, or has another number of rows of the partition than the
    reader counted."""
    if len(set(holes.values())) != 1 or holes.keys() != rows.keys():
        return None
    ((start, end),) = set(holes.values())
    try:
        offsets = facts.final_rows.read_partition(logs.place)["offset"]
    except (OSError, pa.ArrowException):
        return None  # the audit names a part that cannot be read
    inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
    return None if len(offsets) != logs.read.records or pc.any(inside).as_py() else (start, end)


def _ends_that_no_log_reaches(logs: _Logs) -> Iterator[Opinion]:
    """Yield an opinion if the leader answered an end offset that no in-sync log on disk reaches, so that no reader
    can. Yield nothing if such a log is missing, unreadable, or if a fault damaged a log of the partition."""
    read, present = logs.read, [one for one in logs.replicas if one.node in logs.in_sync]
    if not present or len(present) != len(logs.in_sync) or logs.damaged_by:
        return
    if any(one.reason or one.rest or one.log_end >= read.end for one in present):
        return
    yield _proves(
        f"{logs.place}: the leader answered the end offset {read.end}, and the logs of "
        f"{_nodes([one.node for one in present])}, all that are in sync, end at "
        f"{max(one.log_end for one in present)}",
        subject=str(logs.place),
        numbers={"end": read.end, "log_end": max(one.log_end for one in present)},
    )


def _beyond(logs: _Logs, whole: Mapping[int, Replica]) -> Iterator[str]:
    """Yield a sentence if every log of `whole` has records, not only markers, after the end of the final read. Records
    that all in-sync logs hold are committed, so the final reader should have got them. `whole`: complete logs of
    in-sync replicas, by node."""
    read, end = logs.read, min(replica.log_end for replica in whole.values())
    later = [row for row in logs.rows(next(iter(whole)), read.end, end) if not row.control]
    if end > read.end and later:
        names = _nodes(sorted(whole))
        yield f"{read.place}: the logs of {names} go on to {end}, and the final read ended at {read.end}"


def _wrong_counts(
    name: str, read: PartitionRead, start: int, rows: Mapping[int, Sequence[_Batch]]
) -> Iterator[str]:
    """Yield a sentence for the first log whose number of records differs from that of the final read.

    Records of transactions may be missing from the read. Nothing is yielded if the number of records read is
    unknown, or if a log begins above the start of the read.
    """
    if read.records < 0 or start != read.start:
        return
    for node, mine in sorted(rows.items()):
        most = sum(row.records for row in mine if not row.control)
        least = _least(read, mine)
        if not least <= read.records <= most:
            holds = str(most) if least == most else f"{least} to {most}"
            yield f"{name}: the final read has {read.records} records, and the log of node {node} holds {holds}"
            return


def _least(read: PartitionRead, rows: Sequence[_Batch]) -> int:
    """Return how many records of a log the read must have at least: those of batches that lie wholly within the
    read and belong to no transaction."""
    inside = (row for row in rows if row.first_offset >= read.start and row.last_offset < read.end)
    return sum(row.records for row in inside if not row.control and not row.transactional)


def _broken_checksums(logs: _Logs, rows: Mapping[int, Sequence[_Batch]]) -> Iterator[str]:
    for node, mine in sorted(rows.items()):
        if bad := [row for row in mine if not row.sound]:
            yield (
                f"{logs.place}: the checksum of {len(bad)} batches in the log of node {node} does not hold, from "
                f"offset {bad[0].first_offset} on{logs.since(node)}"
            )


def _nodes(numbers: Sequence[int]) -> str:
    return ("node " if len(numbers) == 1 else "nodes ") + ", ".join(map(str, numbers))
