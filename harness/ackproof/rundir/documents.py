"""The JSON documents of a run and a batch, typed (docs/architecture.md). Each is replaced whole, never half written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ackproof.base.errors import BadInput
from ackproof.rundir.anomalies import REMOVED, TABLE, Anomaly
from ackproof.rundir.circumstances import Calm, Timing
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

    def told(self, final: FinalReadFile | None) -> dict[str, int]:
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
    calm: Calm | None = None
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


class BatchCase(Document):
    """A case in `batch.json`."""

    case: str
    experiment: str = ""
    """Whose it is, where the batch is of several files: the experiment's name, with its file's if others have it."""
    settings: dict[str, Scalar]
    cell: str = ""
    """The part of the case's name that stands for settings which go together."""
    repeat: int
    verdict: Verdict | None = None
    error: str | None = None
    reasons: tuple[str, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    permitted: str = ""
    """Why what is gone in a PASS is right."""
    expected: tuple[ExpectationJudged, ...] = ()
    starved: tuple[str, ...] = ()
    """Why what takes time in it says nothing of Kafka."""
    timing: str = ""
    """Whose time-outs its brokers had (`Timing.name`); '' in files of older versions."""
    deleted_windows: int = 0
    """Of a soak, windows that were deleted when nothing was found in them."""
    run: str
    order: int = 0
    """Position in the run order of its batch, from 1; 0: unknown."""

    @property
    def cell_name(self) -> str:
        """What all its repeats are called: `acks=all`."""
        return self.case.rpartition("#")[0]

    @property
    def title(self) -> str:
        """What it is called beside the others: `acks=all#1`, and where several files are run `kills: acks=all#1`."""
        return f"{self.experiment}: {self.case}" if self.experiment else self.case


class RepeatValue(Document):
    """What one repeat came to: a number between two. `high` None: open above; `low` None: unknown, and `why` says
    why. `never`: it was watched for, and did not come."""

    case: str
    low: float | None = None
    high: float | None = None
    why: str = ""
    never: bool = False


class OverRepeats(Document):
    """What is expected of a quantity over the repeats of a case, or of one case beside another; and what came of it.

    `cells`: the names of the one or the two, without repeats; `values`: what each of their repeats came to. `repeats`:
    so many of each count, the first ones. `confidence`: of the interval. `verdict` None: not judged yet; `why`: what
    makes it INCONCLUSIVE.
    """

    experiment: str = ""
    quantity: str
    demand: str
    """As the file has it: `p95 < 6s`."""
    unit: str
    """Of the quantity; of the interval too, unless that is a ratio."""
    cells: tuple[str, ...]
    repeats: int
    needed: int = 0
    """So many bound the interval on each side that the demand needs; 0: it is not said."""
    timing: str = ""
    """Whose time-outs it was measured under; '' of what is no time."""
    claim: str = ""
    """The name of the claim that it shows; '' for what the experiment expects."""
    side: str = ""
    """Of that claim: `holds`, `fails` or `measured`."""
    confidence: float = 0.95
    verdict: Verdict | None = None
    why: str = ""
    seen: str = ""
    """The statistic of these repeats, in words, as `interval` is."""
    interval: str = ""
    low: float | None = None
    high: float | None = None
    """The interval, in the unit of the quantity or as a ratio; None: not bounded."""
    enough: int | None = None
    """How many repeats of each case would likely decide it; None: none would, or it is decided."""
    values: tuple[tuple[RepeatValue, ...], ...] = ()

    @property
    def title(self) -> str:
        """`p95 of time_to(first ack, fault 1), acks=all`."""
        whose = f"{self.experiment}: " if self.experiment else ""
        cells = "" if self.cells == ("case",) else f", {' and '.join(self.cells)}"
        return f"{whose}{self.quantity} {self.demand}{cells}"

    @property
    def open(self) -> bool:
        """Whether further repeats could decide it: it is not decided, and no repeat lacks its number."""
        unknown = any(value.low is None for group in self.values for value in group)
        return self.verdict not in (Verdict.PASS, Verdict.FAIL) and not unknown

    @property
    def told(self) -> str:
        """What came of it, in a sentence."""
        if self.verdict is None:
            return self.why or "not judged"
        sure = f"{self.confidence * 100:.4g} % interval {self.interval}, " if self.interval else ""
        under = f", timing {self.timing}" if self.timing else ""
        seen = f"{self.seen} ({sure}{self.repeats} repeats{under})" if self.seen else ""
        return "; ".join(text for text in (seen, self.why) if text)


class BatchFile(Document):
    """`batch.json`; rewritten after every case. `verdict` is None while a case has none and nothing failed."""

    verdict: Verdict | None
    exit_code: int
    seed: int
    name: str = ""
    command: str = ""
    interrupted: bool = False
    cases: tuple[BatchCase, ...]
    over_repeats: tuple[OverRepeats, ...] = ()
    """What is expected over repeats, and what came of it."""
    claimed: tuple[OverRepeats, ...] = ()
    """The same of what shows claims, or is measured for them: nothing that the batch is judged by."""
    at_most: int | None = None
    """How many repeats of a case there might have been: it was to go on until all of these were decided."""
