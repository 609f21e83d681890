"""Terms of the table of anomalies (`rundir.anomalies`): names of classes, units, rules and guarantees; and the rows of
the classes of consumer groups, the gravest first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final


class Chance(StrEnum):
    """Answer to "can this class of anomaly happen?", in predictions, settings and rulings of the judge."""

    IMPOSSIBLE = "impossible"
    """No interleaving of steps in the explored scope leads to the anomaly, or the settings exclude it."""
    POSSIBLE = "possible"
    UNKNOWN = "unknown"


GRAVEST_FIRST: Final = (Chance.POSSIBLE, Chance.UNKNOWN, Chance.IMPOSSIBLE)


class Anomaly(StrEnum):
    """Names of the anomaly classes, in the order of the counts in `audit.json`; docs/anomalies.md defines them."""

    LOST = "lost"
    OVERWRITTEN = "overwritten"
    DUPLICATE = "duplicate"
    RESURRECTED = "resurrected"
    SURFACED = "surfaced"
    PHANTOM = "phantom"
    MISROUTED = "misrouted"
    CORRUPTED = "corrupted"
    DISPLACED = "displaced"
    REORDERED = "reordered"
    VANISHED = "vanished"
    CONFLICT = "conflict"
    SKIPPED = "skipped"
    REWOUND = "rewound"
    ABORTED_READ = "aborted-read"
    TORN_TRANSACTION = "torn-transaction"
    EARLY_READ = "early-read"
    EXPIRED = "expired"
    COMPACTED = "compacted"
    DELETED = "deleted"
    LEADERLESS = "leaderless"
    STUCK_REPLICA = "stuck-replica"
    STUCK_REASSIGNMENT = "stuck-reassignment"
    STUCK_PRODUCER = "stuck-producer"
    STUCK_READER = "stuck-reader"
    HANGING_TRANSACTION = "hanging-transaction"
    NO_CONTROLLER = "no-controller"
    UNDELIVERED = "undelivered"
    SKIPPED_BY_RESET = "skipped-by-reset"
    REDELIVERED = "redelivered"
    TORN_OUTPUT = "torn-output"
    DOUBLED_OUTPUT = "doubled-output"
    LOST_COMMIT = "lost-commit"
    REGRESSED_COMMIT = "regressed-commit"
    ZOMBIE_COMMIT = "zombie-commit"
    TWO_OWNERS = "two-owners"
    STALLED = "stalled"


class Unit(StrEnum):
    """The unit in which findings of a class are counted, such as a produced record, a read or a partition."""

    RECORD = "produced record (producer, seq)"
    ROW = "row of the final read"
    OFFSET = "offset of a partition"
    READ = "read"
    TRANSACTION = "transaction"
    PARTITION = "partition"
    REPLICA = "replica of a partition"
    CLIENT = "client"
    CLUSTER = "cluster"
    INPUT = "input record of a group"
    COMMIT = "commit of a group for one partition"


class RuledBy(StrEnum):
    """Rule that decides under which configurations a class of anomalies is forbidden. The value describes the rule in
    docs/anomalies.md."""

    LOSS = "prediction, else acks, min.insync.replicas and unclean election"
    LIVENESS = "forbidden unless the settings or the faults say that it does not come back"
    RETRIES = "what the client library [guarantees](client-libraries.md)"
    ORDER = "idempotence, acks and retries: what the client library [guarantees](client-libraries.md)"
    NO_SETTING = "always forbidden"
    INFORMATION = "never forbidden: for information"
    GROUP = "what the members and the settings of the group [promise](group-promises.md)"
    REMOVAL = "never forbidden: counted only with evidence of the setting, or of the request, that removed it"


class Concern(StrEnum):
    """The guarantee that a class of anomalies breaks, such as durability, order or liveness."""

    DURABILITY = "what was acknowledged is there, and nothing else is"
    ONCE_IN_ORDER = "once, and in the order in which it was sent"
    READING = "a reader is handed every record, going forward"
    TRANSACTIONS = "all of a transaction or nothing"
    """Concern of classes that only records of transactions can have."""
    LIVENESS = "all of it recovers within its bound after the last healing"
    PROCESSING = "a group processes what it commits past, as often as its members promise"
    NOTHING = "none"


WHOLE: Final = ("producer", "seq", "offset", "detail")
"""Columns that most classes fill in a finding, besides class, topic and partition."""


@dataclass(frozen=True, slots=True)
class AnomalyClass:
    """A class of anomalies: its definition (`wording`), its names in texts, and its treatment by the audit and the
    judge.

    `plural` '': `singular` + s. `unit`: the thing that one finding counts. `proves`: one finding is proof; if the class
    is forbidden, it is FAIL even with incomplete evidence. `live`: only live readers (consumers during the load) show
    the class. `traced`: the replay of a run by the reference implementation looks for the step that removed each record
    of the class.

    A soak reads its records back and audits them in windows, while the load runs. `follows`: a record can get the class
    after the audit of its window. `passing`: a finding of a window is withdrawn if a later window finds the record.

    `predicted_as`: the class that the model searches for instead, whose answer holds for this class too.
    """

    name: Anomaly
    singular: str
    short: str
    """What happened to one unit, to be put after its name: `acknowledged, and not there`."""
    wording: str
    unit: Unit = Unit.RECORD
    ruled_by: RuledBy = RuledBy.NO_SETTING
    concern: Concern = Concern.DURABILITY
    plural: str = ""
    proves: bool = False
    live: bool = False
    traced: bool = False
    follows: bool = False
    passing: bool = False
    predicted_as: Anomaly | None = None
    columns: tuple[str, ...] = WHOLE
    """Columns of a finding besides class, topic and partition; other columns are -1 or ''."""

    @property
    def always_forbidden(self) -> bool:
        """True if no configuration permits the class, so that no expectation can permit it either."""
        return self.ruled_by is RuledBy.NO_SETTING

    @property
    def transactional(self) -> bool:
        """True if only records of transactions can have findings of the class."""
        return self.concern is Concern.TRANSACTIONS


class Inversion(StrEnum):
    """Value of `detail` of a `reordered` finding: whether both records that are in the wrong order were acknowledged.
    The judge compares the values, so they are fixed."""

    BOTH_ACKED = "both acked"
    ONE_NOT_ACKED = "one of the two not acked"


_group = partial(
    AnomalyClass, ruled_by=RuledBy.GROUP, concern=Concern.PROCESSING, unit=Unit.INPUT, proves=True
)
"""Make a class of a consumer group. Its findings name group and member too (`schema.GROUP_FINDINGS`)."""

GROUP_ROWS: Final = (
    _group(
        name=Anomaly.UNDELIVERED,
        proves=False,
        singular="record that no member processed",
        plural="records that no member processed",
        short="its group committed past it, and no member processed it",
        wording="It is there, its group committed past it, no member processed it, and no reset passed over it.",
    ),
    _group(
        name=Anomaly.TORN_OUTPUT,
        proves=False,
        singular="torn output",
        short="its input is committed without its output, or the reverse",
        wording=(
            "Of a transactional group: its group committed past it and its output is not there at read_committed, or "
            "the output is there and the group did not commit past it."
        ),
    ),
    _group(
        name=Anomaly.DOUBLED_OUTPUT,
        singular="doubled output",
        short="more than once in the output",
        wording="The output has more intact copies of it at read_committed than the input.",
    ),
    _group(
        name=Anomaly.LOST_COMMIT,
        unit=Unit.COMMIT,
        proves=False,
        singular="lost commit",
        short="acknowledged, and in no replica's log",
        wording="The coordinator acknowledged it, and no replica's log of `__consumer_offsets` has it.",
        columns=("offset", "detail"),
    ),
    _group(
        name=Anomaly.REGRESSED_COMMIT,
        unit=Unit.COMMIT,
        singular="regressed commit",
        short="the group's offset went back below it",
        wording=(
            "It was acknowledged, and after it the group found a lower offset, or a lower one was accepted; no reset "
            "explains that."
        ),
        columns=("offset", "detail"),
    ),
    _group(
        name=Anomaly.ZOMBIE_COMMIT,
        unit=Unit.COMMIT,
        singular="zombie commit",
        short="accepted from a member whose generation was over",
        wording="It was accepted although the coordinator's rules refuse its member's generation or epoch.",
        columns=("offset", "detail"),
    ),
    _group(
        name=Anomaly.TWO_OWNERS,
        singular="record of two owners",
        plural="records of two owners",
        short="processed while two members were acknowledged as owners of its partition",
        wording=(
            "A member processed it between its assignment and its last accepted commit of the partition, and another "
            "member did so with a record of the partition in the same time."
        ),
    ),
    _group(
        name=Anomaly.REDELIVERED,
        singular="record processed again",
        plural="records processed again",
        short="processed more than once",
        wording="Members processed it more than once; aborted transactions do not count.",
    ),
    _group(
        name=Anomaly.SKIPPED_BY_RESET,
        proves=False,
        singular="record skipped by a reset",
        plural="records skipped by a reset",
        short="a reset of a member's position passed over it",
        wording="It is there, no member processed it, and a member's position was reset from below it to above it.",
    ),
)
