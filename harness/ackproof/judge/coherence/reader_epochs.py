"""The leader epoch of each record that the final reader was handed, beside the batch of the log that holds it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.judge.facts import Facts
from ackproof.judge.opinion import Opinion, contradicts
from ackproof.rundir import storage
from ackproof.rundir.layout import client_folder
from ackproof.rundir.ledger import parts
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.parts import Footer

_COLUMNS: Final = ["topic", "partition", "offset", "leader_epoch"]
_KEY: Final = ["topic", "partition", "leader_epoch"]
Spans: TypeAlias = dict[tuple[TopicPartition, int], tuple[int, int]]
"""By place and leader epoch: first and last offset."""


def check(facts: Facts) -> Iterator[Opinion]:
    """An epoch's records stand together in a log: so do the rows that are of it."""
    if facts.replicas is None or facts.final_read is None:
        return
    held = _held(facts)
    places = {place for place, _ in held}
    try:
        read = _read(facts, held, places)
    except (OSError, pa.ArrowException, KeyError):
        return  # the audit says that a part cannot be read
    for (place, epoch), (first, last) in sorted(read.items()):
        if epoch < 0 or place not in places:
            continue  # nobody said, or nobody saw a log of it
        known = held.get((place, epoch))
        if known is None or not known[0] <= first <= last <= known[1]:
            has = f"has that from {known[0]} to {known[1]}" if known else "does not have that epoch"
            yield contradicts(
                f"{place}: the final reader was handed records of leader epoch {epoch} from offset {first} to {last}, "
                f"and the log on disk {has}"
            )


def _read(facts: Facts, held: Spans, places: Set[TopicPartition]) -> Spans:
    """What the final readers were handed, but for row groups that agree by their footers."""
    folders = [facts.run.consumed / client_folder(one.id) for one in facts.clients if one.kind == "final"]
    found: Spans = {}
    for path in (path for folder in folders for path in parts(folder)):
        with storage.open_parquet(path) as file:
            for group in range(file.num_row_groups):
                if not _agrees(Footer.read(file.metadata, group), held, places):
                    _widen(found, file.read_row_group(group, columns=_COLUMNS), "offset", "offset")
    return found


def _agrees(footer: Footer, held: Spans, places: Set[TopicPartition]) -> bool:
    """Whether the log of every place that a row may be of has all the offsets in the one epoch of these rows."""
    topic, (first, last) = footer.texts.get("topic"), footer.numbers.get("partition", (0, -1))
    epoch = int(footer.least("leader_epoch")) if "leader_epoch" in footer.numbers else -1
    if topic is None or not footer.is_all("leader_epoch", epoch) or not 0 <= last - first <= len(places):
        return False
    for place in (TopicPartition(topic, number) for number in range(int(first), int(last) + 1)):
        begin, end = held.get((place, epoch), (0, -1))
        if place in places and not begin <= footer.least("offset") <= footer.most("offset") <= end:
            return False
    return True


def _held(facts: Facts) -> Spans:
    """Of the logs of replicas in sync, where these are whole: they agree, or are said to differ.

    Where a log begins above 0 or is compacted, what the reader was handed may be gone since.
    """
    whole = set()
    for one in facts.replicas.replicas if facts.replicas is not None else ():
        place = TopicPartition(one.topic, one.partition)
        known = one.topic in facts.case.experiment.topics
        if not known or facts.may_compact(one.topic) or one.log_start > 0:
            continue
        if one.node in facts.in_sync.get(place, ()) and not one.reason and not one.rest:
            whole.add((one.node, *place))
    found: Spans = {}
    if whole:
        records = facts.batches.filter(pc.invert(pc.field("control")))
        _widen(found, records, "first_offset", "last_offset", whole)
    return found


def _widen(
    spans: Spans, table: pa.Table, first: str, last: str, logs: Set[tuple[int, str, int]] | None = None
) -> None:
    """`logs`: of these alone, by node, topic and partition."""
    key_columns = _KEY if logs is None else ["node", *_KEY]
    for row in table.group_by(key_columns).aggregate([(first, "min"), (last, "max")]).to_pylist():
        if logs is not None and (row["node"], row["topic"], row["partition"]) not in logs:
            continue
        key = TopicPartition(row["topic"], row["partition"]), row["leader_epoch"]
        low, high = spans.get(key, (row[f"{first}_min"], row[f"{last}_max"]))
        spans[key] = min(low, row[f"{first}_min"]), max(high, row[f"{last}_max"])
