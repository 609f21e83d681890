"""Records that expired: acknowledged, kept, and then deleted as the topic's retention says. They are not lost.

Below its start a log holds nothing. That is retention's doing only where a setting allows it: of records older than
`retention.ms`, or of a log that still has `retention.bytes` without them (org.apache.kafka.storage.internals.log
UnifiedLog.deleteOldSegments). What no setting explains stays lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ackproof.experiment.experiment import ExperimentSpec
from ackproof.experiment.promises import in_force
from ackproof.reference.explain.rows import ledger_rows
from ackproof.rundir.anomalies import Anomaly
from ackproof.rundir.documents import PartitionRead
from ackproof.rundir.outcome import Outcome
from ackproof.rundir.partition import TopicPartition

if TYPE_CHECKING:
    from ackproof.judge.facts import Facts

GONE: Final = (Anomaly.LOST, Anomaly.VANISHED)
"""Of what is deleted these would be counted."""
_MS: Final = {
    "retention.ms": 1,
    "log.retention.ms": 1,
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
}
"""The first of these that is given counts; the factor makes it milliseconds."""
_BYTES: Final = ("retention.bytes", "log.retention.bytes")
_WEEK_MS: Final = 7 * 24 * 3_600_000


class Expired(NamedTuple):
    """Below `start` this partition's log holds nothing, and why that is right."""

    place: TopicPartition
    start: int
    why: str

    @property
    def below(self) -> pc.Expression:
        """Findings that stand there."""
        return (
            (pc.field("topic") == self.place.topic)
            & (pc.field("partition") == self.place.partition)
            & (pc.field("offset") >= 0)
            & (pc.field("offset") < self.start)
        )


def below(gone: Sequence[Expired]) -> pc.Expression:
    """Findings that stand where retention deleted."""
    return reduce(or_, (one.below for one in gone), pc.scalar(False))


class Retention(NamedTuple):
    """The shortest that was in force; infinity where nothing is deleted by it."""

    ms: float
    bytes: float

    @property
    def usual(self) -> bool:
        """Whether it is Kafka's own, by which nothing of a run is old enough."""
        return self == (_WEEK_MS, math.inf)


def retention(spec: ExperimentSpec, topic: str) -> Retention:
    """Of a topic, on any broker, at any time."""
    found = [_of(config) for config in in_force(spec, topic)]
    return Retention(min(one.ms for one in found), min(one.bytes for one in found))


def _of(config: Mapping[str, str]) -> Retention:
    policy = config.get("cleanup.policy", config.get("log.cleanup.policy", "delete"))
    if "delete" not in policy:
        return Retention(math.inf, math.inf)
    ms = next((int(config[name]) * factor for name, factor in _MS.items() if name in config), _WEEK_MS)
    size = next((int(config[name]) for name in _BYTES if name in config), -1)
    return Retention(ms if ms >= 0 else math.inf, size if size >= 0 else math.inf)


def expired(facts: Facts) -> Sequence[Expired]:
    """The partitions of which something expired."""
    if facts.final_read is None:
        return ()
    started = [one for one in facts.final_read.partitions if one.complete and one.start > 0]
    found = [
        Expired(TopicPartition(one.topic, one.partition), one.start, _explained(facts, one))
        for one in started
    ]
    return [one for one in found if one.why]


def _explained(facts: Facts, read: PartitionRead) -> str:
    """Which setting let the log begin where it does; '' none."""
    place = TopicPartition(read.topic, read.partition)
    keeps = retention(facts.case.experiment, read.topic)
    where = f"{place} begins at offset {read.start:,}"
    if not math.isinf(keeps.bytes):
        left = _bytes_left(facts, place)
        if left is not None and left >= keeps.bytes:
            return f"{where} and has {left:,} bytes, at retention.bytes {keeps.bytes:,.0f}"
    newest = _newest_sent_ns(facts, read)
    if newest is not None and facts.events and newest + keeps.ms * 1e6 <= facts.events[-1].t_ns:
        return f"{where}, and what was sent before that is older than retention.ms {keeps.ms:,.0f}"
    return ""


def _bytes_left(facts: Facts, place: TopicPartition) -> int | None:
    """The bytes of the shortest log of the partition; None where no log was seen."""
    if facts.replicas is None:
        return None
    batches = facts.batches
    mine = batches.filter((pc.field("topic") == place.topic) & (pc.field("partition") == place.partition))
    sums = mine.group_by("node").aggregate([("bytes", "sum")])["bytes_sum"].to_pylist()
    return min(sums, default=None)


def _newest_sent_ns(facts: Facts, read: PartitionRead) -> int | None:
    """When the youngest record that was acknowledged below the log's start was sent; None where there is none."""
    below = Expired(TopicPartition(read.topic, read.partition), read.start, "").below
    wanted = below & (pc.field("outcome") == int(Outcome.ACKED))
    try:
        rows = ledger_rows(facts.run.produced, ["sent_ns"], wanted)
    except (OSError, pa.ArrowException):
        return None  # there is no part, or the audit says that one cannot be read
    return int(pc.max(rows["sent_ns"]).as_py()) if rows.num_rows else None
