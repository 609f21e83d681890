"""Terms of the table of anomalies (`rundir.anomalies`): units, rules, and promises of a log."""

from __future__ import annotations

from enum import StrEnum


class Unit(StrEnum):
    """The unit that one finding of a class, and so its count, refers to."""

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
    """The rule by which a configuration forbids a class of anomalies, in the order of reports."""

    LOSS = "prediction, else acks, min.insync.replicas and unclean election"
    LIVENESS = "forbidden unless the settings or the faults say that it does not come back"
    RETRIES = "what the client library [guarantees](client-libraries.md)"
    ORDER = "idempotence, acks and retries: what the client library [guarantees](client-libraries.md)"
    NO_SETTING = "always forbidden"
    INFORMATION = "never forbidden: for information"
    REMOVAL = "never forbidden: counted only with evidence of the setting, or of the request, that removed it"


class Concern(StrEnum):
    """The promise of a log that a class of anomalies breaks."""

    DURABILITY = "what was acknowledged is there, and nothing else is"
    ONCE_IN_ORDER = "once, and in the order in which it was sent"
    READING = "a reader is handed every record, going forward"
    TRANSACTIONS = "all of a transaction or nothing"
    """Concern of classes that only records of transactions can have."""
    LIVENESS = "all of it recovers within its bound after the last healing"
    NOTHING = "none"


class Inversion(StrEnum):
    """The `detail` of a `reordered` finding. The judge reads it, so its values are fixed."""

    BOTH_ACKED = "both acked"
    ONE_NOT_ACKED = "one of the two not acked"
