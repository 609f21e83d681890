"""The replicas' logs on disk: what is told of each log as a whole, beside its batches and the metadata log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import pyarrow.compute as pc

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.metadata import TopicCreated
from ackproof.rundir.replicas import Replica, ReplicasFile, read_batches

_PLACE = ["node", "topic", "partition"]


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about logs on disk. Raises `BadInput` for files that are broken."""
    if not facts.run.replicas.exists():
        return
    replicas = ReplicasFile.load(facts.run.replicas).replicas
    for folder, count in Counter((one.node, one.folder) for one in replicas).items():
        if count > 1:
            yield contradicts(
                f"observed/replicas.json tells of {folder[1]} on node {folder[0]} {count} times"
            )
    # A node with several log dirs may have two logs of one partition: their batches do not say whose they are.
    times = Counter((one.node, one.topic, one.partition) for one in replicas)
    ids: dict[str, set[str]] = defaultdict(set)
    for record in facts.metadata:
        if isinstance(record, TopicCreated):
            ids[record.topic].add(record.topic_id)
    read = read_batches(facts.run.replica_batches, [*_PLACE, "last_offset", "records", "control"])
    kept = pc.if_else(read["control"], 0, read["records"])
    read = read.set_column(read.column_names.index("records"), "records", kept)
    seen = {
        (row["node"], row["topic"], row["partition"]): (row["last_offset_max"], row["records_sum"])
        for row in read.group_by(_PLACE).aggregate([("last_offset", "max"), ("records", "sum")]).to_pylist()
    }
    for replica in replicas:
        name = f"{replica.topic}/{replica.partition}: the log of node {replica.node}"
        if replica.topic_id and ids[replica.topic] and replica.topic_id not in ids[replica.topic]:
            yield contradicts(f"{name} is of topic {replica.topic_id}, which the metadata log does not know")
        place = (replica.node, replica.topic, replica.partition)
        if not replica.reason and times[place] == 1:
            last, records = seen.get(place, (None, 0))
            counted = -1 if BACKENDS[facts.backend].simulated else records  # the model counts markers, too
            yield from map(contradicts, _beside_batches(name, replica, last, counted))


def _beside_batches(name: str, replica: Replica, last: int | None, records: int) -> Iterator[str]:
    if last is None and replica.records:
        yield f"{name} has {replica.records} records, and no batch of it was written down"
    elif last is not None and replica.log_end != last + 1:
        yield f"{name} ends at {replica.log_end}, and its last batch at {last}"
    elif records >= 0 and replica.records != records:
        yield f"{name} has {replica.records} records, and its batches {records}"
    if replica.log_start > replica.log_end:
        yield f"{name} begins at {replica.log_start} and ends at {replica.log_end}"
