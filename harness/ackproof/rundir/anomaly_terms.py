"""Terms of the table of anomalies (`rundir.anomalies`): units, rules and promises."""

from __future__ import annotations

from enum import StrEnum


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
