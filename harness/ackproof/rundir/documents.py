"""The JSON documents of a run and a batch, typed (docs/architecture.md). Each is replaced whole, never half written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ackproof.base.errors import BadInput
from ackproof.rundir.anomalies import REMOVED, TABLE, Anomaly
from ackproof.rundir.outcome import Verdict

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
    """A document a line; none without such a file. Raises `BadInput` for a line that is none, unless it is the last."""
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
    """How many keys a producer's records have; every Nth of a key is a tombstone (`rundir.payload`); 0: none."""
    tombstone_every: int = 0
    killed: bool = False
    """A fault killed it: it leaves no `_END`, and what it had sent is in the ledger all the same."""


class CaseFile(Document):
    """`case.json`. `resolved` is the case as `ackproof.plan` writes it: enough to run it again. `assumed`: a sentence
    for each Kafka whose rules are not known. `jars`: SHA-256 by a Kafka's label and file name. `racks`: their nodes."""

    format: Literal[1] = 1
    run_id: str
    case: str
    experiment: str
    settings: dict[str, Scalar]
    cell: str = ""
    """The part of the case's name that stands for settings which go together."""
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
    """The run says at its end what it wrote (`seal.json`). Those of older versions do not."""
    timing: Timing | None = None
    """Whose time-outs its brokers had; None in files of older versions."""


class AttachedFile(Document):
    """`attached.json`: what a run made on a cluster that someone else runs. Removed once that is deleted there."""

    bootstrap: str
    topics: tuple[str, ...]


class PartitionRead(Document):
    """The final read of one partition. Offsets as asked before the read; `position` where the reader ended.

    `records`: how many the reader was handed there, -1 unknown.
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


class FinalReadFile(Document):
    """`observed/final-read.json`. `committed`: what the second reader came to, at read_committed, where producers wrote
    in transactions."""

    complete: bool
    reasons: tuple[str, ...] = ()
    partitions: tuple[PartitionRead, ...] = ()
    committed: tuple[PartitionRead, ...] = ()

    @property
    def read_out(self) -> bool:
        """Whether every partition was read up to the end that was seen, at rest or not."""
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
    """Of a soak, windows that were deleted once nothing was found in them (`--keep`)."""

    windows: int
    records: RecordCounts
    """What all windows of the soak counted: what the ledgers had, and what the follower read back."""
    gone: int
    """Attempts in parts of the ledgers that were deleted, as was written down before."""
    spared: int
    """Acknowledged attempts in the ledgers of records that went with a window: not there, and not lost."""


class FinalReadFlaws(Document):
    """Places where a final reader went back, or passed over an offset that another read shows."""

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
    """Partition → what the final readers wrote down of it, summed (`rundir.payload`), the second at read_committed."""
    findings: tuple[str, ...] = ()
    """The files in `findings/` that hold them; none in files of older versions, of which all that stand there count."""
    series: str = "series.parquet"
    deleted: DeletedWindows | None = None

    @property
    def audited(self) -> RecordCounts:
        """All that was audited: rows of the ledgers, with those that a soak deleted."""
        return self.records if self.deleted is None else self.deleted.records

    def counts_to_show(self, final: FinalReadFile | None) -> dict[str, int]:
        """The counts that may be shown. Where nobody read the logs out, what was not read is not lost, and that nothing
        was found says nothing: only what was found is told then, and no class of absence."""
        if final is not None and final.read_out:
            return dict(self.counts)
        absences = {name for name, row in TABLE.items() if row.of_absence}
        return {name: count for name, count in self.counts.items() if count and name not in absences}


class ClassJudgement(Document):
    """What the judge says of one anomaly class. `forbidden` None: not judged (and `why` says why)."""

    anomaly: str
    count: int
    forbidden: bool | None
    why: str
    predicted: str = ""
    """`impossible`, `possible` or `unknown`; empty where nothing is predicted and the settings alone decide."""


class ExpectationJudged(Document):
    """What became of one bound of `expect`. `holds` None: it cannot be told, and `why` says what is cut or missing.
    `seen`: in words, with its unit. `low`, `high`: between which the number lies; None: open, unknown, or a state."""

    quantity: str
    bound: str
    seen: str
    holds: bool | None
    why: str = ""
    timing: str = ""
    """Whose time-outs it was measured under; '' of what is no time."""
    low: float | None = None
    high: float | None = None


class VerdictFile(Document):
    """`verdict.json`."""

    verdict: Verdict
    reasons: tuple[str, ...]
    classes: tuple[ClassJudgement, ...] = ()
    not_judged: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()
    """What the logs on disk confirm of the final read."""
    calm: QuietSeconds | None = None
    """How the machine was doing, where somebody watched."""
    expected: tuple[ExpectationJudged, ...] = ()
    """What became of each bound of `expect`; nothing in files of older versions."""

    @property
    def starved(self) -> tuple[str, ...]:
        """Why what takes time in this run says nothing of Kafka; nothing where it does."""
        return self.calm.starved if self.calm is not None else ()

    @property
    def permitted(self) -> str:
        """Why what is gone in a PASS is right, in a sentence; "" where nothing is gone, or it is no PASS."""
        gone = [one for one in self.classes if one.count and one.anomaly in (Anomaly.LOST, *REMOVED)]
        told = (f"{one.count:,} {one.anomaly}, as these settings may: {one.why}" for one in gone)
        return "; ".join(told) if self.verdict is Verdict.PASS else ""


class ChangedSetting(BaseModel, frozen=True):
    """A broker setting that is not at Kafka's default. `default` None: the release has no such setting. `brokers` ():
    all of them have this value."""

    name: str
    value: str
    default: str | None = None
    brokers: tuple[int, ...] = ()

    @property
    def usual(self) -> str:
        """Kafka's default in words."""
        return "not a setting of this release" if self.default is None else self.default or "no default"

    def __str__(self) -> str:
        where = f" on broker {', '.join(map(str, self.brokers))}" if self.brokers else ""
        return f"{self.name}={self.value}{where} ({self.usual})"


class Timing(BaseModel, frozen=True):
    """Whose time-outs were in force: `chaos`, `Kafka's own + server.properties + cluster.config`, …

    `ignored`: settings of the broker file that ackproof sets itself or does not keep, by the reason.
    """

    name: str
    changed: tuple[ChangedSetting, ...] = ()
    ignored: dict[str, tuple[str, ...]] = {}

    def lines(self) -> Iterator[str]:
        """All of it in sentences."""
        yield f"timing: {self.name}; every time is measured under it"
        if self.changed:
            yield f"not at Kafka's default (in brackets): {', '.join(map(str, self.changed))}"
        for why, names in self.ignored.items():
            yield f"ignored: {', '.join(names)}: {why}"


def group_timings(timings: Iterable[tuple[str, Timing]]) -> list[tuple[Timing, str]]:
    """Each timing, with the names of those that have it; '' where all have the same."""
    found: dict[str, tuple[Timing, list[str]]] = {}
    for name, timing in timings:
        found.setdefault(timing.model_dump_json(), (timing, []))[1].append(name)
    return [(timing, "; ".join(names) if len(found) > 1 else "") for timing, names in found.values()]


class QuietSeconds(BaseModel, frozen=True):
    """How a run went in the seconds of its load in which no fault was at work. Shares are 0 … 1; -1 is unknown."""

    seconds: float
    asked_rate: float | None
    """Records per second of all producers together; None: as fast as they can."""
    sent_rate: float
    median_ms: float
    """Of acknowledgement times."""
    late_ms: float
    """How late the harness itself was at most."""
    looks_per_s: float
    busy: float
    stolen: float
    cpu_pressure: float
    io_pressure: float
    memory_pressure: float
    starved: tuple[str, ...] = ()
    """What was beyond its bound, a sentence each: then nothing that takes time is told of Kafka by this run."""
