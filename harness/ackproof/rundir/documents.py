"""Pydantic models of `case.json`, `observed/final-read.json`, `audit.json` and `verdict.json` (docs/contracts.md).
Documents of a batch are in `batch`, those of the reference implementation in `model`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from pydantic import BaseModel, Field, JsonValue

from ackproof.rundir.anomalies import ABSENCES, GONE, count_text
from ackproof.rundir.document import Document
from ackproof.rundir.outcome import Says, Verdict
from ackproof.rundir.partition import TopicPartition

Scalar: TypeAlias = str | int | float | bool | None


class Client(Document):
    """One client process of a run. `producer`, `reader`: number of the client in the ledgers; None for a client of
    another kind.

    `isolation`: None for producers and in older files. `library`, `library_version`: its client library; '' in older
    files.
    """

    id: str
    kind: Literal["producer", "reader", "final", "member"]
    producer: int | None = None
    reader: int | None = None
    group: str = ""
    """Consumer group or share group of a member; '' for other clients."""
    topics: tuple[str, ...] = ()
    """Topics that it writes to or reads. A reader assigns itself all of their partitions, so offsets that it lacks are
    a gap. A member gets some of the partitions from its group."""
    isolation: Literal["read_uncommitted", "read_committed"] | None = None
    library: str = ""
    library_version: str = ""
    keys: int = 0
    """Number of keys of a producer's records, 0 for none. `payload.Keys` explains this and `tombstone_every`."""
    tombstone_every: int = 0
    stamps: bool | None = None
    """True: the producer gives each record the timestamp `wall_ns` of the case plus `sent_ns`. False: its library sets
    timestamps. None: no producer, a program of the user, or an old run."""
    killed: bool = False
    """True if a fault killed it. Its folder then has no `_END`, and its journal was converted into the ledger."""


class CaseFile(Document):
    """`case.json`: the case that was run, with everything that is needed to run it again.

    `resolved`: the case with every random choice drawn. `replay`: the command that runs it again. `settings`: values
    that its matrix chose. `assumed`: a sentence for each Kafka release whose rules are not known. `environment`: name →
    version, or fact about the machine. `jars`: Kafka label → file name → SHA-256. `racks`: rack → nodes. `wall_ns`:
    start of the run, ns since the Unix epoch.
    """

    format: Literal[1] = 1
    run_id: str
    case: str
    experiment: str
    settings: dict[str, Scalar]
    cell: str = ""
    """Part of the case's name that stands for a group of settings which vary together; '' without such a group."""
    repeat: int
    seed: int
    backend: str
    replay: str
    resolved: JsonValue
    clients: tuple[Client, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    racks: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    jars: dict[str, dict[str, str]] = Field(default_factory=dict)
    wall_ns: int = 0
    sealed: bool = False
    """True if the run has a `seal.json`. Runs of older versions have none."""
    timing: Timing | None = None
    """Broker settings under which its times were measured; None in files of older versions."""


class AttachedFile(Document):
    """`attached.json`: topics that a run created on a foreign cluster; removed once they are deleted there."""

    bootstrap: str
    topics: tuple[str, ...]


class PartitionRead(Document):
    """The final read of one partition. `start`: log start offset. `end`: offset before which the read ends: the last
    stable offset, or the high watermark if a hanging transaction holds that back. Both were requested before the read.

    `epoch`, `epoch_after`: leader epoch before and after the read; -1: unknown. `position`: offset at which the reader
    stopped. `records`: number of records that it got; -1: unknown. `again`: number that a second reader got because the
    first got too few; -1: there was none, or it did not reach the end. `reason`: why the read is not `complete`.
    """

    topic: str
    partition: int
    start: int
    end: int
    epoch: int
    epoch_after: int
    position: int
    complete: bool
    reason: str = ""
    records: int = -1
    again: int = -1

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class FinalReadFile(Document):
    """`observed/final-read.json`: the final read. It reads every partition from `PartitionRead.start` to its `end`,
    after all producers have closed.

    `partitions`: the read of each partition at read_uncommitted. `committed`: the same for a second final read, at
    read_committed; empty unless producers wrote in transactions. `reasons`: why the final read is not `complete`.
    """

    complete: bool
    reasons: tuple[str, ...] = ()
    partitions: tuple[PartitionRead, ...] = ()
    committed: tuple[PartitionRead, ...] = ()

    @property
    def read_out(self) -> bool:
        """True if the read of every partition is complete or, in a partition with records, reached its `end`. Writers
        may have been active meanwhile. False if there are no partitions."""
        return bool(self.partitions) and all(
            read.complete or read.position >= read.end > read.start for read in self.partitions
        )


class RecordCounts(Document):
    """Numbers of rows in the ledgers. `acked`, `failed`, `indeterminate`: numbers of produced rows by outcome.
    `consumed_live`: rows of live readers, at either isolation level. `consumed_final`: rows of the final reader at
    read_uncommitted."""

    produced: int = 0
    acked: int = 0
    failed: int = 0
    indeterminate: int = 0
    consumed_live: int = 0
    consumed_final: int = 0


class DeletedWindows(Document):
    """Windows that a soak deleted (`--keep`). They had no findings, except of class `surfaced`.

    `windows`: their number. `records`: sums over all windows of the soak, deleted or not: rows of the ledgers, and
    records that were read back. `gone`: produce attempts in ledger parts that were deleted, counted before the
    deletion. `spared`: acknowledged attempts that are still in the ledgers, but whose records were deleted with a
    window. They do not count as lost.
    """

    windows: int
    records: RecordCounts
    gone: int
    spared: int


class FinalReadFlaws(Document):
    """Errors of the final reader: offsets at which it went back, or which it skipped although another read has a record
    there. `count`: number of all flaws. `places`: [topic, partition, offset] of the first flaws."""

    count: int = 0
    places: tuple[JsonValue, ...] = ()


class GroupCounts(Document):
    """Counts of the audit of one consumer group. `counts`: number of findings by anomaly class, also 0. A class that
    could not be counted is missing, and `reasons` says why."""

    group: str
    counts: dict[str, int] = Field(default_factory=dict)
    input: int = 0
    """Records of the group's input topics that the final read found at the group's isolation level."""
    delivered: int = 0
    """Deliveries of records to the group's members."""
    processed: int = 0
    """Deliveries that a member processed, not in a transaction that was aborted."""
    output: int = 0
    """Records of the group's output topic, read back at read_committed."""
    accepted: int = 0
    """Commits that the coordinator accepted, counted per partition. `refused`: those that it refused. `unknown`: those
    whose result is not known."""
    refused: int = 0
    unknown: int = 0
    reasons: tuple[str, ...] = ()


class AuditFile(Document):
    """`audit.json`: numbers of findings by class (`counts`), and numbers of the rows that were audited (`records`).

    `counted`: SHA-256 of each ledger part that was counted, by its path in the run directory; empty in files of older
    versions. `reasons`: why the audit is not `complete`. `unledgered`: rows of the final read whose record is missing
    in the incomplete ledger of its producer. `consumed_committed`: rows of the final reader at read_committed, which
    `records.consumed_final` does not include. `contents`: partition → content sums (`payload_bulk.content_sum`) of the
    final reads at read_uncommitted and at read_committed.
    """

    counts: dict[str, int]
    records: RecordCounts
    counted: dict[str, str] = Field(default_factory=dict)
    complete: bool
    reasons: tuple[str, ...] = ()
    unledgered: int = 0
    consumed_committed: int = 0
    final_read: FinalReadFlaws = FinalReadFlaws()
    contents: dict[str, tuple[int, int]] = Field(default_factory=dict)
    findings: tuple[str, ...] = ()
    """Names of the files in `findings/`. Empty in files of older versions: then all files there count."""
    series: str = "series.parquet"
    deleted: DeletedWindows | None = None
    """Windows that a soak deleted; None if it deleted none, or for other runs."""
    groups: tuple[GroupCounts, ...] = ()
    """Counts of each consumer group. `counts` has their sums."""

    @property
    def audited(self) -> RecordCounts:
        """Numbers of audited rows, including the rows of windows that a soak deleted."""
        return self.records if self.deleted is None else self.deleted.records

    def counts_to_show(self, final: FinalReadFile | None) -> dict[str, int]:
        """Return the counts that may be shown, by class. `final`: the final read; None if there was none.

        All counts may be shown if the final read is complete enough (`FinalReadFile.read_out`). Otherwise a record that
        is missing may only be unread, and a count of 0 proves nothing. Then zeros and the classes `ABSENCES`, such as
        `lost`, are left out.
        """
        if final is not None and final.read_out:
            return dict(self.counts)
        return {name: count for name, count in self.counts.items() if count and name not in ABSENCES}


class ClassJudgement(Document):
    """The judge's ruling on one anomaly class. `forbidden`: True if the prediction, or else the settings, forbid it.
    False if they allow it. None: the class is not judged, or nothing decides; `why` has the reason."""

    anomaly: str
    count: int
    forbidden: bool | None
    why: str
    predicted: str = ""
    """`impossible`, `possible` or `unknown`; empty if there is no prediction and the settings alone decide."""
    reductions: tuple[str, ...] | None = None
    """Reductions of the search behind `predicted`. Empty: a plain search. None: no search, or not recorded."""
    group: str = ""
    """The consumer group that is judged; '' for the class over all groups, and for other classes."""


class ExpectationJudged(Document):
    """The result of one bound of `expect`. `holds`: True or False; None: undecided (`why`), or a class not counted.

    `seen`: the observed value in words, with its unit. `low`, `high`: bounds of the observed number; None: no bound, an
    unknown number, or a state.
    """

    quantity: str
    bound: str
    seen: str
    holds: bool | None
    why: str = ""
    timing: str = ""
    """Name of the brokers' timing under which it was measured; '' for a quantity that is not a time."""
    low: float | None = None
    high: float | None = None


class JudgedOpinion(Document):
    """An opinion: a sentence (`text`) in which a check of the judge states a result. All opinions together make the
    verdict. `check`: name of the check, such as `acks`. `kind`: effect on the verdict, such as `breaks` (Kafka broke a
    promise), `lacks` (evidence is missing) or `agrees`.

    `subject`: the partition, class, fault, node or client that the sentence is about; '' for the run as a whole.
    `numbers`: numbers in the sentence, by name. `proven`: for `breaks`, one finding is proof, even if evidence is
    missing elsewhere.
    """

    check: str = ""
    kind: Says
    subject: str = ""
    text: str
    numbers: dict[str, float] = Field(default_factory=dict)
    proven: bool = False


class VerdictFile(Document):
    """`verdict.json`: the verdict of a run with its reasons. `classes`: ruling on each anomaly class; empty if nothing
    was judged. `not_judged`: sentences on what the verdict does not cover."""

    verdict: Verdict
    reasons: tuple[str, ...]
    classes: tuple[ClassJudgement, ...] = ()
    group_classes: tuple[ClassJudgement, ...] = ()
    """Judgements of the classes of consumer groups, group by group."""
    not_judged: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()
    """Sentences of the `agrees` opinions, such as: the logs on disk confirm the final read."""
    calm: QuietSeconds | None = None
    """Load of the machine and the clients; None if it was not observed."""
    expected: tuple[ExpectationJudged, ...] = ()
    """Results of the bounds of `expect`; empty in files of older versions."""
    opinions: tuple[JudgedOpinion, ...] = ()
    """All opinions, in the order of the checks; none in files of older versions."""

    @property
    def starved(self) -> tuple[str, ...]:
        """Reasons why durations and rates that were measured in this run say nothing about Kafka, because the machine
        was too busy. Empty if it was not, or if its load was not observed."""
        return self.calm.starved if self.calm is not None else ()

    @property
    def permitted(self) -> str:
        """Reasons why a PASS allows lost, expired, compacted or deleted records, as text. '' if the run has no such
        records, or if the verdict is not PASS."""
        losses = [judged for judged in self.classes if judged.count and judged.anomaly in GONE]
        reasons = (
            f"{judged.anomaly}: {count_text(judged.count, judged.anomaly)}. Allowed: {judged.why}"
            for judged in losses
        )
        return "; ".join(reasons) if self.verdict is Verdict.PASS else ""


class ChangedSetting(BaseModel, frozen=True):
    """A broker setting that differs from Kafka's default. `default` '': it has none; None: the release has no such
    setting. `brokers`: brokers with this value; empty: all brokers."""

    name: str
    value: str
    default: str | None = None
    brokers: tuple[int, ...] = ()

    @property
    def usual(self) -> str:
        return "not a setting of this release" if self.default is None else self.default or "no default"

    def __str__(self) -> str:
        where = f" on broker {', '.join(map(str, self.brokers))}" if self.brokers else ""
        return f"{self.name}={self.value}{where} ({self.usual})"


class Timing(BaseModel, frozen=True):
    """Broker settings under which a run's times were measured. `name`: where the time-outs come from, such as `chaos`
    or `Kafka's own + server.properties + cluster.config`.

    `changed`: all broker settings that differ from Kafka's defaults, those in ms first; empty for a foreign cluster.
    `ignored`: reason → settings of the user's server.properties that ackproof sets itself or drops.
    """

    name: str
    changed: tuple[ChangedSetting, ...] = ()
    ignored: dict[str, tuple[str, ...]] = {}

    def lines(self) -> Iterator[str]:
        yield f"timing: {self.name}; every time is measured under it"
        if self.changed:
            yield f"not at Kafka's default (in brackets): {', '.join(map(str, self.changed))}"
        for why, names in self.ignored.items():
            yield f"ignored: {', '.join(names)}: {why}"


def group_timings(timings: Iterable[tuple[str, Timing]]) -> list[tuple[Timing, str]]:
    """Return each distinct timing among pairs (case name, timing), with the names of its cases as text, `a; b`; '' if
    all cases have the same timing."""
    found: dict[str, tuple[Timing, list[str]]] = {}
    for name, timing in timings:
        found.setdefault(timing.model_dump_json(), (timing, []))[1].append(name)
    return [(timing, "; ".join(names) if len(found) > 1 else "") for timing, names in found.values()]


class QuietSeconds(BaseModel, frozen=True):
    """Load of the machine and the clients while the producers sent. `seconds`, `sent_rate` and `median_ms` are of the
    seconds without an active fault, all other numbers of the whole load but its first second.

    Shares (`busy`, `stolen`, the pressures, as in `Pulse`) are 0 … 1; -1 is unknown. `asked_rate`, `sent_rate`:
    configured and actual rate of all producers together, in records per second; `asked_rate` None: unlimited.
    `median_ms`: median time from a produce call to its acknowledgement. It and `sent_rate` are -1 if there are
    too few seconds without a fault. `late_ms`: greatest delay of the harness' own timer. `looks_per_s`: rounds of
    samples per second, of 10 planned.
    """

    seconds: float
    asked_rate: float | None
    sent_rate: float
    median_ms: float
    late_ms: float
    looks_per_s: float
    busy: float
    stolen: float
    cpu_pressure: float
    io_pressure: float
    memory_pressure: float
    starved: tuple[str, ...] = ()
    """Bounds that were exceeded, one sentence each. If there are any, times of this run are not judged."""
