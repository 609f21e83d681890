"""The replicas' logs on disk: what is told of each log as a whole, beside its batches and the metadata log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.backends import BACKENDS
from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir.metadata import TopicCreated
from ackproof.rundir.payload import UNKNOWN_CONTENT
from ackproof.rundir.replicas import Replica

_PLACE = ["node", "topic", "partition"]
_BATCH = ["topic", "partition", "first_offset"]
_COVERED = [
    "last_offset", "records", "control", "transactional", "producer_id", "producer_epoch", "base_sequence",
    "max_timestamp_ms", "content", "bytes",
]  # fmt: skip
"""What the checksum of a batch covers, or what follows from that."""


def check(facts: Facts) -> Iterator[Opinion]:
    """Contradictions about logs on disk. Raises `BadInput` for files that are broken."""
    if facts.replicas is None:
        return
    replicas = facts.replicas.replicas
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
    read = facts.batches
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
    yield from map(contradicts, _copies(facts.batches))


def _beside_batches(name: str, replica: Replica, last: int | None, records: int) -> Iterator[str]:
    if last is None and replica.records:
        yield f"{name} has {replica.records} records, and no batch of it was written down"
    elif last is not None and replica.log_end != last + 1:
        yield f"{name} ends at {replica.log_end}, and its last batch at {last}"
    elif records >= 0 and replica.records != records:
        yield f"{name} has {replica.records} records, and its batches {records}"
    if replica.log_start > replica.log_end:
        yield f"{name} begins at {replica.log_start} and ends at {replica.log_end}"


def _copies(batches: pa.Table) -> Iterator[str]:
    """A batch is copied byte by byte, but for the end of its header: what its checksum covers is as equal as that is.

    The other way round, where a checksum alone differs in what is sound, somebody wrote the same records in other
    words, at the same time, into as many bytes: no broker does.
    """
    sound = batches.filter(pc.field("sound"))
    known = pc.if_else(pc.equal(sound["content"], UNKNOWN_CONTENT), None, sound["content"])
    sound = sound.set_column(sound.column_names.index("content"), "content", known)
    for key in ("crc", "content"):
        group = [*_BATCH, key] if key == "crc" else [*_BATCH, *_COVERED]
        covered = [name for name in (*_COVERED, "crc") if name not in group]
        known_too = sound if key == "crc" else sound.filter(pc.is_valid(sound["content"]))
        spans = known_too.group_by(group).aggregate(
            [(name, side) for name in covered for side in ("min", "max")]
        )
        for name in covered:
            odd = spans.filter(pc.field(f"{name}_min") != pc.field(f"{name}_max"))
            if odd.num_rows:
                one = odd.slice(0, 1).to_pylist()[0]
                how = "one checksum" if key == "crc" else "all else alike"
                yield (
                    f"{one['topic']}/{one['partition']}: the logs on disk have the batch at offset "
                    f"{one['first_offset']} with {how}, and {name} {one[f'{name}_min']} and {one[f'{name}_max']} "
                    f"({odd.num_rows} such batches)"
                )
