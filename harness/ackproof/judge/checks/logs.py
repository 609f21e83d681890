"""The second witness: what the replicas had on disk, beside what the final reader was handed (docs/audit.md).

The reader could be wrong, and then nothing may be called lost. The replicas could differ, and then what a reader is
handed depends on who leads: below the high watermark no configuration permits that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, agrees, breaks, lacks, not_judged
from ackproof.rundir.documents import PartitionRead
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.replicas import Replica, ReplicasFile
from ackproof.rundir.samples import read_samples

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


_PLACE: Final = ("node", "topic", "partition")


def check(facts: Facts) -> Iterator[Opinion]:
    """Compare the logs with each other and with the final read. Raises `BadInput` for files that are broken."""
    final, run = facts.final_read, facts.run
    if final is None or not run.replicas.exists():
        return
    seen = ReplicasFile.load(run.replicas)
    yield from (lacks(f"the logs on disk: {reason}") for reason in seen.reasons)
    in_sync = _in_sync(run)
    batches = pq.read_table(run.replica_batches, columns=[*_PLACE, *_Row._fields])
    for read in final.partitions:
        place = TopicPartition(read.topic, read.partition)
        policy = facts.case.experiment.topics[read.topic].config.get("cleanup.policy", "delete")
        if not read.complete or "compact" in policy:
            continue  # the one says so itself; of the other each replica may have compacted another part
        mine = [replica for replica in seen.replicas if (replica.topic, replica.partition) == place]
        yield from _of_a_partition(batches, read, mine, in_sync.get(place, ()))


def check_presence(facts: Facts) -> Iterator[Opinion]:
    """Whether there is a second witness at all."""
    if facts.final_read is None or not facts.run.replicas.exists():
        yield not_judged("the logs on disk were not seen, so the final read has no second witness")


def _of_a_partition(
    batches: pa.Table, read: PartitionRead, replicas: Sequence[Replica], in_sync: Sequence[int]
) -> Iterator[Opinion]:
    name = f"{read.topic}/{read.partition}"
    present = {replica.node: replica for replica in replicas if replica.node in in_sync}
    missing = sorted(set(in_sync) - present.keys())
    if missing or not present:
        yield lacks(f"{name}: no log on disk was seen of {_nodes(missing) if missing else 'any replica'}")
        return
    for replica in present.values():
        if replica.reason:
            yield lacks(f"{name}: the log of node {replica.node}: {replica.reason}")
        elif replica.log_end < read.end:
            yield _proves(
                f"{name}: node {replica.node} is in the ISR and its log ends at {replica.log_end}, below the high "
                f"watermark {read.end}"
            )
    whole = {node: replica for node, replica in present.items() if not replica.reason}
    if not whole:
        return
    start = max(read.start, *(replica.log_start for replica in whole.values()))
    rows = {node: _rows(batches, replica, start, read.end) for node, replica in whole.items()}
    differing = list(_differences(name, rows))
    yield from map(_proves, differing)
    doubts = list(_of_the_reader(name, read, start, rows))
    yield from map(lacks, doubts)
    if not differing and not doubts and len(whole) == len(present):
        logs = f"{name}: the logs of {_nodes(sorted(rows))} agree up to {read.end}"
        yield agrees(f"{logs} and hold what the final read was handed")


def _differences(name: str, rows: Mapping[int, Sequence[_Row]]) -> Iterator[str]:
    (first, reference), *others = sorted(rows.items())
    for node, mine in others:
        odd = sorted(set(mine) ^ set(reference))
        if odd:
            yield (
                f"{name}: nodes {first} and {node} are in the ISR, and below the high watermark their logs differ "
                f"from offset {odd[0].first_offset} on ({len(odd)} batches)"
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


def _rows(batches: pa.Table, replica: Replica, start: int, end: int) -> list[_Row]:
    mine = batches.filter(
        (pc.field("node") == replica.node)
        & (pc.field("topic") == replica.topic)
        & (pc.field("partition") == replica.partition)
        & (pc.field("last_offset") >= start)
        & (pc.field("first_offset") < end)
    )
    return [_Row(*row) for row in zip(*(mine[name].to_pylist() for name in _Row._fields), strict=True)]


def _in_sync(run: CaseDir) -> dict[TopicPartition, tuple[int, ...]]:
    """The ISR of each partition when it was seen last."""
    return {
        TopicPartition(sample.topic, sample.partition): sample.isr
        for sample in read_samples(run.samples)
        if sample.isr
    }


def _nodes(numbers: Sequence[int]) -> str:
    return ("node " if len(numbers) == 1 else "nodes ") + ", ".join(map(str, numbers))
