"""The JSON documents of a run and a batch, typed (docs/architecture.md). Each is replaced whole, never half written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ackproof.base.errors import BadInput
from ackproof.rundir.anomalies import ABSENCES, REMOVED, Anomaly, count_text
from ackproof.rundir.outcome import Verdict
from ackproof.rundir.partition import TopicPartition

Scalar: TypeAlias = str | int | float | bool | None


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step; a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


class Document(BaseModel):
    """A JSON file of a run. Unknown fields are ignored, so that newer writers can be read."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    def save(self, path: Path) -> None:
        """Write as JSON in one step."""
        write_atomically(path, self.model_dump_json(indent=1, by_alias=True) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read back. Raises `BadInput` naming the file when it is missing or not such a document."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "document"
            raise BadInput(f"{path}: not a {cls.__name__}: {where}: {first['msg']}") from error


D = TypeVar("D", bound=Document)


def read_lines(path: Path, kind: type[D]) -> Iterator[D]:
    """Yield one document per line; none without such a file. Raises `BadInput` for a line that cannot be
    read, unless it is the last one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            yield kind.model_validate_json(line)
        except ValidationError as error:
            if number < len(lines):
                raise BadInput(f"{path}:{number}: cannot be read: {error}") from error


class Client(Document):
    """One client process of a run. `producer` or `reader`: its number in the ledgers. Old readers have no isolation."""

    id: str
    kind: Literal["producer", "reader", "final"]
    producer: int | None = None
    reader: int | None = None
    topics: tuple[str, ...] = ()
    isolation: Literal["read_uncommitted", "read_committed"] | None = None
    keys: int = 0
    """Number of keys of a producer's records; every Nth record of a key is a tombstone (`payload.Keys`); 0: none."""
    tombstone_every: int = 0
    killed: bool = False
    """A fault killed it: it leaves no `_END`, and its journal was converted into the ledger."""


class CaseFile(Document):
    """`case.json`. `resolved` is the case as `ackproof.plan` writes it: enough to run it again. `assumed`: a sentence
    for each Kafka whose rules are not known. `jars`: SHA-256 by a Kafka's label and file name. `racks`: their nodes."""

    format: Literal[1] = 1
    run_id: str
    case: str
    experiment: str
    settings: dict[str, Scalar]
    cell: str = ""
    """Part of the case's name for a group of settings."""
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
    """The run has a `seal.json`. Runs of older versions do not."""
    timing: Timing | None = None
    """Timing of its brokers; None in files of older versions."""


class AttachedFile(Document):
    """`attached.json`: topics that a run created on a cluster that someone else runs. Removed once they are
    deleted there."""

    bootstrap: str
    topics: tuple[str, ...]


class PartitionRead(Document):
    """The final read of one partition. `start`, `end`: offsets asked for before the read; `position`: where
    the reader ended; `records`: number of records that it got, -1 unknown."""

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

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class FinalReadFile(Document):
    """`observed/final-read.json`. `committed`: the second final read, at read_committed, where producers
    wrote in transactions."""

    complete: bool
    reasons: tuple[str, ...] = ()
    partitions: tuple[PartitionRead, ...] = ()
    committed: tuple[PartitionRead, ...] = ()

    @property
    def read_out(self) -> bool:
        """Return True if every partition was read up to the end seen before the read, even if writers were
        still active."""
        return bool(self.partitions) and all(
            read.complete or read.position >= read.end > read.start for read in self.partitions
        )


class RecordCounts(Document):
    """Rows of the ledgers."""

    produced: int = 0
    acked: int = 0
    failed: int = 0
    indeterminate: int = 0
    consumed_live: int = 0
    consumed_final: int = 0


class DeletedWindows(Document):
    """Windows that a soak deleted because nothing was found in them (`--keep`)."""

    windows: int
    records: RecordCounts
    """Sums over all windows: rows of the ledgers, and records that the follower read back."""
    gone: int
    """Attempts in parts of the ledgers that were deleted, as recorded before the deletion."""
    spared: int
    """Acknowledged attempts that are still in the ledgers while their records were deleted with a window.
    They are not lost."""


class FinalReadFlaws(Document):
    """Offsets where a final reader went back, or that it passed over though another read shows them."""

    count: int = 0
    places: tuple[JsonValue, ...] = ()


class AuditFile(Document):
    """`audit.json`."""

    counts: dict[str, int]
    records: RecordCounts
    counted: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of each part that was counted, by its path in the run directory; empty in files of older versions."""
    complete: bool
    reasons: tuple[str, ...] = ()
    unledgered: int = 0
    consumed_committed: int = 0
    """Rows of the final reader at read_committed; they are not among `records.consumed_final`."""
    final_read: FinalReadFlaws = FinalReadFlaws()
    contents: dict[str, tuple[int, int]] = Field(default_factory=dict)
    """Partition → content sums of the final reads (`payload.content_sum`), the second at read_committed."""
    findings: tuple[str, ...] = ()
    """Names of the files in `findings/`; empty in files of older versions, where all files there count."""
    series: str = "series.parquet"
    deleted: DeletedWindows | None = None

    @property
    def audited(self) -> RecordCounts:
        """Return the number of audited rows, with those that a soak deleted."""
        return self.records if self.deleted is None else self.deleted.records

    def counts_to_show(self, final: FinalReadFile | None) -> dict[str, int]:
        """Return the counts that may be shown. Without a complete final read an unread record is not lost and
        a zero proves nothing, so only classes of presence that were found are shown."""
        if final is not None and final.read_out:
            return dict(self.counts)
        return {name: count for name, count in self.counts.items() if count and name not in ABSENCES}


class ClassJudgement(Document):
    """The judgement of one anomaly class. `forbidden` None: not judged, and `why` says why."""

    anomaly: str
    count: int
    forbidden: bool | None
    why: str
    predicted: str = ""
    """`impossible`, `possible` or `unknown`; empty where nothing is predicted and the settings alone decide."""


class ExpectationJudged(Document):
    """The result of one bound of `expect`. `holds` None: undecided, and `why` says what is missing. `seen`:
    in words, with its unit. `low`, `high`: bounds of the number; None: open, unknown, or a state."""

    quantity: str
    bound: str
    seen: str
    holds: bool | None
    why: str = ""
    timing: str = ""
    """Whose time-outs it was measured under; '' of what is no time."""
    low: float | None = None
    high: float | None = None


class JudgedOpinion(Document):
    """One opinion of the judge, as data."""

    check: str
    """The check whose opinion it is: `acks`, `left replicas`."""
    kind: Literal["contradicts", "breaks", "lacks", "open", "not judged", "agrees"]
    subject: str = ""
    """The partition, class, fault, node or client that it is about; '' the run."""
    text: str
    numbers: dict[str, float] = Field(default_factory=dict)
    proven: bool = False
    """For `breaks`: one specimen proves it, even where evidence is missing elsewhere."""


class VerdictFile(Document):
    """`verdict.json`."""

    verdict: Verdict
    reasons: tuple[str, ...]
    classes: tuple[ClassJudgement, ...] = ()
    not_judged: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()
    """Sentences in which the logs on disk confirm the final read."""
    calm: QuietSeconds | None = None
    """Load of the machine in quiet seconds, where it was observed."""
    expected: tuple[ExpectationJudged, ...] = ()
    """Results of the bounds of `expect`; empty in files of older versions."""
    opinions: tuple[JudgedOpinion, ...] = ()
    """All opinions, in the order of the checks; none in files of older versions."""

    @property
    def starved(self) -> tuple[str, ...]:
        """Return why times of this run say nothing about Kafka; empty where they do."""
        return self.calm.starved if self.calm is not None else ()

    @property
    def permitted(self) -> str:
        """Return why the losses in a PASS are allowed, as a sentence; "" where nothing is lost, or the
        verdict is no PASS."""
        losses = [
            judged for judged in self.classes if judged.count and judged.anomaly in (Anomaly.LOST, *REMOVED)
        ]
        reasons = (
            f"{judged.anomaly}: {count_text(judged.count, judged.anomaly)}. Allowed: {judged.why}"
            for judged in losses
        )
        return "; ".join(reasons) if self.verdict is Verdict.PASS else ""


class ChangedSetting(BaseModel, frozen=True):
    """A broker setting that is not at Kafka's default. `default` None: the release has no such setting. `brokers` ():
    all of them have this value."""

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
    """The timing of the brokers: `chaos`, `Kafka's own + server.properties + cluster.config`, …

    `ignored`: settings of the broker file that ackproof sets itself or does not keep, by the reason.
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
    """Return each timing with the names of the cases that have it; '' where all have the same."""
    found: dict[str, tuple[Timing, list[str]]] = {}
    for name, timing in timings:
        found.setdefault(timing.model_dump_json(), (timing, []))[1].append(name)
    return [(timing, "; ".join(names) if len(found) > 1 else "") for timing, names in found.values()]


class QuietSeconds(BaseModel, frozen=True):
    """The machine and the clients in seconds of load without an active fault. Shares are 0 … 1; -1 is unknown."""

    seconds: float
    asked_rate: float | None
    """Configured rate of all producers together, in records per second; None: unlimited."""
    sent_rate: float
    median_ms: float
    """Median acknowledgement time."""
    late_ms: float
    """Greatest delay of the harness' own timer."""
    looks_per_s: float
    busy: float
    stolen: float
    cpu_pressure: float
    io_pressure: float
    memory_pressure: float
    starved: tuple[str, ...] = ()
    """Bounds that were exceeded, a sentence each. If there are any, times of this run are not judged."""
