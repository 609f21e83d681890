"""Makes a healthy run directory with one consumer group; `planted_groups` plants anomaly classes in it.

Each partition has `records` records at offsets 0, 1, …. Partition p belongs to member p % members, which processes it
in batches and commits after each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ackproof.rundir.groups import (
    COMMITS,
    DELIVERIES,
    MEMBERSHIP,
    OFFSETS_LOG,
    CommitResult,
    LogDecision,
    MembershipEvent,
    OffsetsRecord,
    ProcessingState,
)
from ackproof.rundir.layout import CaseDir
from ackproof.rundir.outcome import ReadPhase
from ackproof.rundir.schema import CONSUMED
from ackproof.rundir.service import OUTPUT
from written_group import LOG_PARTITION, MS, START, TOPIC, WALL_MS, write_group


class Table:
    """A table of a ledger. `columns`: its healthy rows, which tests may change. `there`: False for each healthy row
    that a test has removed. `extra`: rows that a test has added."""

    def __init__(self, schema: pa.Schema, columns: dict[str, Any], length: int) -> None:
        self.schema = schema
        self.columns = {
            name: value if isinstance(value, str | bool) else np.array(np.broadcast_to(value, length))
            for name, value in columns.items()
        }
        self.length = length
        self.there = np.ones(length, bool)
        self.extra: list[dict[str, Any]] = []

    def row(self, at: int) -> dict[str, Any]:
        """Return a copy of the healthy row with index `at`, by name of the column."""
        return {
            name: value if isinstance(value, str | bool) else value[at].item()
            for name, value in self.columns.items()
        }

    def find(self, **values: Any) -> np.ndarray:
        """Return the indices of the healthy rows with these values, without removed rows."""
        found = self.there.copy()
        for name, value in values.items():
            found &= self.columns[name] == value
        return np.flatnonzero(found)

    def table(self) -> pa.Table:
        kept = np.flatnonzero(self.there)
        added = pa.Table.from_pylist(self.extra, self.schema)
        if not len(kept):
            return added
        arrays = [
            pa.repeat(pa.scalar(value, type_), len(kept))
            if isinstance(value, str | bool)
            else pa.array(value[kept], type_)
            for value, type_ in ((self.columns[f.name], f.type) for f in self.schema)
        ]
        return pa.concat_tables([pa.Table.from_arrays(arrays, schema=self.schema), added])


@dataclass
class HealthyGroup:
    """Content of a healthy run directory. Change the attributes, then call `write`.

    `batch`: records that a member processes before it commits. `output`: True if the group writes to an output topic;
    with `commit` "transaction" always. `group_metadata`: that setting of the group in the experiment."""

    records: int = 200
    """Number of records of each partition."""
    partitions: int = 4
    members: int = 2
    group: str = "billing"
    commit: str = "after"
    protocol: str = "classic"
    kafka: str = "4.4.0"
    output: bool = False
    group_metadata: bool = True
    batch: int = 10
    producers: int = 2
    transactional: bool = False
    """True if the producers use transactions, all of which are committed."""
    spec: str = ""
    """Further fields of the group in the experiment, as YAML."""
    committed: dict[int, int] = field(init=False)
    """By partition: the committed offset at the end of the run."""
    whole: bool = True
    """True if the replicas' logs of `__consumer_offsets` have all records since their creation."""
    problem: str = ""
    """Reason why the output could not be read completely; '' if it could."""
    unanswered: str = ""
    """Reason why OffsetFetch had no answer; '' if it had."""

    def __post_init__(self) -> None:
        self.output = self.output or self.commit == "transaction"
        self.committed = dict.fromkeys(range(self.partitions), self.records)
        count = self.records * self.partitions
        partition, offset = np.divmod(np.arange(count), self.records)
        self.partition, self.offset = partition, offset
        self.producer = offset % self.producers
        self.seq = offset // self.producers * self.partitions + partition
        self.generation = self.members
        """Generation of the group, which every member has; with KIP-848 its group epoch."""
        number = offset // self.batch
        delivered = START + number * (self.batch + 2) * MS
        processed = delivered + (offset % self.batch + 1) * MS
        own = -(-self.partitions // self.members)
        """Greatest number of partitions that a member has."""
        self.deliveries = Table(
            DELIVERIES,
            {
                "group": self.group,
                "member": partition % self.members,
                "generation": self.generation,
                "batch": number * own + partition // self.members,
                "topic": TOPIC,
                "partition": partition,
                "offset": offset,
                "producer": self.producer,
                "seq": self.seq,
                "delivered_ns": delivered,
                "processed_ns": processed,
                "state": int(ProcessingState.EFFECTIVE),
                "commit": number * own + partition // self.members if self.commit == "transaction" else -1,
            },
            count,
        )
        """Row p * records + o is the delivery of record o of partition p."""
        self._make_commits(own)
        self._make_membership()
        self._make_log()
        self.final = Table(
            CONSUMED,
            {
                "reader": 50,
                "phase": int(ReadPhase.FINAL),
                "assignment": 0,
                "read_seq": np.arange(count),
                "topic": TOPIC,
                "partition": partition,
                "offset": offset,
                "leader_epoch": 0,
                "producer": self.producer,
                "seq": self.seq,
                "origin_topic": TOPIC,
                "origin_partition": partition,
                "intact": np.ones(count, bool),
                "read_ns": 10**12,
                "timestamp_ms": WALL_MS,
            },
            count,
        )
        """Rows of the final read. If the producers use transactions, the read at read_committed has the same rows."""
        self.copies = (
            Table(
                OUTPUT,
                {"producer": self.producer, "seq": self.seq, "partition": partition, "offset": offset},
                count if self.output else 0,
            )
            if self.output
            else Table(OUTPUT, dict.fromkeys(OUTPUT.names, 0), 0)
        )
        """Rows of the output, in the order of the input; none without an output."""

    def _make_commits(self, own: int) -> None:
        batches = -(-self.records // self.batch)
        partition, batch = np.divmod(np.arange(self.partitions * batches), batches)
        begun = START + batch * (self.batch + 2) * MS + self.batch * MS + MS // 2
        self.commits = Table(
            COMMITS,
            {
                "group": self.group,
                "member": partition % self.members,
                "number": batch * own + partition // self.members,
                "generation": self.generation,
                "generation_after": self.generation,
                "topic": TOPIC,
                "partition": partition,
                "offset": np.minimum((batch + 1) * self.batch, self.records),
                "begun_ns": begun,
                "done_ns": begun + MS // 2,
                "result": int(CommitResult.ACCEPTED),
                "error": "",
                "transaction": np.full(len(batch), self.commit == "transaction"),
            },
            len(batch),
        )
        """Row p * batches + b is the commit of batch b of partition p."""
        self.batches = batches

    def _make_membership(self) -> None:
        self.membership = Table(MEMBERSHIP, dict.fromkeys(MEMBERSHIP.names, 0), 0)
        end = START + (self.batches + 1) * (self.batch + 2) * MS
        for partition in range(self.partitions):
            member = partition % self.members
            self.member_event(MembershipEvent.ASSIGNED, member, partition, START - 30 * MS)
            self.member_event(MembershipEvent.POSITION, member, partition, START - 20 * MS, offset=-1)
            self.member_event(
                MembershipEvent.RESET, member, partition, START - 19 * MS, offset=0, why="_NO_OFFSET"
            )
            self.member_event(MembershipEvent.REVOKED, member, partition, end)
        for member in range(self.members):
            self.member_event(MembershipEvent.CLOSED, member, -1, end + MS)

    def member_event(self, event: str, member: int, partition: int, t_ns: int, **other: Any) -> None:
        """Add a row to the membership ledger. `other`: further columns; by default both offsets are -1, and the
        generation is the group's."""
        self.membership.extra.append(
            {
                "group": self.group,
                "member": member,
                "event": str(event),
                "member_id": f"m{member}",
                "generation": self.generation,
                "topic": TOPIC if partition >= 0 else "",
                "partition": partition,
                "from_offset": -1,
                "offset": -1,
                "why": "",
                "t_ns": t_ns,
                **other,
            }
        )

    def _make_log(self) -> None:
        order = np.argsort(self.commits.columns["begun_ns"], kind="stable")
        count, first, step = len(order), 100, 2
        at = first + step * np.arange(count)
        of = {
            name: value[order] for name, value in self.commits.columns.items() if not isinstance(value, str)
        }
        transaction = self.commit == "transaction"
        self.log = Table(
            OFFSETS_LOG,
            {
                "node": 0,
                "log_partition": LOG_PARTITION,
                "log_offset": at,
                "timestamp_ms": WALL_MS + of["begun_ns"] // MS,
                "record": str(OffsetsRecord.COMMIT),
                "group": self.group,
                "topic": TOPIC,
                "partition": of["partition"],
                "offset": of["offset"],
                "epoch": -1,
                "member_id": "",
                "producer_id": 1000 + of["member"] if transaction else -1,
                "decision": int(LogDecision.IN_FORCE),
                "decided_at": at + 1 if transaction else -1,
                "member": of["member"],
                "number": of["number"],
                "generation": of["generation"],
            },
            count,
        )
        """Records in the log of `__consumer_offsets`, in order; `write` writes them for each replica. Odd offsets are
        free for tests."""
        for epoch in range(1, self.generation + 1):
            self.log_record(4 * epoch, OffsetsRecord.GROUP, epoch=epoch)
        if self.protocol == "consumer":
            for partition in range(self.partitions):
                member = partition % self.members
                assigned = min(self.generation, member + 1) if self.kafka >= "4.3" else -1
                self.log_record(
                    60 + member, OffsetsRecord.MEMBER, epoch=self.generation, member_id=f"m{member}",
                    topic=TOPIC, partition=partition, offset=assigned,
                )  # fmt: skip

    def log_record(self, log_offset: int, record: str, **other: Any) -> None:
        """Add a record to the log of each replica. `other`: its further columns. A commit has no metadata unless
        `member` and `number` are given."""
        self.log.extra.append(
            {
                "node": 0,
                "log_partition": LOG_PARTITION,
                "log_offset": log_offset,
                "timestamp_ms": WALL_MS,
                "record": str(record),
                "group": self.group,
                "topic": "",
                "partition": -1,
                "offset": -1,
                "epoch": -1,
                "member_id": "",
                "producer_id": -1,
                "decision": int(LogDecision.IN_FORCE),
                "decided_at": -1,
                "member": -1,
                "number": -1,
                "generation": -1,
                **other,
            }
        )

    @property
    def log_end(self) -> int:
        """Log end offset of every replica."""
        most = [row["log_offset"] + 2 for row in self.log.extra]
        return int(max([101 + 2 * self.log.length, *most]))

    @property
    def over_ns(self) -> int:
        """Time in ns after the last commit and before the last revocation."""
        return START + self.batches * (self.batch + 2) * MS + MS

    def write(self, folder: Path, **options: Any) -> CaseDir:
        """Write the run directory, without the files that are prepared before the audit. `options`: arguments of
        Parquet's writer."""
        return write_group(self, folder, **options)
