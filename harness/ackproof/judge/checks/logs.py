"""The second witness: what the replicas had on disk, beside what the final reader was handed (docs/audit.md).

The reader could be wrong, and then nothing may be called lost. The replicas could differ, and then what a reader is
handed depends on who leads: below the high watermark no configuration permits that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.judge.contents import compare
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, breaks, contradicts, lacks, not_judged
from ackproof.rundir.documents import PartitionRead
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import Replica
from ackproof.rundir.timeline import fault_name

_proves = partial(breaks, proven=True)


class _Row(NamedTuple):
    """A batch, by the columns of `replicas.BATCHES` that copies of it share."""

    first_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    records: int
    control: bool
    transactional: bool
    sound: bool

    @property
    def header(self) -> _Row:
        """It as its header has it: damage behind that is no decision of a broker's."""
        return self._replace(sound=True)


def check(facts: Facts) -> Iterator[Opinion]:
    """Compare the logs with each other and with the final read. Raises `BadInput` for files that are broken."""
    final, seen = facts.final_read, facts.replicas
    if final is None or seen is None:
        return
    yield from (lacks(f"the logs on disk: {reason}") for reason in seen.reasons)
    committed = {
        TopicPartition(one.topic, one.partition): one for one in reversed(final.committed) if one.complete
    }
    for read in final.partitions:
        place = TopicPartition(read.topic, read.partition)
        if read.topic not in facts.case.experiment.topics:
            continue  # said by the check of the ends of logs
        if not read.complete or facts.may_compact(read.topic):
            continue  # the one says so itself; of the other each replica may have compacted another part
        mine = facts.replicas_of.get(place, ())
        may_expire = bool(facts.log_starts) or facts.may_expire(place)
        logs = _Logs(read, mine, facts.in_sync.get(place, ()), _rotten(facts, place), may_expire)
        yield from _of_a_partition(facts, logs)
        yield from _at_read_committed(facts, logs, committed.get(place))


def check_presence(facts: Facts) -> Iterator[Opinion]:
    """Whether there is a second witness at all."""
    if facts.final_read is None or facts.replicas is None:
        yield not_judged("the logs on disk were not seen, so the final read has no second witness")


class _Logs(NamedTuple):
    """The replicas of a partition, and what bears on them. `rotten`: node → the fault that took from its log."""

    read: PartitionRead
    replicas: Sequence[Replica]
    in_sync: Sequence[int]
    rotten: Mapping[int, str]
    may_expire: bool
    """Each broker deletes segments in its own time then."""


def _rotten(facts: Facts, place: TopicPartition) -> dict[int, str]:
    """Nodes whose log of this partition a fault took from: what is wrong with it is not Kafka's doing."""
    rots = {
        fault.number: f"fault {fault_name(fault.number)}" for fault in facts.case.faults if fault.rots(place)
    }
    return {node: rots[fault] for fault, node in facts.aimed_at(rots)}


def _of_a_partition(facts: Facts, logs: _Logs) -> Iterator[Opinion]:
    read, rotten = logs.read, logs.rotten
    place = TopicPartition(read.topic, read.partition)
    name = str(place)
    present = {replica.node: replica for replica in logs.replicas if replica.node in logs.in_sync}
    missing = sorted(set(logs.in_sync) - present.keys())
    if missing or not present:
        yield lacks(f"{name}: no log on disk was seen of {_nodes(missing) if missing else 'any replica'}")
        return
    for replica in present.values():
        if replica.reason:
            yield lacks(f"{name}: the log of node {replica.node}: {replica.reason}")
        elif replica.rest:
            yield lacks(
                f"{name}: {replica.rest} bytes at the end of the log of node {replica.node} are no batch"
            )
        elif replica.log_end < read.end:
            says = lacks if replica.node in rotten else _proves
            yield says(
                f"{name}: node {replica.node} is in the ISR and its log ends at {replica.log_end}, below the high "
                f"watermark {read.end}{_since(rotten, replica.node)}"
            )
    whole = {node: replica for node, replica in present.items() if not replica.reason and not replica.rest}
    if not whole:
        return
    if not logs.may_expire:
        yield from map(lacks, _later_starts(name, read, whole))
    start = max(read.start, *(replica.log_start for replica in whole.values()))
    batches = {node: facts.logs.of_replica(place, node) for node in whole}
    rows = {node: _rows(batches[node], start, read.end) for node in whole}
    differing = list(_differences(name, rows, rotten))
    yield from differing
    doubts = [*_holes(name, start, read.end, rows), *_beyond(read, whole, batches)]
    doubts += _of_the_reader(name, read, start, rows)
    doubts += _damaged(name, rows, rotten)
    one = min(whole, key=lambda node: (node in rotten, node))
    compared = compare(
        facts.final_rows,
        place,
        batches[one],
        start,
        read.end,
        summed=_summed(facts, read)[0],
    )
    odd = compared.other and not differing
    if odd:
        yield contradicts(
            f"{name}: the final reader was handed other records than the log of node {one} holds, from offset "
            f"{compared.first} on ({compared.other} batches)"
        )
    yield from map(lacks, doubts)
    if not differing and not doubts and not odd and len(whole) == len(present):
        unknown = f"; the records of {compared.unknown} batches could not be read" if compared.unknown else ""
        alike = f"{name}: the logs of {_nodes(sorted(rows))} agree up to {read.end}"
        yield agrees(f"{alike} and hold what the final read was handed{unknown}")


def _summed(facts: Facts, read: PartitionRead) -> tuple[int | None, int | None]:
    return facts.audit.contents.get(f"{read.topic}/{read.partition}", (None, None))


def _at_read_committed(facts: Facts, logs: _Logs, read: PartitionRead | None) -> Iterator[Opinion]:
    """What transactions promise has a second witness too: their markers in the log."""
    place = TopicPartition(logs.read.topic, logs.read.partition)
    sound = [one for one in logs.replicas if one.node in logs.in_sync and one.node not in logs.rotten]
    if read is None or not sound or sound[0].reason:
        return
    log = facts.logs.of_replica(place, sound[0].node)
    start = max(read.start, sound[0].log_start)
    compared = compare(
        facts.final_rows, place, log, start, read.end, committed=True, summed=_summed(facts, read)[1]
    )
    if compared.other:
        yield contradicts(
            f"{place}: the final reader at read_committed was handed other records than the markers in the log of node "
            f"{sound[0].node} commit, from offset {compared.first} on ({compared.other} batches)"
        )
    elif compared.same:
        yield agrees(
            f"{place}: the final reader at read_committed was handed what the markers in the log of node "
            f"{sound[0].node} commit"
        )


def _since(rotten: Mapping[int, str], *nodes: int) -> str:
    by = ", ".join(f"{rotten[node]} took from that of node {node}" for node in nodes if node in rotten)
    return f"; {by}" if by else ""


def _differences(
    name: str, rows: Mapping[int, Sequence[_Row]], rotten: Mapping[int, str]
) -> Iterator[Opinion]:
    """Each log beside one that no fault took from, if there is any."""
    (first, reference), *others = sorted(rows.items(), key=lambda one: (one[0] in rotten, one[0]))
    for node, mine in others:
        odd = sorted({row.header for row in mine} ^ {row.header for row in reference})
        if odd:
            pair = sorted((first, node))
            says = lacks if rotten.keys() & pair else _proves
            yield says(
                f"{name}: nodes {pair[0]} and {pair[1]} are in the ISR, and below the high watermark their logs "
                f"differ from offset {odd[0].first_offset} on ({len(odd)} batches){_since(rotten, *pair)}"
            )


def _later_starts(name: str, read: PartitionRead, logs: Mapping[int, Replica]) -> Iterator[str]:
    for node, replica in sorted(logs.items()):
        if replica.log_start > read.start:
            yield f"{name}: the log of node {node} begins at {replica.log_start}, and the final read at {read.start}"


def _holes(name: str, start: int, end: int, rows: Mapping[int, Sequence[_Row]]) -> Iterator[str]:
    """Whether each log holds every offset of what was read: brokers leave none out but by compaction."""
    for node, mine in sorted(rows.items()):
        expected = start
        for row in mine:
            if row.first_offset > expected:
                break
            expected = row.last_offset + 1
        if expected < end:
            yield f"{name}: the log of node {node} lacks offset {expected}, and the final read ends at {end}"


def _beyond(
    read: PartitionRead, logs: Mapping[int, Replica], batches: Mapping[int, pa.Table]
) -> Iterator[str]:
    """Whether every log goes on with records behind the end of the final read: they are committed, and not gone."""
    end = min(replica.log_end for replica in logs.values())
    behind = [row for row in _rows(batches[next(iter(logs))], read.end, end) if not row.control]
    if end > read.end and behind:
        yield (
            f"{read.topic}/{read.partition}: the logs of {_nodes(sorted(logs))} go on to {end}, and the final read "
            f"ended at {read.end}"
        )


def _of_the_reader(
    name: str, read: PartitionRead, start: int, rows: Mapping[int, Sequence[_Row]]
) -> Iterator[str]:
    """Whether the reader was handed what each log holds. Records of transactions it may or may not be handed."""
    if read.records < 0 or start != read.start:
        return
    for node, mine in sorted(rows.items()):
        most = sum(row.records for row in mine if not row.control)
        inside = (row for row in mine if row.first_offset >= start and row.last_offset < read.end)
        least = sum(row.records for row in inside if not row.control and not row.transactional)
        if not least <= read.records <= most:
            holds = str(most) if least == most else f"{least} to {most}"
            yield (
                f"{name}: the final reader was handed {read.records} records, and the log of node {node} holds {holds}"
            )
            return


def _damaged(name: str, rows: Mapping[int, Sequence[_Row]], rotten: Mapping[int, str]) -> Iterator[str]:
    for node, mine in sorted(rows.items()):
        if bad := [row for row in mine if not row.sound]:
            yield (
                f"{name}: the checksum of {len(bad)} batches in the log of node {node} does not hold, from offset "
                f"{bad[0].first_offset} on{_since(rotten, node)}"
            )


def _rows(log: pa.Table, start: int, end: int) -> list[_Row]:
    mine = log.filter((pc.field("last_offset") >= start) & (pc.field("first_offset") < end))
    return [_Row(*row) for row in zip(*(mine[name].to_pylist() for name in _Row._fields), strict=True)]


def _nodes(numbers: Sequence[int]) -> str:
    return ("node " if len(numbers) == 1 else "nodes ") + ", ".join(map(str, numbers))
