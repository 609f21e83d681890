"""Terms of the table of anomalies (`rundir.anomalies`): units, rules and promises; and its liveness rows.

A liveness class counts things that do not recover: its state lasted for its bound after the last healing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Unit(StrEnum):
    """Unit of a finding, and so of a count."""

    RECORD = "produced record (producer, seq)"
    ROW = "row of the final read"
    OFFSET = "offset of a partition"
    READ = "read"
    TRANSACTION = "transaction"
    PARTITION = "partition"
    REPLICA = "replica of a partition"
    CLIENT = "client"
    CLUSTER = "cluster"


class RuledBy(StrEnum):
    """Kind of rule by which a configuration forbids a class, in the order of reports."""

    LOSS = "prediction, else acks, min.insync.replicas and unclean election"
    LIVENESS = "forbidden unless the settings or the faults say that it does not come back"
    RETRIES = "what the client library [guarantees](clients.md)"
    ORDER = "idempotence, acks and retries: what the client library [guarantees](clients.md)"
    NO_SETTING = "always forbidden"
    INFORMATION = "never forbidden: for information"
    REMOVAL = "never forbidden: counted only with evidence of the setting, or of the request, that removed it"


class Concern(StrEnum):
    """Promise of a log that an anomaly breaks."""

    DURABILITY = "what was acknowledged is there, and nothing else is"
    ONCE_IN_ORDER = "once, and in the order in which it was sent"
    READING = "a reader is handed every record, going forward"
    TRANSACTIONS = "all of a transaction or nothing"
    """Only records of transactions can show these."""
    LIVENESS = "all of it recovers within its bound after the last healing"
    NOTHING = "none"


class Inversion(StrEnum):
    """The detail of a `reordered` finding, which is a code: the judge reads it."""

    BOTH_ACKED = "both acked"
    ONE_NOT_ACKED = "one of the two not acked"


class LivenessRow(NamedTuple):
    """One row of the table, with the fields of `AnomalyClass`."""

    name: str
    unit: Unit
    singular: str
    short: str
    wording: str
    plural: str = ""
    columns: tuple[str, ...] = ("detail",)


LIVENESS_ROWS: Final = (
    LivenessRow(
        name="no-controller",
        unit=Unit.CLUSTER,
        singular="cluster without a controller",
        plural="clusters without a controller",
        short="a majority of the controllers runs, and none is active",
        wording="No controller is active, although a majority of them runs.",
    ),
    LivenessRow(
        name="leaderless",
        unit=Unit.PARTITION,
        singular="leaderless partition",
        short="has no leader, and gets none",
        wording="The partition has no leader.",
    ),
    LivenessRow(
        name="hanging-transaction",
        unit=Unit.PARTITION,
        singular="partition with a hanging transaction",
        plural="partitions with a hanging transaction",
        short="its last stable offset stays behind the high watermark, and no coordinator will end that transaction",
        wording="The last stable offset stays where it is, and no coordinator has that transaction open.",
        columns=("offset", "detail"),
    ),
    LivenessRow(
        name="stuck-replica",
        unit=Unit.REPLICA,
        singular="stuck replica",
        short="its broker runs unfenced, and it does not return to the ISR",
        wording="Its broker runs unfenced, it is not in the ISR, and its log end does not approach the leader's.",
    ),
    LivenessRow(
        name="stuck-reassignment",
        unit=Unit.PARTITION,
        singular="stuck reassignment",
        short="the controller lists its reassignment, which makes no progress",
        wording="The controller lists a reassignment, and no log end of a replica that it adds moves.",
    ),
    LivenessRow(
        name="stuck-producer",
        unit=Unit.CLIENT,
        singular="stuck producer",
        short="gets no acknowledgement where another producer does",
        wording="It gets no acknowledgement where the partition has a leader and a full ISR, and a probe does.",
        columns=("producer", "detail"),
    ),
    LivenessRow(
        name="stuck-reader",
        unit=Unit.CLIENT,
        singular="stuck reader",
        short="gets no records where another reader does",
        wording="It gets no records where the partition has a leader, and a probe at its isolation gets further.",
    ),
)
"""The gravest first."""
