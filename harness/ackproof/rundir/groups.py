"""Consumer groups of a run: ledgers of their members, the history of `__consumer_offsets`, and their state at the end.

A member prints the events of docs/clients.md to `clients/<id>/lines.jsonl`. When it has ended, the harness converts
these into one part of each ledger: `ledger/{deliveries,commits,membership}/client=<id>/part-000000.parquet`. No column
is ever null; -1 and '' are unknown. Times are ns since the run began.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import pyarrow as pa

from ackproof.rundir.committed import GroupOffsets
from ackproof.rundir.document import Document
from ackproof.rundir.partition import TopicPartition
from ackproof.rundir.schema import required


class CommitResult(IntEnum):
    """Outcome of a commit as its member knows it: column `result` of `COMMITS`."""

    ACCEPTED = 0
    REFUSED = 1
    """An error that shows that nothing was committed: one that is thrown before the append, or in a transaction one
    after which the transaction was aborted."""
    UNKNOWN = 2
    """No answer, a time-out, or an error after which the commit may be in the log."""


class ProcessingState(IntEnum):
    """State of the processing of a delivered record: column `state` of `DELIVERIES`. EFFECTIVE: it was processed
    outside of transactions, or in one that was committed."""

    NOT_PROCESSED = 0
    EFFECTIVE = 1
    ABORTED = 2
    """It was processed in a transaction that was aborted."""
    UNKNOWN = 3
    """It was processed in a transaction whose outcome is unknown."""


class MembershipEvent(StrEnum):
    """Event of a member in its group, such as an assignment: column `event` of `MEMBERSHIP`."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
    POSITION = "position"
    """The group's committed offset of an assigned partition, as the coordinator answered the member: `offset`, -1
    for none. `from_offset` is -1."""
    RESET = "reset"
    """The member went on at `offset`, because its position `from_offset` was not in the log (-1: nothing was
    committed)."""
    CLOSED = "closed"


DELIVERIES: Final = required(
    ("group", pa.string()),
    ("member", pa.int32()),
    ("generation", pa.int32()),
    ("batch", pa.int64()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("producer", pa.int32()),
    ("seq", pa.int64()),
    ("delivered_ns", pa.int64()),
    ("processed_ns", pa.int64()),
    ("state", pa.int8()),
    ("commit", pa.int64()),
)
"""One row per delivery of a record to a member. Sorted by partition, then in the order of delivery.

`member`: number N of the client `gN`. `generation`: generation of the group (classic) or member epoch (KIP-848) at the
poll. `batch`: number of the poll. `producer`, `seq`: identity in the record's value. `processed_ns`: -1 if the record
was not processed. `state`: a `ProcessingState`. `commit`: number of the transaction that processed it; -1: none."""

COMMITS: Final = required(
    ("group", pa.string()),
    ("member", pa.int32()),
    ("number", pa.int64()),
    ("generation", pa.int32()),
    ("generation_after", pa.int32()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("begun_ns", pa.int64()),
    ("done_ns", pa.int64()),
    ("result", pa.int8()),
    ("error", pa.string()),
    ("transaction", pa.bool_()),
)
"""One row per partition of a commit that a member asked for; none for a library's automatic commits. Sorted by
partition, then in the order of the calls.

`number`: number of the commit among those of the member. `generation`, `generation_after`: the member's generation or
epoch before the call, and after its answer. `begun_ns`: time just before the call. `done_ns`: time of the answer, -1
for none. `result`: a `CommitResult`. `transaction`: True if the offsets were sent in a transaction."""

MEMBERSHIP: Final = required(
    ("group", pa.string()),
    ("member", pa.int32()),
    ("event", pa.string()),
    ("member_id", pa.string()),
    ("generation", pa.int32()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("from_offset", pa.int64()),
    ("offset", pa.int64()),
    ("why", pa.string()),
    ("t_ns", pa.int64()),
)
"""One row per partition of an event of a member, in order of time. An event without partitions has one row with
partition -1. `event`: a `MembershipEvent`. `member_id`: the coordinator's name of the member. `why`: of a reset, the
library's name of the error."""


class LogDecision(IntEnum):
    """State of a record of `__consumer_offsets`: column `decision` of `OFFSETS_LOG`. A record outside of transactions
    is in force. For a record of a transaction the transaction's marker decides."""

    IN_FORCE = 0
    """A record outside of transactions, or of a transaction with a commit marker."""
    ABORTED = 1
    PENDING = 2
    """A record of a transaction that has no marker in the log."""


class OffsetsRecord(StrEnum):
    """Kind of a record of `__consumer_offsets`: column `record` of `OFFSETS_LOG`."""

    COMMIT = "commit"
    """OffsetCommit: `offset` is the committed offset."""
    REMOVED = "removed"
    """A tombstone of OffsetCommit: the offset expired, or the group, the topic or the offset was deleted."""
    GROUP = "group"
    """A generation (GroupMetadata) or a group epoch (ConsumerGroupMetadata) begins: `epoch`; -1: the group was
    deleted."""
    MEMBER = "member"
    """ConsumerGroupCurrentMemberAssignment: `member_id` has the member epoch `epoch`; -1: it left; -2: it left and is
    static. One row for each partition that it owns (assigned, or to be revoked by it), with its assignment epoch in
    `offset` (-1 before Kafka 4.3); partition -1 for none. A topic whose name is not known has its id."""


OFFSETS_LOG: Final = required(
    ("node", pa.int32()),
    ("log_partition", pa.int32()),
    ("log_offset", pa.int64()),
    ("timestamp_ms", pa.int64()),
    ("record", pa.string()),
    ("group", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("epoch", pa.int32()),
    ("member_id", pa.string()),
    ("producer_id", pa.int64()),
    ("decision", pa.int8()),
    ("decided_at", pa.int64()),
    ("member", pa.int32()),
    ("number", pa.int64()),
    ("generation", pa.int32()),
)
"""`observed/offsets-log.parquet`: one row per record of a group in each replica's log of `__consumer_offsets`, or one
per partition of a MEMBER record. Ordered by node, log partition and log offset. `record`: an `OffsetsRecord`.
`decision`: a `LogDecision`; `decided_at`: log offset of the marker, else -1. `member`, `number`, `generation`: of the
commit that wrote it, from its metadata (`CommitMetadata`); -1 if it has none. Groups that the experiment does not have
are left out."""


class CommitMetadata(NamedTuple):
    """Metadata that a member adds to each commit, by which the records in `__consumer_offsets` identify the committer.
    `member`: its number. `generation`: its generation or epoch at the call. `number`: that of the commit."""

    member: int
    generation: int
    number: int

    def __str__(self) -> str:
        return f"ackproof {self.member} {self.generation} {self.number}"

    @classmethod
    def parse(cls, text: str) -> CommitMetadata | None:
        """Parse the metadata text of a commit; return None for a text of another form. A NUL at the end, which
        librdkafka appends, is ignored."""
        words = text.rstrip("\0").split(" ")
        if len(words) != 4 or words[0] != "ackproof":
            return None
        try:
            return cls(*map(int, words[1:]))
        except ValueError:
            return None


class MemberEnd(Document):
    """Outcome of one group member at the end of the run. `client`: its id. `status`: exit status, negative for a
    signal.

    `asked`: it was asked to stop, by the end of the run or a fault. `killed`: a fault killed it. `last_words`: the end
    of its standard error.
    """

    client: str
    group: str
    member: int
    pid: int
    started_ns: int
    """Start of its process, in ns on CLOCK_MONOTONIC."""
    status: int
    asked: bool
    killed: bool = False
    instance: str = ""
    """Its group.instance.id; '' for a dynamic member."""
    last_words: str = ""


class OffsetsHistory(Document):
    """Completeness of one replica's log of `__consumer_offsets`: it has all commits only if it was neither compacted
    nor cut at its start.

    `log_start`, `log_end`: its first offset and its log end offset; -1 unknown. `cleaned`: True if offsets are missing
    between its records. `reason`: why it could not be read; '' if it was.
    """

    node: int
    partition: int
    log_start: int = -1
    log_end: int = -1
    cleaned: bool = False
    reason: str = ""

    @property
    def whole(self) -> bool:
        return not self.reason and not self.cleaned and self.log_start == 0


class GroupEnd(Document):
    """State of one consumer group at the end of the run. `committed`: its committed offsets after its members ended.

    `ends`: (topic, partition, high watermark) of its input when the producers had stopped. `caught_up`: True if it
    committed all of these in time. `waited_s`: seconds for which the run waited for that. `idle_s`: seconds since its
    last progress when the wait ended. `output_ends`: high watermarks of its output when the output was read. `problem`:
    why the output could not be read completely; '' if it could.
    """

    group: str
    committed: GroupOffsets
    ends: tuple[tuple[str, int, int], ...] = ()
    caught_up: bool = False
    waited_s: float = 0.0
    idle_s: float = 0.0
    output_ends: tuple[tuple[str, int, int], ...] = ()
    problem: str = ""

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """Number of offsets up to its end that the group had not committed, by partition of its input. They count from
        offset 0 if nothing was committed there."""
        committed = self.committed.of_partition
        of_input = {TopicPartition(topic, partition): end for topic, partition, end in self.ends}
        return {place: end - max(committed.get(place, 0), 0) for place, end in of_input.items()}


class GroupsFile(Document):
    """`observed/groups.json`: consumer groups and members at the end of the run. Runs without `workload.groups` have no
    such file."""

    groups: tuple[GroupEnd, ...] = ()
    members: tuple[MemberEnd, ...] = ()
    histories: tuple[OffsetsHistory, ...] = ()
    breaches: tuple[tuple[str, str], ...] = ()
    """(client, breach of the contract) of members that are programs of the user."""


class GroupPlan(Document):
    """Facts about a consumer group that the audit needs. `commit`: its commit mode, as in an experiment file.
    `isolation`: isolation level of its members. `topics`: input topics. `output`: output topic; '' if the group has
    none."""

    group: str
    topics: tuple[str, ...]
    commit: str
    isolation: str
    output: str = ""
    committed_read: bool = False
    """True if the final read at read_committed decides which records the group's input has: its members read at
    read_committed, and producers use transactions."""
    assignment_epochs: bool = False
    """True if a broker is of Kafka 4.3 or later. Such a broker accepts a commit with an older member epoch for a
    partition that was assigned at or before that epoch."""


class GroupsPlanFile(Document):
    """`groups-plan.json`: facts about the case's consumer groups, written before the audit. Only runs with groups have
    it."""

    groups: tuple[GroupPlan, ...] = ()
