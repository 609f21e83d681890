"""The truth about a topic, for a ledger: the cluster healed and at rest, all of it read back, audited by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ackproof.audit.results import AuditResult
from ackproof.base.errors import AuditFailed, EvidenceMissing
from ackproof.base.wait import wait_until
from ackproof.rundir.documents import AuditFile
from ackproof.rundir.partition import TopicPartition
from ackproof.testing.book import Attempt, Book, Content
from ackproof.testing.cluster import KafkaCluster
from ackproof.testing.final_reader import FinalReader, FinalRecord
from ackproof.testing.ledger_files import write_ledgers
from ackproof.workload.final_read import ends_of, final_read
from ackproof.workload.final_readers import FinalReadOrder

Audit = Callable[[Path], AuditResult]
_DESCRIBE_S: Final = 10.0


@dataclass(frozen=True)
class Finding:
    """One thing that the audit found. `attempt` is whose record it is about, if anybody's."""

    anomaly: str
    topic: str
    partition: int
    offset: int
    detail: str
    attempt: Attempt | None


@dataclass(frozen=True)
class Evidence:
    """What is known once all was read back."""

    audit: AuditFile
    findings: tuple[Finding, ...]
    places: tuple[TopicPartition, ...]
    final: tuple[FinalRecord, ...]

    def contents(self) -> dict[Content, int]:
        """How many copies there are of what was written."""
        copies: dict[Content, int] = {}
        for record in self.final:
            copies[record.content] = copies.get(record.content, 0) + 1
        return copies


def gather(cluster: KafkaCluster, book: Book, audit: Audit, settle_s: float) -> Evidence:
    """Settle, read back, write both ledgers, audit.

    Raises `EvidenceMissing` where the read or the audit is not complete, `AuditFailed` where it could not count.
    """
    topics = {attempt.content.topic for attempt in [*book.attempts(), *book.not_taken()]}
    topics |= {read.topic for reader in book.readers for read in reader.reads}
    places, copies = _describe(cluster, topics)
    reader = FinalReader(places, cluster.bootstrap, book.run_id, book.origin_ns)
    order = FinalReadOrder(
        places=places,
        isr_sizes=copies,
        reader=len(book.readers),
        bootstrap=cluster.bootstrap,
        settle_s=settle_s,
    )
    ends = ends_of(cluster.cluster)
    read = final_read(order, ends, cluster.clock, cluster.tag, read=reader.read)
    write_ledgers(cluster.run, book, places, reader.records)
    result = audit(cluster.run.path)
    lacks = [*read.reasons, *result.reasons]
    if result.file is not None and result.file.final_read.count:
        lacks.append(f"the final read passed over {result.file.final_read.count} places")
    if lacks:
        text = f"nothing can be said: {'; '.join(lacks)} (run directory: {cluster.run.path})"
        raise AuditFailed(text, result.code) if result.file is None else EvidenceMissing(text)
    assert result.file is not None
    return Evidence(result.file, tuple(_findings(cluster, book)), places, tuple(reader.records))


def _describe(
    cluster: KafkaCluster, topics: set[str]
) -> tuple[tuple[TopicPartition, ...], Mapping[str, int]]:
    """The partitions of these topics, and how many replicas each topic has. Topics that nobody knows have none."""
    known = set(topics)

    def look() -> dict[TopicPartition, int] | None:
        states = cluster.cluster.topic_state(known)
        found = {TopicPartition(*place): len(state.replicas) for place, state in states.items()}
        missing = (known & cluster.topics.keys()) - {place.topic for place in found}
        return found if found and not missing else None

    states = wait_until(look, what=f"a broker to describe {', '.join(sorted(known))}", timeout_s=_DESCRIBE_S)
    places = tuple(sorted(states))
    return places, {place.topic: states[place] for place in places}


def _findings(cluster: KafkaCluster, book: Book) -> list[Finding]:
    import pyarrow.parquet as pq

    found: list[Finding] = []
    for part in sorted(cluster.run.findings.glob("*.parquet")):
        found += [
            Finding(
                row["class"],
                row["topic"],
                row["partition"],
                row["offset"],
                row["detail"],
                _attempt(book, row["producer"], row["seq"]),
            )
            for row in pq.read_table(part, partitioning=None).to_pylist()
        ]
    return found


def _attempt(book: Book, producer: int, seq: int) -> Attempt | None:
    if not 0 <= producer < len(book.producers):
        return None
    attempts = book.producers[producer].attempts
    return attempts[seq] if 0 <= seq < len(attempts) else None
